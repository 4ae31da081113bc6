//! Claims an inode that was found without the lock, and looks for another with it when that one is
//! gone (`inode-claim=relock`).
//!
//! # Locking
//! The group's lock is taken once to set the bit, whether it was lost or not, and once more by the
//! caller to write the descriptor.

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
    pub(super) fn claim_relocking(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        buffer: &Arc<Buffer>,
        bits: &Range<u32>,
    ) -> Result<Option<u32>> {
        let found = free_bit(group, &buffer.read(), self.inode_bits(group, bits));
        let Some(found) = found else { return Ok(None) };
        handle.access(buffer, None)?;
        self.counts.note(Count::InodeWriteAccess);
        let state = group.state.lock();
        self.counts.note(Count::InodeLockTake);
        if !matches!(*state, BlockGroupState::Loaded(_)) {
            return Ok(None);
        }
        let mut bytes = handle.write(buffer, None)?;
        let is_lost = group.is_withheld(found) || bitmap::test(&bytes, found as usize);
        let bit = if is_lost {
            self.counts.note(Count::InodeRaceLost);
            free_bit(group, &bytes, self.inode_bits(group, &(found + 1..bits.end)))
        } else {
            Some(found)
        };
        if let Some(bit) = bit {
            bitmap::set(&mut bytes, bit as usize);
        }
        Ok(bit)
    }
}
