//! Walks along leaves that may be split meanwhile.

use super::super::block::Directory;
use super::path::HtreePath;
use crate::directory_index_lock::IndexReadLock;
use crate::error::Result;
use drystone_ext4_format::LogicalBlock;

/// A path that is valid as long as no leaf is split, and is made anew then. The index is locked to use it.
pub(super) struct HtreeWalk {
    pub path: HtreePath,
    /// The leaf to visit.
    pub leaf: LogicalBlock,
    hash: u32,
    /// The leaf isn't the first any more: the index keeps its entry.
    is_behind_first: bool,
    /// Splits that the path knows of.
    splits: u64,
}

impl HtreeWalk {
    /// The walk from the leaf where names of a hash start.
    pub fn to(
        directory: &Directory<'_>,
        index: &IndexReadLock<'_>,
        hash: u32,
    ) -> Result<HtreeWalk> {
        let path = HtreePath::to(directory, hash)?;
        let leaf = path.leaf(directory)?;
        Ok(HtreeWalk { path, leaf, hash, is_behind_first: false, splits: index.splits() })
    }

    /// Makes the path lead to the leaf, which was locked since. False if it is no longer where names of the hash
    /// start; the walk goes on from the leaf that is.
    pub fn find_again(
        &mut self,
        directory: &Directory<'_>,
        index: &IndexReadLock<'_>,
    ) -> Result<bool> {
        if index.splits() == self.splits {
            return Ok(true);
        }
        let HtreeWalk { leaf, hash, is_behind_first, .. } = *self;
        *self = HtreeWalk { is_behind_first, ..HtreeWalk::to(directory, index, hash)? };
        while self.leaf != leaf {
            if !is_behind_first || self.path.next(directory)?.is_none() {
                return Ok(false);
            }
            self.leaf = self.path.leaf(directory)?;
        }
        Ok(true)
    }

    /// Goes on to the next leaf, if there is one.
    pub fn go_on(&mut self, directory: &Directory<'_>) -> Result<()> {
        if self.path.next(directory)?.is_some() {
            self.leaf = self.path.leaf(directory)?;
            self.is_behind_first = true;
        }
        Ok(())
    }
}
