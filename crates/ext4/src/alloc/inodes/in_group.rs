//! The inodes of one group: which may be given out, and how one is put into use.

use crate::alloc::group::{BlockGroup, BlockGroupState, LoadedGroup};
use crate::alloc::groups::BlockGroups;
use crate::alloc::statistics::Count;
use crate::error::{Error, Result};
use drystone_cache::Buffer;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_ondisk::bitmap;
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use std::ops::Range;

impl BlockGroups {
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
        // In an image that Linux has written, a group with inodes in use has a block bitmap, and
        // e2fsck relies on that.
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

    /// The part of `bits` that may be given out. Of the inodes that were never used it contains at
    /// most those of one table block, so that table blocks come into use in order.
    pub(super) fn inode_bits(&self, group: &BlockGroup, bits: &Range<u32>) -> Range<u32> {
        let layout = self.volume.layout();
        let inodes = layout.inodes_per_group();
        let reserved = layout.first_inode().get() - 1;
        let first = reserved.saturating_sub(group.number.get().saturating_mul(inodes)).min(inodes);
        let ready = group.table_ready.load(Ordering::Relaxed);
        let end = (ready + 1).max(first + 1).next_multiple_of(layout.inodes_per_block());
        let (first, end) = (first.max(bits.start), end.min(inodes).min(bits.end));
        first..end.max(first)
    }

    /// Counts an inode as used in the descriptor; the caller has set its bit. The group is locked.
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

    /// Zeroes the table blocks of those inodes in `bits` that were never in use. The group is
    /// locked.
    pub(super) fn zero_table_blocks(
        &self,
        handle: &mut Handle<'_>,
        group: &BlockGroup,
        bits: Range<u32>,
    ) -> Result<()> {
        let ready = group.table_ready.load(Ordering::Relaxed);
        let per_block = self.volume.layout().inodes_per_block();
        if bits.end <= ready {
            return Ok(());
        }
        let first = (bits.start / per_block).max(ready.div_ceil(per_block));
        for index in first..bits.end.div_ceil(per_block) {
            let block = group.inode_table.get() + u64::from(index);
            // Even if the group's flag says that its table was zeroed: the flag may be wrong, and a
            // later reader of the table would take the garbage for inodes.
            let buffer = self.volume.zeroed(PhysicalBlock::new(block))?;
            drop(handle.create(&buffer, None)?);
        }
        group.table_ready.store(bits.end, Ordering::Relaxed);
        Ok(())
    }

    /// The number of the inode at a bit of the group.
    pub(super) fn inode_at(&self, group: &BlockGroup, bit: u32) -> InodeNumber {
        match self.volume.layout().inode_of_bit(group.number, bit) {
            Some(inode) => inode,
            None => unreachable!("group {} has no inode {bit}", group.number),
        }
    }

    /// Lets searches find a withheld inode again. The group is locked.
    pub(super) fn stop_withholding(&self, group: &BlockGroup, state: &BlockGroupState, bit: u32) {
        if !group.withheld().clear(bit) {
            return;
        }
        match state {
            BlockGroupState::Damaged(..) => self.free_inodes.add(-1),
            BlockGroupState::Loaded(_) | BlockGroupState::Unloaded => {
                group.free_inodes.fetch_add(1, Ordering::Relaxed);
            }
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
