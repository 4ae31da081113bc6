//! An entry of an archive: its metadata, and where it is.

use crate::transfer::facts::{InodeFacts, Xattrs};
use crate::transfer::problem::{Cause, CopyProblem, Side};
use drystone_sources::tar::{DataRun, EntryKind, NewTarEntry, Time};
use drystone_vfs::{DeviceNumber, FileType, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What an archive calls an entry, with an empty file in place of any file; none for what archives
/// don't hold.
pub(super) fn kind_of(facts: &InodeFacts) -> Option<EntryKind> {
    let DeviceNumber { major, minor } = facts.device;
    Some(match facts.file_type {
        FileType::Regular => EntryKind::File { size: 0, runs: Vec::new() },
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink(facts.target.clone()),
        FileType::CharacterDevice => EntryKind::CharacterDevice { major, minor },
        FileType::BlockDevice => EntryKind::BlockDevice { major, minor },
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => return None,
    })
}

/// A file whose data is in `pieces`: start and end of each.
pub(super) fn file_kind(size: u64, pieces: &[(u64, u64)]) -> EntryKind {
    let run =
        |&(start, end): &(u64, u64)| DataRun { offset: start, length: end - start, position: 0 };
    EntryKind::File { size, runs: pieces.iter().map(run).collect() }
}

/// The bytes before the content of an entry.
pub(super) fn head(
    name: &[u8],
    facts: &InodeFacts,
    attributes: &Xattrs,
    kind: EntryKind,
) -> Vec<u8> {
    let time = |Timestamp { seconds, nanoseconds }| Time { seconds, nanoseconds };
    let entry = NewTarEntry {
        name,
        kind,
        mode: facts.permissions,
        user: facts.user,
        group: facts.group,
        modified: time(facts.modified),
        accessed: time(facts.accessed),
        attributes,
    };
    entry.head()
}

/// Where an entry that is being written is.
pub(super) struct ArchivePath<'p> {
    /// Its name in the archive.
    pub name: &'p [u8],
    /// How much of the name stands for the top.
    pub top_length: usize,
    /// Where the top is in the image.
    pub top: &'p Path,
}

impl ArchivePath<'_> {
    /// The last part of the name in the archive.
    pub fn last_name(&self) -> &OsStr {
        let name = self.name.strip_suffix(b"/").unwrap_or(self.name);
        OsStr::from_bytes(name.rsplit(|&byte| byte == b'/').next().unwrap_or(name))
    }

    pub fn source_path(&self) -> PathBuf {
        let below = &self.name[self.top_length..];
        let below = below.strip_suffix(b"/").unwrap_or(below);
        match below.is_empty() {
            true => self.top.to_path_buf(),
            false => self.top.join(OsStr::from_bytes(below)),
        }
    }

    pub fn problem(&self, action: &'static str, cause: Cause) -> CopyProblem {
        CopyProblem::new(Side::Source, action, &self.source_path(), cause)
    }
}
