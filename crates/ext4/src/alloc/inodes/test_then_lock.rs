//! Claims an inode that was found without the lock, and looks for another without it when that one
//! is gone.
//!
//! # Locking
//! The group's lock is held to set one bit, and again to write the descriptor. Between a lost race
//! and the next try it is not held, so that others find the same bit meanwhile: under contention the
//! takes for one inode grow with the number of those who try.

use super::Allocator;
use crate::alloc::group::{Group, GroupState};
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;

impl Allocator {
    pub(super) fn claim_testing(
        &self,
        handle: &mut Handle<'_>,
        group: &Group,
        start: u32,
        directory: bool,
    ) -> Result<Option<InodeNumber>> {
        let Some(buffer) = self.ready_bitmap(handle, group)? else { return Ok(None) };
        let mut start = start;
        loop {
            let range = self.inode_bits(group);
            let found = Self::free_inode_bit(group, &buffer.read(), &range, start);
            let Some(bit) = found else { return Ok(None) };
            handle.access(&buffer, None)?;
            self.counts.note(Count::InodeWriteAccess);
            {
                let state = group.state.lock();
                self.counts.note(Count::InodeLockTake);
                if !matches!(*state, GroupState::Loaded(_)) {
                    return Ok(None);
                }
                let mut bytes = handle.write(&buffer, None)?;
                let is_lost = group.is_withheld(bit) || bitmap::set(&mut bytes, bit as usize);
                if is_lost {
                    self.counts.note(Count::InodeRaceLost);
                    start = bit + 1;
                    continue;
                }
            }
            let mut state = group.state.lock();
            self.counts.note(Count::InodeLockTake);
            let loaded = state.load(&self.volume, group.number)?;
            self.record_inode(handle, group, loaded, bit, directory)?;
            return Ok(Some(self.inode_at(group, bit)));
        }
    }
}
