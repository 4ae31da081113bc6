//! Compares two trees, each in an image or on this machine, entry by entry.
//!
//! One thread walks both trees at once, names in the order of their bytes, and compares the
//! metadata of inodes; others compare contents and extended attributes. Differences come out in
//! the order of the walk. Memory grows with the largest directory, with the depth, and with the
//! number of files that have several names.
//!
//! `walk` goes through the trees, `pair` compares two inodes, `links` hard links; `pipeline` shares
//! the work and puts its results back in order.

mod links;
mod pair;
mod pipeline;
#[cfg(test)]
mod tests;
mod walk;

use crate::Exclude;
use crate::transfer::host_source::HostSource;
use crate::transfer::image_source::ImageSource;
use crate::transfer::{CopyMonitor, CopyProblem, Endpoint};
use drystone_vfs::{DeviceNumber, FileType, Timestamp};
use std::path::{Path, PathBuf};

/// One of the two trees.
#[derive(Clone, Copy)]
pub struct ComparedTree<'t> {
    /// Where it is.
    pub place: Endpoint<'t>,
    /// Its top there, a directory or not. Symbolic links to directories are followed.
    pub path: &'t Path,
}

impl<'t> ComparedTree<'t> {
    /// A file or a tree of this machine. [`Fs::tree`](crate::Fs::tree) is one of an image.
    pub fn host(path: &'t (impl AsRef<Path> + ?Sized)) -> ComparedTree<'t> {
        ComparedTree { place: Endpoint::Host, path: path.as_ref() }
    }
}

/// What is compared besides names, types, sizes, targets of links and numbers of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aspects {
    /// Permissions.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// What is in regular files, and how much.
    pub content: bool,
    /// When content changed last.
    pub times: bool,
    /// Extended attributes, ACLs and file capabilities among them.
    pub xattrs: bool,
    /// Which names belong to the same file.
    pub links: bool,
    /// Where files have holes.
    pub holes: bool,
}

impl Default for Aspects {
    /// Everything.
    fn default() -> Aspects {
        Aspects {
            mode: true,
            owner: true,
            content: true,
            times: true,
            xattrs: true,
            links: true,
            holes: true,
        }
    }
}

/// How to compare.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompareOptions {
    /// How many threads compare contents; 0 counts as 1.
    pub threads: usize,
    /// What is compared.
    pub aspects: Aspects,
    /// What is left out, by its place below the tops.
    pub exclude: Exclude,
}

drystone_options::setters! {
    CompareOptions {
        threads: usize,
        aspects: Aspects,
        exclude: Exclude,
    }
}

impl Default for CompareOptions {
    /// Everything, one thread per core.
    fn default() -> CompareOptions {
        let (aspects, exclude) = (Aspects::default(), Exclude::default());
        CompareOptions { threads: drystone_sync::core_slots(), aspects, exclude }
    }
}

/// One of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first tree.
    First,
    /// The second tree.
    Second,
}

/// In what two entries differ; values of the first tree come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Only one tree has the entry; of a directory nothing that is in it is named.
    OnlyIn(Which, FileType),
    /// They are of different types; nothing else of them is compared.
    Type(FileType, FileType),
    /// Permissions.
    Mode(u16, u16),
    /// User and group.
    Owner((u32, u32), (u32, u32)),
    /// The length of regular files.
    Size(u64, u64),
    /// The first byte that differs, of those that both have.
    Content(u64),
    /// Where symbolic links lead.
    Target(Vec<u8>, Vec<u8>),
    /// What device nodes stand for.
    Device(DeviceNumber, DeviceNumber),
    /// When the content changed last.
    Modified(Timestamp, Timestamp),
    /// The value of an extended attribute, none where there is no such.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    /// In one tree it is the same file as the one that is named, in the other it isn't.
    Links(Which, PathBuf),
    /// The first byte that is in a hole in one of them only.
    Holes(u64),
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where it is below the tops; empty for the tops themselves.
    pub path: PathBuf,
    /// What it is.
    pub kind: DifferenceKind,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompareSummary {
    /// Entries that are in both trees.
    pub entries: u64,
    /// Content that was read, of both.
    pub bytes: u64,
    /// Differences that were found.
    pub differences: u64,
    /// Entries that could not be compared, or not wholly.
    pub failed: u64,
}

/// Compares two trees. Differences are told in the order of their paths, by the calling thread;
/// problems to `monitor`, with [`Side::Source`](crate::transfer::Side) for the first tree.
///
/// # Errors
///
/// If one of the tops can't be used.
pub fn compare(
    first: ComparedTree<'_>,
    second: ComparedTree<'_>,
    options: &CompareOptions,
    monitor: &dyn CopyMonitor,
    found: &mut dyn FnMut(&Difference),
) -> Result<CompareSummary, CopyProblem> {
    let paths = [first.path, second.path];
    match (first.place, second.place) {
        (Endpoint::Host, Endpoint::Host) => {
            walk::run(&HostSource::new(), &HostSource::new(), paths, options, monitor, found)
        }
        (Endpoint::Host, Endpoint::Image(second)) => {
            walk::run(&HostSource::new(), &ImageSource::new(second), paths, options, monitor, found)
        }
        (Endpoint::Image(first), Endpoint::Host) => {
            walk::run(&ImageSource::new(first), &HostSource::new(), paths, options, monitor, found)
        }
        (Endpoint::Image(first), Endpoint::Image(second)) => {
            let (first, second) = (ImageSource::new(first), ImageSource::new(second));
            walk::run(&first, &second, paths, options, monitor, found)
        }
    }
}
