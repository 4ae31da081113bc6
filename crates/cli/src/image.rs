//! Opens images for the commands and closes them again.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::location::{Location, by_image};
use crate::messages::tell;
use crate::mounts::registry::MountRegistry;
use crate::mounts::status::Status;
use crate::tree::ImageTree;
use anyhow::Context;
use drystone::{ChangeOptions, ErrorCause, Image, ImageOptions, Policy, VolumeName};
use std::fs::DirEntry;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of memory for the metadata of an image that a command walks through. What the command itself
/// keeps of a large directory or a deep tree comes on top.
const WALK_MEMORY_BYTES: usize = 128 << 20;

/// What a command is going to do to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Only look: the image stays as it is.
    Read,
    /// Change it.
    Change,
}

/// Errors of the library on an image, as commands tell them: the image, and why.
pub trait AtImage<T> {
    /// The error after the image's name.
    fn at_image(self, path: &Path) -> anyhow::Result<T>;
}

impl<T> AtImage<T> for drystone::Result<T> {
    fn at_image(self, path: &Path) -> anyhow::Result<T> {
        self.map_err(|error| match error.path() {
            // That of the undo log.
            Some(other) if other != path => anyhow::Error::from(error),
            _ => anyhow::Error::msg(reason(path, error.cause())),
        })
        .with_context(|| path.display().to_string())
    }
}

/// Has `body` change an image as a whole. An interrupt takes the change back.
pub fn change_whole<T>(
    path: &Path,
    undo: Option<PathBuf>,
    global: &Global,
    body: impl FnOnce(&ChangeOptions) -> drystone::Result<T>,
) -> Outcome<T> {
    global.check_may_change()?;
    let interrupt = Interrupt::install()?;
    let options = ChangeOptions::default().undo(undo).cancelled(interrupt.flag());
    let changed = body(&options);
    unless_interrupted(path, changed, &interrupt, "nothing has changed")
}

/// The result of work that an interrupt has ended if it was cancelled; `left` is what is left of it.
pub fn unless_interrupted<T>(
    path: &Path,
    done: drystone::Result<T>,
    interrupt: &Interrupt,
    left: &str,
) -> Outcome<T> {
    match done {
        Err(error) if interrupt.is_asked() && matches!(error.cause(), ErrorCause::Cancelled) => {
            tell(format_args!("{}: interrupted; {left}", path.display()));
            Err(Failure::Code(interrupt.code()))
        }
        done => Ok(done.at_image(path)?),
    }
}

/// Why an image can't be used, with the processes that have it open if that is why.
pub fn reason(path: &Path, cause: &ErrorCause) -> String {
    if !matches!(cause, ErrorCause::InUse) {
        return cause.to_string();
    }
    if let Some(mounted) = mounted(path) {
        return format!("{cause}, {mounted}");
    }
    let users = users_of(path);
    if users.is_empty() { cause.to_string() } else { format!("{cause}: {}", users.join(", ")) }
}

/// The process that has an image mounted, and where, if this user has mounted it.
fn mounted(path: &Path) -> Option<String> {
    let image = VolumeName::find(path).ok()?.full().ok()?;
    let registry = MountRegistry::read().ok()?;
    let is_it = |status: &&Status| status.image == image && status.process != std::process::id();
    let status = registry.running.iter().map(|mount| &mount.status).find(is_it)?;
    let (directory, process) = (status.directory.display(), status.process);
    Some(format!(
        "{process}, which has it mounted on {directory}: 'drystone umount {directory}' ends that"
    ))
}

/// The other processes that have the file of an image open, as far as this user may see them.
fn users_of(path: &Path) -> Vec<String> {
    let Ok(name) = VolumeName::find(path) else { return Vec::new() };
    let Ok(image) = name.source().canonicalize() else { return Vec::new() };
    let own = std::process::id().to_string();
    // Looking at the files themselves could wait for a server that hangs.
    let is_image = |entry: std::io::Result<DirEntry>| {
        entry.and_then(|entry| std::fs::read_link(entry.path())).is_ok_and(|file| file == image)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let user = |process: DirEntry| {
        let number = process.file_name().into_string().ok()?;
        let is_other = number.bytes().all(|byte| byte.is_ascii_digit()) && number != own;
        let mut files = std::fs::read_dir(process.path().join("fd")).ok().filter(|_| is_other)?;
        let program = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        files.any(is_image).then(|| format!("{number} ({})", program.trim_end()))
    };
    processes.filter_map(user).collect()
}

/// Opens the image at `path`.
pub fn open(path: &Path, intent: Intent, global: &Global) -> Outcome<OpenedImage> {
    open_with(path, intent, global, ImageOptions::default())
}

/// An image that a command has opened, or that of the shell in which it runs.
pub enum OpenedImage {
    Own(Image),
    Shared(Rc<Image>),
}

impl Deref for OpenedImage {
    type Target = Image;

    fn deref(&self) -> &Image {
        match self {
            OpenedImage::Own(image) => image,
            OpenedImage::Shared(image) => image,
        }
    }
}

/// Fails if nothing may be changed, or `path` names a checkpoint.
pub fn check_may_change(path: &Path, global: &Global) -> Outcome {
    global.check_may_change()?;
    if VolumeName::find(path).is_ok_and(|name| name.checkpoint().is_some()) {
        let name = path.display();
        return Err(Failure::Usage(format!("{name} is a checkpoint, which can only be read")));
    }
    Ok(())
}

/// Opens the image at `path` with these options and those of every command. That of a shell is open.
pub fn open_with(
    path: &Path,
    intent: Intent,
    global: &Global,
    options: ImageOptions,
) -> Outcome<OpenedImage> {
    if intent == Intent::Change {
        check_may_change(path, global)?;
    }
    let open = || open_again(path, intent, global, options);
    Ok(match global.shell_image.as_ref().filter(|shared| shared.is_at(path)) {
        Some(shared) => OpenedImage::Shared(shared.image(intent == Intent::Change, open)?),
        None => OpenedImage::Own(open()?),
    })
}

/// Opens the image at `path`, which isn't that of a shell.
fn open_again(
    path: &Path,
    intent: Intent,
    global: &Global,
    options: ImageOptions,
) -> anyhow::Result<Image> {
    let read_only = intent == Intent::Read || global.read_only;
    let policy = global.policy.as_deref().map_or(Ok(Policy::default()), str::parse)?;
    let opened = options.read_only(read_only).policy(policy).open(path);
    opened.at_image(path)
}

/// Closes an image after work on it ended with `result`. The work is kept either way; the first
/// error is reported. The image of a shell stays open.
pub fn close<T>(path: &Path, image: OpenedImage, result: Outcome<T>) -> Outcome<T> {
    let closed = match image {
        OpenedImage::Own(image) => image.close().at_image(path),
        OpenedImage::Shared(_) => Ok(()),
    };
    let value = result?;
    closed?;
    Ok(value)
}

/// Runs `body` on each image that is named, with the paths in it.
pub fn with_each(
    locations: &[Location],
    intent: Intent,
    global: &Global,
    mut body: impl FnMut(&ImageTree<'_>, &[PathBuf]) -> Outcome,
) -> Outcome {
    let interrupt = interrupt_of(intent)?;
    let mut has_failed = false;
    let images = by_image(locations);
    for (path, paths) in &images {
        let on_tree = |tree: &mut ImageTree<'_>| {
            tree.is_one_of_several = images.len() > 1;
            body(tree, paths)
        };
        match with_tree(path, intent, global, &interrupt, on_tree) {
            // It has printed what went wrong; the other images aren't affected.
            Err(Failure::Reported) => has_failed = true,
            other => other?,
        }
    }
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}

/// Runs `body` on one image. Fails at the end if `body` reported anything to its tree.
pub fn with_one<T>(
    path: &Path,
    intent: Intent,
    global: &Global,
    body: impl FnOnce(&ImageTree<'_>) -> Outcome<T>,
) -> Outcome<T> {
    with_tree(path, intent, global, &interrupt_of(intent)?, |tree| body(tree))
}

/// Commands that change an image handle signals, to close it. Commands that only read may end at once.
fn interrupt_of(intent: Intent) -> std::io::Result<Option<Interrupt>> {
    match intent {
        Intent::Read => Ok(None),
        Intent::Change => Interrupt::install().map(Some),
    }
}

fn with_tree<T>(
    path: &Path,
    intent: Intent,
    global: &Global,
    interrupt: &Option<Interrupt>,
    body: impl FnOnce(&mut ImageTree<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let options = ImageOptions::default().memory_bytes(WALK_MEMORY_BYTES);
    let image = open_with(path, intent, global, options)?;
    let result = {
        let mut tree = ImageTree::new(image.file_system(), path).heeding(interrupt.clone());
        body(&mut tree).and_then(|value| match tree.has_reported() {
            true => Err(Failure::Reported),
            false => Ok(value),
        })
    };
    close(path, image, result)
}
