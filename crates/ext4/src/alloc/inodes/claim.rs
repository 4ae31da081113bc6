//! Claims an inode: a given one, or the first free one in a range of a group. For the latter there
//! are two variants.

use super::InodeAllocator;
use super::in_group::free_bit;
use crate::alloc::group::{BlockGroup, BlockGroupState};
use crate::alloc::statistics::Count;
use crate::error::Result;
use drystone_cache::Buffer;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

impl InodeAllocator {
    /// Takes a given inode. If it is in use, or its group is damaged, changes nothing and returns
    /// false.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub fn claim_named(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> Result<bool> {
        let (number, bit) = self.groups.volume.layout().bit_of_inode(inode)?;
        let group = &self.groups.at(number);
        let Some(buffer) = self.groups.ready_bitmap(handle, group)? else { return Ok(false) };
        let mut state = group.state.lock();
        let loaded = state.load(&self.groups.volume, number)?;
        if group.is_withheld(bit) || bitmap::set(&mut handle.write(&buffer, None)?, bit as usize) {
            return Ok(false);
        }
        // Table blocks come into use in order, so those before it are zeroed too.
        let ready = group.table_ready.load(Ordering::Relaxed);
        self.groups.zero_table_blocks(handle, group, ready.min(bit)..bit + 1)?;
        self.groups.record_inode(handle, group, loaded, bit, directory)?;
        Ok(true)
    }

    /// Sets the first free bit among `bits`, and returns it (`inode-claim=relock`). A bit is found
    /// without the lock; if another thread takes it first, the next one is searched for with the
    /// lock held.
    ///
    /// The group's lock is taken once to set a bit, even after a lost race, and once more by the
    /// caller to write the descriptor.
    pub(super) fn claim_relocking(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        buffer: &Arc<Buffer>,
        bits: &Range<u32>,
    ) -> Result<Option<u32>> {
        let found = free_bit(group, &buffer.read(), self.groups.inode_bits(group, bits));
        let Some(found) = found else { return Ok(None) };
        handle.access(buffer, None)?;
        self.groups.counts.note(Count::InodeWriteAccess);
        let state = group.state.lock();
        self.groups.counts.note(Count::InodeLockTake);
        if !matches!(*state, BlockGroupState::Loaded(_)) {
            return Ok(None);
        }
        let mut bytes = handle.write(buffer, None)?;
        let is_lost = group.is_withheld(found) || bitmap::test(&bytes, found as usize);
        let is_lost = is_lost && !drystone_sync::planted!("inode-claimed-twice");
        let bit = if is_lost {
            self.groups.counts.note(Count::InodeRaceLost);
            free_bit(group, &bytes, self.groups.inode_bits(group, &(found + 1..bits.end)))
        } else {
            Some(found)
        };
        if let Some(bit) = bit {
            bitmap::set(&mut bytes, bit as usize);
        }
        Ok(bit)
    }

    /// Sets the first free bit among `bits`, and returns it (`inode-claim=test-then-lock`). A bit
    /// is found without the lock; if another thread takes it first, the next one is searched for
    /// without the lock again.
    ///
    /// The group's lock is held to set one bit, and taken again by the caller to write the
    /// descriptor. It is not held between a lost race and the next try, so other threads find the
    /// same bit meanwhile: under contention the number of times that the lock is taken for one
    /// inode grows with the number of threads.
    pub(super) fn claim_testing(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        buffer: &Arc<Buffer>,
        bits: &Range<u32>,
    ) -> Result<Option<u32>> {
        let mut start = bits.start;
        loop {
            let range = self.groups.inode_bits(group, &(start..bits.end));
            let found = free_bit(group, &buffer.read(), range);
            let Some(bit) = found else { return Ok(None) };
            handle.access(buffer, None)?;
            self.groups.counts.note(Count::InodeWriteAccess);
            let state = group.state.lock();
            self.groups.counts.note(Count::InodeLockTake);
            if !matches!(*state, BlockGroupState::Loaded(_)) {
                return Ok(None);
            }
            let mut bytes = handle.write(buffer, None)?;
            if !group.is_withheld(bit) && !bitmap::set(&mut bytes, bit as usize) {
                return Ok(Some(bit));
            }
            self.groups.counts.note(Count::InodeRaceLost);
            start = bit + 1;
        }
    }
}
