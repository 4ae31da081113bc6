//! `cp`: copies into, out of, between and inside images.

mod streams;
mod summary;

use crate::commands::cat;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, close, open, open_with};
use crate::interrupt::Interrupt;
use crate::location::{AnyLocation, Location, is_same_image, last_name};
use crate::messages::tell;
use crate::owners::{OWNER_OPTIONS, OwnerArguments};
use crate::progress::Progress;
use crate::tree::ImageTree;
use drystone::ImageOptions;
use drystone::transfer::{CopyItem, CopyOptions, CopySummary, Endpoint, copy};
use drystone::vfs::FileSystem;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams::from_input;
pub use summary::conclude;

/// Copy files and trees into, out of, between and inside images
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "drystone cp [OPTIONS] <SRC>... <DST>",
    after_help = "\
A place that contains ':/' or ends in ':' is in an image; any other is on this machine. Like 'cp -a', \
the command copies whole directories and keeps permissions, owners, times, extended attributes, ACLs, \
hard links, holes, symbolic links and special files. It replaces files that exist and merges \
directories. If DST is a directory, SRC goes into it; the content of 'SRC/.' and of an image's root is \
merged into DST. '-' alone as SRC is standard input, and as DST standard output.

An entry that can't be copied is named, the rest is copied, and the exit code is 1. In a directory \
that ignores case (flag F), the second of two names that differ only in case, such as makefile and \
Makefile, isn't copied either.

Examples:
  drystone cp /usr/share disk.img:/share
  drystone cp --threads 8 rootfs/. disk.img:/
  drystone cp disk.img:/etc/fstab disk.img:/etc/hosts .
  drystone cp disk.img:/ extracted
  drystone cp old.img:/home new.img:/home
  drystone cp disk.img:/a disk.img:/b
  echo hello | drystone cp - disk.img:/hello
  drystone cp disk.img:/etc/fstab - | less"
)]
pub struct Arguments {
    /// What to copy, and the place to copy it to.
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"], value_parser = AnyLocation::parser())]
    places: Vec<AnyLocation>,
    /// Threads that copy. [default: the number of cores]
    #[arg(short = 'j', long, value_name = "N", value_parser = crate::global::threads())]
    threads: Option<usize>,
    /// Treat DST as the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    owners: OwnerArguments,
    /// Don't keep owners: new files belong to user 0 in an image, and to the caller on this machine.
    #[arg(long, conflicts_with_all = OWNER_OPTIONS)]
    no_owners: bool,
    /// Don't copy extended attributes, ACLs and file capabilities.
    #[arg(long)]
    no_xattrs: bool,
    /// Don't copy from other file systems that are mounted below SRC.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Seconds after which copied files survive a crash. [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    commit_interval: Option<Duration>,
    /// Accepted for compatibility with cp; directories are always copied whole.
    #[arg(short, short_aliases = ['R', 'a', 'p'], long, overrides_with = "recursive")]
    recursive: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| "a number of seconds".to_string())
}

/// Sources of a copy that are in the same image or directory.
struct Group {
    /// The image; none for this machine.
    image: Option<PathBuf>,
    paths: Vec<PathBuf>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let Some((target, sources)) = arguments.places.split_last() else { return Ok(()) };
    if let Some(copied) = copy_stream(arguments, sources, target, global) {
        return copied;
    }
    let groups = groups_of(sources);
    if sources.len() > 1 && arguments.no_target_directory {
        let message = "-T takes one source".to_string();
        return Err(Failure::Usage(message));
    }
    let interrupt = Some(Interrupt::install()?);
    match target {
        AnyLocation::Host(path) => {
            if groups.iter().any(|group| group.image.is_none()) {
                let message = "neither source nor target is in an image: write 'IMAGE:/PATH', or 'IMAGE:/' for its root";
                return Err(Failure::Usage(message.to_string()));
            }
            let copying = Copying { arguments, global, excluded: Vec::new(), interrupt };
            let parts = groups.iter().map(|group| copying.group(group, None, path, sources.len()));
            conclude(parts, global)
        }
        AnyLocation::Image(location) => {
            let mut options = ImageOptions::default();
            options.commit_interval = arguments.commit_interval;
            let image = open_with(&location.image, Intent::Change, global, options)?;
            let result = {
                let excluded = image.host_file().into_iter().collect();
                let copying = Copying { arguments, global, excluded, interrupt };
                let place = Some((location.image.as_path(), image.file_system()));
                let parts = groups
                    .iter()
                    .map(|group| copying.group(group, place, &location.path, sources.len()));
                conclude(parts, global)
            };
            close(&location.image, image, result)
        }
    }
}

/// Copies from standard input or to standard output, if that is meant.
fn copy_stream(
    arguments: &Arguments,
    sources: &[AnyLocation],
    target: &AnyLocation,
    global: &Global,
) -> Option<Outcome> {
    let is_stream = |place: &AnyLocation| matches!(place, AnyLocation::Host(path) if path == "-");
    let has_stream = is_stream(target) || sources.iter().any(is_stream);
    if has_stream && !arguments.owners.map().is_empty() {
        return Some(Err(Failure::Usage("'-' has no owner to be replaced".to_owned())));
    }
    let only_files = || Failure::Usage("'-' stands for one file in an image".to_owned());
    if is_stream(target) {
        let file = |source: &AnyLocation| match source {
            AnyLocation::Image(location) => Some(location.clone()),
            AnyLocation::Host(_) => None,
        };
        let files: Option<Vec<Location>> = sources.iter().map(file).collect();
        return Some(files.ok_or_else(only_files).and_then(|files| cat::print_all(&files, global)));
    }
    if !sources.iter().any(is_stream) {
        return None;
    }
    Some(match (sources, target) {
        ([_], AnyLocation::Image(file)) => conclude([from_input(file, global)], global),
        _ => Err(only_files()),
    })
}

/// Groups sources that can be copied together, so that hard links among them are kept.
fn groups_of(sources: &[AnyLocation]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for source in sources {
        let image = match source {
            AnyLocation::Image(location) => Some(location.image.clone()),
            AnyLocation::Host(_) => None,
        };
        let same = groups.iter_mut().find(|group| match (&group.image, &image) {
            (Some(a), Some(b)) => is_same_image(a, b),
            (None, None) => true,
            _ => false,
        });
        match same {
            Some(group) => group.paths.push(source.path().to_path_buf()),
            None => groups.push(Group { image, paths: vec![source.path().to_path_buf()] }),
        }
    }
    groups
}

struct Copying<'c> {
    arguments: &'c Arguments,
    global: &'c Global,
    /// The image itself, when it is copied into.
    excluded: Vec<(u64, u64)>,
    interrupt: Option<Interrupt>,
}

impl Copying<'_> {
    /// Copies sources of one place to `path` in the target image, or on this machine.
    fn group(
        &self,
        group: &Group,
        target: Option<(&Path, &dyn FileSystem)>,
        path: &Path,
        sources: usize,
    ) -> Outcome<CopySummary> {
        let Some(image_path) = &group.image else {
            return self.copy(Endpoint::Host, group, target, path, sources);
        };
        if let Some((target_path, file_system)) = target
            && is_same_image(target_path, image_path)
        {
            let from = Endpoint::Image(file_system);
            return self.copy(from, group, target, path, sources);
        }
        let image = open(image_path, Intent::Read, self.global)?;
        let copying = Copying {
            arguments: self.arguments,
            global: self.global,
            excluded: self.excluded.iter().copied().chain(image.host_file()).collect(),
            interrupt: self.interrupt.clone(),
        };
        let from = Endpoint::Image(image.file_system());
        let result = copying.copy(from, group, target, path, sources);
        close(image_path, image, result)
    }

    fn copy(
        &self,
        from: Endpoint<'_>,
        group: &Group,
        target: Option<(&Path, &dyn FileSystem)>,
        path: &Path,
        sources: usize,
    ) -> Outcome<CopySummary> {
        let place = target.map_or(Endpoint::Host, |(_, file_system)| Endpoint::Image(file_system));
        let is_directory = match target {
            Some((image, file_system)) => {
                let found = ImageTree::new(file_system, image).find(path, true);
                found.is_ok_and(|node| node.is_directory())
            }
            None => path.is_dir(),
        };
        let is_new_name = self.arguments.no_target_directory;
        let (into, items) = destination(&group.paths, path, is_directory, is_new_name, sources)?;
        let prefix =
            |image: Option<&Path>| image.map_or(String::new(), |i| format!("{}:", i.display()));
        let progress = Progress::new(
            self.global.quiet,
            self.global.verbose > 0,
            [prefix(group.image.as_deref()), prefix(target.map(|(image, _)| image))],
            self.interrupt.clone(),
        );
        let mut options = CopyOptions::default()
            .keep_owners(!self.arguments.no_owners)
            .owners(self.arguments.owners.map())
            .keep_xattrs(!self.arguments.no_xattrs)
            .one_file_system(self.arguments.one_file_system)
            .excluded(self.excluded.clone());
        if let Some(threads) = self.arguments.threads {
            options.threads = threads;
        }
        let copied = progress.during(|| copy(from, &items, place, &into, &options, &progress));
        let summary = copied.map_err(|problem| {
            drystone::transfer::CopyMonitor::problem(&progress, &problem);
            Failure::Reported
        })?;
        if let Some(interrupt) = self.interrupt.as_ref().filter(|it| it.is_asked()) {
            tell(format_args!("interrupted; what was copied so far is in place"));
            return Err(Failure::Code(interrupt.code()));
        }
        progress.tell_unkept(self.global.quiet);
        progress.tell_stopped(&summary);
        Ok(summary)
    }
}

/// Works out, as `cp` does, which directory is copied into and under which names. `is_new_name` if the target
/// is what a source becomes, even if it is a directory (`-T`).
fn destination(
    paths: &[PathBuf],
    target: &Path,
    target_is_directory: bool,
    is_new_name: bool,
    sources: usize,
) -> Result<(PathBuf, Vec<CopyItem>), Failure> {
    let named = |name: Option<OsString>| {
        paths.iter().map(move |path| CopyItem { path: path.clone(), name: name.clone() }).collect()
    };
    if target_is_directory && !is_new_name {
        // `SRC/.`, `..` and roots have no name to appear under: their content is merged.
        let item = |path: &PathBuf| CopyItem { path: path.clone(), name: last_name(path) };
        let items = paths.iter().map(item).collect();
        return Ok((target.to_path_buf(), items));
    }
    if sources > 1 {
        let message =
            format!("{} isn't a directory, and there are several sources", target.display());
        return Err(Failure::Failed(anyhow::anyhow!(message)));
    }
    let Some(name) = last_name(target) else {
        if target_is_directory {
            // A root has no other name: the source, a directory, is merged into it.
            return Ok((target.to_path_buf(), named(None)));
        }
        let message = format!("{} isn't a directory", target.display());
        return Err(Failure::Failed(anyhow::anyhow!(message)));
    };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    Ok((parent, named(Some(name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{content, example, paths, tree_of};

    fn places(texts: &[&str]) -> Vec<AnyLocation> {
        texts.iter().map(|text| AnyLocation::parse(text.as_ref()).unwrap()).collect()
    }

    #[test]
    fn sources_are_put_together() {
        let groups = groups_of(&places(&["a", "x:/1", "b", "x:/2"]));
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].paths, [PathBuf::from("a"), PathBuf::from("b")]);
    }

    #[test]
    fn names_come_out_as_with_cp() {
        let out = |path: &str, target: &str, is_directory| {
            let (into, items) =
                destination(&[path.into()], Path::new(target), is_directory, false, 1).unwrap();
            (into, items[0].name.clone())
        };
        let name = |text: &str| Some(OsString::from(text));
        assert_eq!(out("/a/b", "/c", true), ("/c".into(), name("b")));
        assert_eq!(out("/a/b", "/c", false), ("/".into(), name("c")));
        assert_eq!(out("/a/b", "c", false), (".".into(), name("c")));
        assert_eq!(out("/a/.", "/c", true), ("/c".into(), None));
        assert_eq!(out("/", "c", true), ("c".into(), None));
        assert_eq!(out("/", "c", false), (".".into(), name("c")));
        assert!(destination(&["a".into(), "b".into()], Path::new("/c"), false, false, 2).is_err());
        let renamed = |target: &str| {
            let (into, items) =
                destination(&["/a/b".into()], Path::new(target), true, true, 1).unwrap();
            (into, items[0].name.clone())
        };
        assert_eq!(renamed("/c"), ("/".into(), name("c")));
        for root in ["/", ".", "/c/."] {
            assert_eq!(renamed(root), (root.into(), None));
        }
    }

    #[test]
    fn trees_are_copied_out_and_in_and_inside() {
        let image = example(&["a/b/c", "a/d"]);
        let folder = tempfile::tempdir().unwrap();
        let arguments = Arguments::default();
        let global = Global { quiet: true, ..Global::default() };
        let copying = Copying {
            arguments: &arguments,
            global: &global,
            excluded: Vec::new(),
            interrupt: None,
        };
        let place = Some((Path::new("test.img"), &image as &dyn FileSystem));
        let group = |path: PathBuf| Group { image: None, paths: vec![path] };
        let out = folder.path().join("out");
        let from = Endpoint::Image(&image);
        copying.copy(from, &group("/a".into()), None, &out, 1).unwrap();
        assert_eq!(std::fs::read_to_string(out.join("b/c")).unwrap(), "a/b/c");
        copying.copy(Endpoint::Host, &group(out.clone()), place, Path::new("/"), 1).unwrap();
        copying.copy(Endpoint::Host, &group(out.join(".")), place, Path::new("/"), 1).unwrap();
        copying.copy(from, &group("/a".into()), place, Path::new("/e"), 1).unwrap();
        let tree = tree_of(&image);
        assert_eq!(content(&tree, "/out/b/c"), b"a/b/c");
        assert_eq!(content(&tree, "/b/c"), b"a/b/c");
        assert_eq!(content(&tree, "/e/d"), b"a/d");
        assert_eq!(paths(&tree).len(), 4 * 3 + 3);
        let failed = copying.copy(from, &group("/x".into()), place, Path::new("/e"), 1).unwrap();
        assert_eq!(failed.failed, 1);
        assert_eq!(image.references(), 0);
    }
}
