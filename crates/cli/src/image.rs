//! Opens images for the commands and closes them again.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::location::{Location, by_image};
use crate::tree::ImageTree;
use anyhow::Context;
use drystone::{Image, ImageOptions, Policy};
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
            _ => error.into_cause().into(),
        })
        .with_context(|| path.display().to_string())
    }
}

/// Opens the image at `path`.
pub fn open(path: &Path, intent: Intent, global: &Global) -> anyhow::Result<OpenedImage> {
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

/// Opens the image at `path` with these options and those of every command. That of a shell is open.
pub fn open_with(
    path: &Path,
    intent: Intent,
    global: &Global,
    options: ImageOptions,
) -> anyhow::Result<OpenedImage> {
    let open = || open_anew(path, intent, global, options);
    match global.shell_image.as_ref().filter(|shared| shared.is_at(path)) {
        Some(shared) => shared.image(intent == Intent::Change, open).map(OpenedImage::Shared),
        None => open().map(OpenedImage::Own),
    }
}

/// Opens the image at `path`, which isn't that of a shell.
fn open_anew(
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
    for (path, paths) in by_image(locations) {
        match with_tree(&path, intent, global, &interrupt, |tree| body(tree, &paths)) {
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
    with_tree(path, intent, global, &interrupt_of(intent)?, body)
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
    body: impl FnOnce(&ImageTree<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let options = ImageOptions::default().memory_bytes(WALK_MEMORY_BYTES);
    let image = open_with(path, intent, global, options)?;
    let result = {
        let tree = ImageTree::new(image.file_system(), path).heeding(interrupt.clone());
        body(&tree).and_then(|value| match tree.has_reported() {
            true => Err(Failure::Reported),
            false => Ok(value),
        })
    };
    close(path, image, result)
}
