//! What the engine asks of the two ends of a copy.
//!
//! A node is one inode and the reference or descriptor that keeps it open, which is given back when the
//! node is dropped. Directories are nodes under which names are looked up or made, never whole paths.

use super::facts::{InodeFacts, Xattrs};
use super::problem::{Cause, LostProperty};
use drystone_vfs::InodeNumber;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The result of a step at one end.
pub(crate) type EndResult<T> = Result<T, Cause>;

/// Where content is stored in a source, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRange {
    pub start: u64,
    pub end: u64,
    /// Other files may be stored there too.
    pub is_shared: bool,
}

/// A tree that is read.
pub(crate) trait CopySource: Sync {
    /// One inode.
    type Node: Send + Sync;

    /// A directory has one name, and anything else as many as it counts, unless something is damaged.
    const HAS_ONE_NAME: bool;

    /// The directory at `path`, named by the user: symbolic links in it are followed.
    fn start(&self, path: &Path) -> EndResult<(Self::Node, InodeFacts)>;

    /// Looks up a name; the node isn't open yet.
    fn find(&self, directory: &Self::Node, name: &OsStr) -> EndResult<(Self::Node, InodeFacts)>;

    /// True for the empty `lost+found` that every image has in its root.
    fn is_unused_lost_and_found(
        &self,
        directory: &Self::Node,
        name: &OsStr,
        node: &Self::Node,
    ) -> bool;

    /// Makes a regular file or a directory ready to be read.
    fn open(&self, node: &mut Self::Node, facts: &InodeFacts) -> EndResult<()>;

    /// The names in an open directory, without `.` and `..`, sorted.
    fn list(&self, directory: &Self::Node) -> EndResult<Vec<OsString>>;

    /// Reads an open file; 0 at its end.
    fn read(&self, file: &Self::Node, offset: u64, buffer: &mut [u8]) -> EndResult<usize>;

    /// The next range with data at or after `offset`, as start and end.
    fn next_data(&self, file: &Self::Node, offset: u64) -> EndResult<Option<(u64, u64)>>;

    /// Where an open file has data, up to `size`, as starts and ends.
    fn data_ranges(&self, file: &Self::Node, size: u64) -> EndResult<Vec<(u64, u64)>> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut offset = 0;
        while let Some((start, end)) = self.next_data(file, offset)? {
            let end = end.min(size);
            // A file that a damaged image contradicts itself about must not turn in circles.
            if end <= offset || start >= end {
                break;
            }
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
            offset = end;
        }
        Ok(ranges)
    }

    /// Where the source stores a file, up to `size`, if it can say so.
    fn places(&self, _file: &Self::Node, _size: u64) -> EndResult<Vec<StoredRange>> {
        Ok(Vec::new())
    }

    /// How much the source can store, in bytes, if it can say so.
    fn size(&self) -> u64 {
        u64::MAX
    }

    /// All extended attributes that are to be copied.
    fn xattrs(&self, node: &Self::Node) -> EndResult<Xattrs>;

    /// Told that everything in a directory is done: its parent is needed next.
    fn leave(&self, _directory: &Self::Node) {}
}

/// A tree that is made.
pub(super) trait CopyTarget: Sync {
    /// One inode.
    type Node: Send + Sync;
    /// What is remembered of a file until its last hard link is made, and dropped then.
    type Original: Clone + Send;

    /// The directory at `path`, which exists.
    fn start(&self, path: &Path) -> EndResult<Self::Node>;

    /// Identities of source directories that the target lies in: they can't be copied.
    fn enclosing(&self, start: &Self::Node) -> EndResult<Vec<(u64, u64)>>;

    /// Whether there are directories that compare names by something else than their bytes.
    fn folds_names(&self) -> bool {
        false
    }

    /// The directory, and what it compares a name by, unless by its bytes.
    fn folded_name(
        &self,
        _directory: &Self::Node,
        _name: &OsStr,
    ) -> EndResult<Option<(InodeNumber, Vec<u8>)>> {
        Ok(None)
    }

    /// Makes a directory or finds it; true if it was there.
    fn make_directory(
        &self,
        directory: &Self::Node,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(Self::Node, bool)>;

    /// Makes anything but a directory. Where something else than a directory has the name, it gets a free name
    /// beside it, which is returned.
    fn make(
        &self,
        directory: &Self::Node,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(Self::Node, Option<OsString>)>;

    /// Puts what was made beside `name`, and is complete, in place of what has the name.
    fn settle(&self, directory: &Self::Node, made_as: &OsStr, name: &OsStr) -> EndResult<()>;

    /// Takes away what was made beside a name: what has the name stays.
    fn discard(&self, directory: &Self::Node, made_as: &OsStr);

    /// Writes all of `data`.
    fn write(&self, file: &Self::Node, offset: u64, data: &[u8]) -> EndResult<()>;

    /// Sets the length of a file, leaving a hole where it grows.
    fn set_size(&self, file: &Self::Node, size: u64) -> EndResult<()>;

    /// Sets owners, permissions, extended attributes and times, last of all. `may_inherit` says
    /// that the node can have got ACLs from its directory. What can't be kept is told to
    /// `not_kept` and doesn't fail the rest.
    fn finish(
        &self,
        node: &Self::Node,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        not_kept: &mut dyn FnMut(LostProperty, Cause),
    ) -> EndResult<()>;

    /// Keeps what further links to `name` in `directory` need; takes the node.
    fn keep(&self, node: Self::Node, directory: &Self::Node, name: &OsStr) -> Self::Original;

    /// Makes a further link in place of anything but a directory.
    fn link(
        &self,
        original: &Self::Original,
        directory: &Self::Node,
        name: &OsStr,
    ) -> EndResult<()>;

    /// Told that everything in a directory is done: its parent is needed next.
    fn leave(&self, _directory: &Self::Node) {}
}
