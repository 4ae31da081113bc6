//! Searches for the inode of a file from the first group on.
//!
//! # Locking
//! The lock of every group up to the one with a free inode is taken to read its count; then the
//! bitmap is searched from its start. What a creation costs grows with the inodes that there are.

use super::{Allocator, InodeRequest};
use crate::alloc::group::{BlockGroup, BlockGroupState};
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::atomic::Ordering;

impl Allocator {
    pub(super) fn search_from_first(
        &self,
        handle: &mut Handle<'_>,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        for group in &self.groups {
            if self.locked_free_inodes(group) == 0 {
                continue;
            }
            let bits = 0..self.volume.layout.inodes_per_group();
            if let Some(inode) = self.claim_inode(handle, group, bits, request.directory)? {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    fn locked_free_inodes(&self, group: &BlockGroup) -> u32 {
        let state = group.state.lock();
        self.counts.note(Count::InodeLockTake);
        match &*state {
            BlockGroupState::Loaded(loaded) => loaded.descriptor.free_inodes_count,
            BlockGroupState::Unloaded => group.free_inodes.load(Ordering::Relaxed),
            BlockGroupState::Damaged(..) => 0,
        }
    }
}
