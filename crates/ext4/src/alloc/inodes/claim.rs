//! Claims an inode in a group: the bitmap, the search for a free bit, the two ways to set it, the record.

use super::Allocator;
use crate::alloc::group::{BlockGroup, BlockGroupState, LoadedGroup};
use crate::alloc::statistics::Count;
use crate::error::{Error, Result};
use drystone_cache::Buffer;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

impl Allocator {
    /// The inode bitmap of a group, initialised and verified; `None` if the group is damaged.
    pub(super) fn ready_bitmap(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
    ) -> Result<Option<Arc<Buffer>>> {
        if group.inodes_ready.load(Ordering::Acquire) {
            let buffer = self.volume.read(group.inode_bitmap)?;
            if buffer.is_verified() {
                return Ok(Some(buffer));
            }
        }
        let mut state = group.state.lock();
        self.counts.note(Count::InodeLockTake);
        let Some(loaded) = self.load_or_take_out(group, &mut state, false)? else {
            return Ok(None);
        };
        let mut change = self.change(group.number, loaded);
        change.initialise_inode_bitmap(handle)?;
        // Linux never leaves a group with inodes in use but no block bitmap, and e2fsck counts
        // on that.
        change.initialise_block_bitmap(handle)?;
        match loaded.inode_bitmap(&self.volume, group.number) {
            Ok(buffer) => {
                group.table_ready.fetch_max(loaded.used_inodes(&self.volume), Ordering::Relaxed);
                group.inodes_ready.store(true, Ordering::Release);
                Ok(Some(buffer))
            }
            Err(Error::Corrupt(corrupt)) => {
                self.take_out(group, &mut state, corrupt);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Those of `bits` of a group that may be given out. Of the inodes that were never used, at most
    /// those of one table block, so that table blocks come into use in order.
    pub(super) fn inode_bits(&self, group: &BlockGroup, bits: &Range<u32>) -> Range<u32> {
        let layout = &self.volume.layout;
        let inodes = layout.inodes_per_group();
        let reserved = layout.first_inode().get() - 1;
        let first = reserved.saturating_sub(group.number.get().saturating_mul(inodes)).min(inodes);
        let ready = group.table_ready.load(Ordering::Relaxed);
        let end = (ready + 1).max(first + 1).next_multiple_of(layout.inodes_per_block());
        let (first, end) = (first.max(bits.start), end.min(inodes).min(bits.end));
        first..end.max(first)
    }

    /// Takes an inode that somebody names, rather than any. False if it is in use, or its group
    /// damaged; nothing has changed then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub fn claim_named(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        directory: bool,
    ) -> Result<bool> {
        let (number, bit) = self.volume.layout.bit_of_inode(inode)?;
        let group = &self.groups[number.index()];
        let Some(buffer) = self.ready_bitmap(handle, group)? else { return Ok(false) };
        let mut state = group.state.lock();
        let loaded = state.load(&self.volume, number)?;
        if group.is_withheld(bit) || bitmap::set(&mut handle.write(&buffer, None)?, bit as usize) {
            return Ok(false);
        }
        // Those before it come into use with it.
        let ready = group.table_ready.load(Ordering::Relaxed);
        self.zero_table_blocks(handle, group, ready.min(bit)..bit + 1)?;
        self.record_inode(handle, group, loaded, bit, directory)?;
        Ok(true)
    }

    /// Records in the descriptor that an inode is in use, whose bit the caller has set. The group is
    /// locked.
    pub(super) fn record_inode(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        loaded: &mut LoadedGroup,
        bit: u32,
        directory: bool,
    ) -> Result<()> {
        self.zero_table_blocks(handle, group, bit..bit + 1)?;
        self.change(group.number, loaded).record_used_inodes(handle, &[bit], directory)?;
        group.next_inode.store(bit + 1, Ordering::Relaxed);
        group.free_inodes.fetch_sub(1, Ordering::Relaxed);
        if directory {
            group.directories.fetch_add(1, Ordering::Relaxed);
            self.directories.add(1);
        }
        self.note_inode();
        Ok(())
    }

    pub(super) fn note_inode(&self) {
        self.free_inodes.add(-1);
        self.counts.note(Count::Inode);
    }

    /// Zeroes the table blocks of inodes that were never in use. The group is locked.
    pub(super) fn zero_table_blocks(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        bits: Range<u32>,
    ) -> Result<()> {
        let ready = group.table_ready.load(Ordering::Relaxed);
        let per_block = self.volume.layout.inodes_per_block();
        if bits.end <= ready {
            return Ok(());
        }
        let first = (bits.start / per_block).max(ready.div_ceil(per_block));
        for index in first..bits.end.div_ceil(per_block) {
            let block = group.inode_table.get() + u64::from(index);
            // Also where the group says that its table was zeroed: it may be wrong, and who looks at
            // the table then would take what is there for inodes.
            let buffer = self.volume.zeroed(PhysicalBlock::new(block))?;
            drop(handle.create(&buffer, None)?);
        }
        group.table_ready.store(bits.end, Ordering::Relaxed);
        Ok(())
    }

    /// The number of the inode at a bit that was found in the group.
    pub(super) fn inode_at(&self, group: &BlockGroup, bit: u32) -> InodeNumber {
        match self.volume.layout.inode_of_bit(group.number, bit) {
            Some(inode) => inode,
            None => unreachable!("group {} has no inode {bit}", group.number),
        }
    }
}

/// The first bit in `range` that is clear and not withheld.
pub(super) fn free_bit(group: &BlockGroup, bytes: &[u8], range: Range<u32>) -> Option<u32> {
    let mut from = range.start;
    while let Some(found) = bitmap::find_zero(bytes, from as usize..range.end as usize) {
        let bit = found as u32;
        if !group.is_withheld(bit) {
            return Some(bit);
        }
        from = bit + 1;
    }
    None
}

impl Allocator {
    /// Sets the first bit among `bits` that is free, and returns it (`inode-claim=relock`). A bit is
    /// found without the lock; if it is gone, another is looked for with it.
    ///
    /// The group's lock is taken once to set the bit, whether it was lost or not, and once more by the
    /// caller to write the descriptor.
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

impl Allocator {
    /// Sets the first bit among `bits` that is free, and returns it (`inode-claim=test-then-lock`). A bit
    /// is found without the lock; if it is gone, another is looked for without it.
    ///
    /// The group's lock is held to set one bit, and taken again by the caller to write the descriptor.
    /// Between a lost race and the next try it is not held, so that other threads find the same bit
    /// meanwhile: under contention the takes for one inode grow with the number of threads that try.
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
