//! Claims an inode that was found without the lock, and looks for another without it when that one
//! is gone (`inode-claim=test-then-lock`).
//!
//! # Locking
//! The group's lock is held to set one bit, and taken again by the caller to write the descriptor.
//! Between a lost race and the next try it is not held, so that other threads find the same bit
//! meanwhile: under contention the takes for one inode grow with the number of threads that try.

use super::Allocator;
use super::claim::free_bit;
use crate::alloc::group::{BlockGroup, BlockGroupState};
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_cache::Buffer;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use std::ops::Range;

impl Allocator {
    /// Sets the first bit among `bits` that is free, and returns it.
    pub(super) fn claim_testing(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        buffer: &Arc<Buffer>,
        bits: &Range<u32>,
    ) -> Result<Option<u32>> {
        let mut start = bits.start;
        loop {
            let range = self.inode_bits(group, &(start..bits.end));
            let found = free_bit(group, &buffer.read(), range);
            let Some(bit) = found else { return Ok(None) };
            handle.access(buffer, None)?;
            self.counts.note(Count::InodeWriteAccess);
            let state = group.state.lock();
            self.counts.note(Count::InodeLockTake);
            if !matches!(*state, BlockGroupState::Loaded(_)) {
                return Ok(None);
            }
            let mut bytes = handle.write(buffer, None)?;
            if !group.is_withheld(bit) && !bitmap::set(&mut bytes, bit as usize) {
                return Ok(Some(bit));
            }
            self.counts.note(Count::InodeRaceLost);
            start = bit + 1;
        }
    }
}
