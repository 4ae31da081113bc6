//! A directory that is being copied, and names in it.

use super::ends::{CopySource, CopyTarget};
use super::facts::InodeFacts;
use crate::EntryPath;
use drystone_sync::Arc;
use drystone_sync::atomic::AtomicUsize;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// A directory that is open at both ends.
pub(super) struct CopiedDirectory<S: CopySource, T: CopyTarget> {
    pub(super) source: S::Node,
    pub(super) target: T::Node,
    /// What to set at the end; none for what only holds an item.
    pub(super) facts: Option<InodeFacts>,
    /// It was there before: new entries may inherit from it.
    pub(super) existed: bool,
    pub(super) parent: Option<Arc<CopiedDirectory<S, T>>>,
    /// Its name in its parent. What the user named has its path.
    pub(super) from: OsString,
    /// Where it is below the start of the target.
    pub(super) way: Arc<EntryPath>,
    /// Which of the items it belongs to.
    pub(super) item: usize,
    /// Pieces of work left, the listing included.
    pub(super) pending: AtomicUsize,
}

impl<S: CopySource, T: CopyTarget> CopiedDirectory<S, T> {
    /// Where an entry is in the source; an empty name stands for the directory. Built when it is needed:
    /// the paths of all directories of a deep tree would take the square of its depth.
    pub(super) fn source_path(&self, name: &EntryName) -> PathBuf {
        let above = std::iter::successors(Some(self), |directory| directory.parent.as_deref());
        let mut names: Vec<&OsStr> = above.map(|directory| directory.from.as_os_str()).collect();
        names.reverse();
        names.push(&name.from);
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// The way to an entry from the start of the target.
    pub(super) fn target_way(&self, name: &EntryName) -> Arc<EntryPath> {
        if name.to.is_empty() { self.way.clone() } else { self.way.to(&name.to) }
    }

    /// Where an entry is below the start of the target.
    pub(super) fn target_path(&self, name: &EntryName) -> PathBuf {
        self.target_way(name).path()
    }
}

impl<S: CopySource, T: CopyTarget> Drop for CopiedDirectory<S, T> {
    /// One after the other: a deep tree's parents, each dropped by its last child, would take the
    /// whole stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}

/// A name in a directory and the name that it gets.
#[derive(Default)]
pub(super) struct EntryName {
    pub(super) from: OsString,
    pub(super) to: OsString,
}
