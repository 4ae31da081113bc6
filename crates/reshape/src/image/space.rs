//! Block and inode bitmaps while an image is changed.
//!
//! # State
//! Bitmaps are loaded when they are first needed, and all that were loaded are written at the end. What a
//! group has free is counted then.

use crate::error::{Refusal, Result};
use crate::image::Image;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::borrow::Cow;
use std::ops::Range;

/// The bitmap of a group in which only superblock and descriptors are in use.
pub(crate) fn base_bitmap(layout: &Layout, group: GroupNumber) -> Vec<u8> {
    let mut bits = vec![0; layout.block_size()];
    let used = layout.clusters_for(u64::from(layout.group_base(group).blocks));
    bitmap::set_range(&mut bits, 0..used as usize);
    let count = layout.group_cluster_count(group) as usize;
    let whole = bits.len() * 8;
    bitmap::set_range(&mut bits, count..whole);
    bits
}

/// Runs of set bits.
pub(crate) fn used_runs(bits: &[u8], range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut from = range.start;
    std::iter::from_fn(move || {
        let start = bitmap::find_one(bits, from..range.end)?;
        let end = bitmap::find_zero(bits, start..range.end).unwrap_or(range.end);
        from = end;
        Some(start..end)
    })
}

impl Image<'_> {
    /// Whether groups may be marked as not initialised.
    pub fn has_group_checksums(&self) -> bool {
        self.layout
            .features()
            .read_only_compat
            .intersects(ReadOnlyCompat::METADATA_CSUM | ReadOnlyCompat::GDT_CSUM)
    }

    /// The places of a group's bitmaps and inode table.
    pub fn group_metadata(&self, group: GroupNumber) -> [Range<u64>; 3] {
        let descriptor = &self.groups[group.index()];
        let run = |start: PhysicalBlock, length| start.get()..start.get() + u64::from(length);
        [
            run(descriptor.block_bitmap, 1),
            run(descriptor.inode_bitmap, 1),
            run(descriptor.inode_table, self.layout.inode_table_blocks()),
        ]
    }

    /// The block bitmap of a group as it is now, for a look.
    pub fn current_block_bitmap(&self, group: GroupNumber) -> Result<Cow<'_, [u8]>> {
        if let Some(bits) = self.block_bitmaps.get(&group.get()) {
            return Ok(Cow::Borrowed(bits));
        }
        let descriptor = &self.groups[group.index()];
        let is_unwritten =
            self.has_group_checksums() && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
        Ok(Cow::Owned(match is_unwritten {
            true => self.uninitialised_bitmap(group),
            false => self.read_block(descriptor.block_bitmap)?,
        }))
    }

    /// Loads the block bitmap of a group, to be changed.
    pub fn block_bitmap(&mut self, group: GroupNumber) -> Result<&mut Vec<u8>> {
        if !self.block_bitmaps.contains_key(&group.get()) {
            let bits = self.current_block_bitmap(group)?.into_owned();
            self.block_bitmaps.insert(group.get(), bits);
        }
        // It was inserted above.
        Ok(self.block_bitmaps.entry(group.get()).or_default())
    }

    /// Fixed metadata are in use in a group whose bitmap isn't initialised.
    fn uninitialised_bitmap(&self, group: GroupNumber) -> Vec<u8> {
        let mut bits = base_bitmap(&self.layout, group);
        let first = self.layout.group_first_block(group).get();
        let end = first + u64::from(self.layout.group_block_count(group));
        // Metadata lie in the flexible group, but may be anywhere. What was put here since was put into a
        // bitmap that is loaded.
        let length_max = u64::from(self.layout.inode_table_blocks()).max(1);
        let from = self.stored_metadata.partition_point(|run| run.start + length_max <= first);
        for run in self.stored_metadata[from..].iter().take_while(|run| run.start < end) {
            let (from, to) = (run.start.max(first), run.end.min(end));
            if from < to {
                let ratio = self.layout.log_cluster_ratio();
                let bit = |block: u64| ((block - first) >> ratio) as usize;
                bitmap::set_range(&mut bits, bit(from)..bit(to - 1) + 1);
            }
        }
        bits
    }

    /// Loads the inode bitmap of a group.
    pub fn inode_bitmap(&mut self, group: GroupNumber) -> Result<&mut Vec<u8>> {
        if !self.inode_bitmaps.contains_key(&group.get()) {
            let descriptor = &self.groups[group.index()];
            let bits = match self.is_without_inodes(group) {
                true => self.empty_inode_bitmap(),
                false => self.read_block(descriptor.inode_bitmap)?,
            };
            self.inode_bitmaps.insert(group.get(), bits);
        }
        // It was inserted above.
        Ok(self.inode_bitmaps.entry(group.get()).or_default())
    }

    /// Whether no inode of a group has ever been in use.
    pub fn is_without_inodes(&self, group: GroupNumber) -> bool {
        self.has_group_checksums()
            && self.groups[group.index()].flags.contains(GroupFlags::INODE_UNINIT)
    }

    /// The inodes of a group that are in use, as the bitmap is now.
    pub fn used_inodes(&self, group: GroupNumber) -> Result<Vec<InodeNumber>> {
        if self.is_without_inodes(group) {
            return Ok(Vec::new());
        }
        let stored;
        let bits = match self.inode_bitmaps.get(&group.get()) {
            Some(bits) => bits,
            None => {
                stored = self.read_block(self.groups[group.index()].inode_bitmap)?;
                &stored
            }
        };
        let count = self.layout.inodes_per_group() as usize;
        let used = used_runs(bits, 0..count).flatten();
        Ok(used.filter_map(|bit| self.layout.inode_of_bit(group, bit as u32)).collect())
    }

    /// Takes the lowest free inode of a group, if it has one.
    pub fn take_inode(&mut self, group: GroupNumber) -> Result<Option<InodeNumber>> {
        if self.groups[group.index()].free_inodes_count == 0 {
            return Ok(None);
        }
        let layout = self.layout;
        let bits = self.inode_bitmap(group)?;
        let Some(bit) = bitmap::find_zero(bits, 0..layout.inodes_per_group() as usize) else {
            return Ok(None);
        };
        bitmap::set(bits, bit);
        // A bit below the inodes of a group, which fit.
        self.extend_used_table(group, bit as u32)?;
        Ok(layout.inode_of_bit(group, bit as u32))
    }

    /// Makes an inode's place in the table part of what is read of the table.
    fn extend_used_table(&mut self, group: GroupNumber, bit: u32) -> Result<()> {
        let per_group = self.layout.inodes_per_group();
        let descriptor = &self.groups[group.index()];
        let used = per_group - descriptor.unused_inodes_count;
        if bit < used {
            return Ok(());
        }
        if !descriptor.flags.contains(GroupFlags::INODE_ZEROED) {
            let size = self.layout.inode_size() as u64;
            let start = self.offset_of(descriptor.inode_table) + u64::from(used) * size;
            self.device.zero_range(start, u64::from(per_group - used) * size)?;
        }
        let descriptor = &mut self.groups[group.index()];
        descriptor.flags |= GroupFlags::INODE_ZEROED;
        descriptor.unused_inodes_count = per_group - bit - 1;
        Ok(())
    }

    pub fn empty_inode_bitmap(&self) -> Vec<u8> {
        let mut bits = vec![0; self.layout.block_size()];
        let whole = bits.len() * 8;
        bitmap::set_range(&mut bits, self.layout.inodes_per_group() as usize..whole);
        bits
    }

    /// Marks blocks, whole clusters, as in use or free.
    pub fn mark(&mut self, blocks: Range<u64>, is_used: bool) -> Result<()> {
        let mut start = blocks.start;
        while start < blocks.end {
            // A caller's blocks are in the image.
            let Some((group, bit)) = self.layout.bit_of_block(PhysicalBlock::new(start)) else {
                break;
            };
            let first = self.layout.group_first_block(group).get();
            let next = first + u64::from(self.layout.blocks_per_group());
            let end = blocks.end.min(next);
            let last = ((end - 1 - first) >> self.layout.log_cluster_ratio()) as usize;
            let bits = self.block_bitmap(group)?;
            let range = bit as usize..last + 1;
            if is_used {
                bitmap::set_range(bits, range);
            } else {
                bitmap::clear_range(bits, range);
            }
            start = end;
        }
        Ok(())
    }

    /// Takes `count` blocks in one piece from one of these groups.
    pub fn take_contiguous(
        &mut self,
        groups: impl Iterator<Item = u32>,
        count: u32,
        what: &'static str,
    ) -> Result<PhysicalBlock> {
        let clusters = self.layout.clusters_for(u64::from(count)) as usize;
        for group in groups.map(GroupNumber::new) {
            let end = self.layout.group_cluster_count(group) as usize;
            let bits = self.block_bitmap(group)?;
            if let Some(first) = bitmap::find_zero_run(bits, 0..end, clusters) {
                bitmap::set_range(bits, first..first + clusters);
                return Ok(self.layout.block_of_bit(group, first as u32));
            }
        }
        Err(Refusal::NoSpace { what }.into())
    }

    /// Writes the bitmaps that were loaded, and counts in their groups.
    pub(crate) fn store_bitmaps(&mut self) -> Result<()> {
        for (number, bits) in std::mem::take(&mut self.block_bitmaps) {
            let group = GroupNumber::new(number);
            let count = self.layout.group_cluster_count(group) as usize;
            let descriptor = &mut self.groups[group.index()];
            // At most as many as the group has, which fit.
            descriptor.free_clusters_count = bitmap::count_zeros(&bits, 0..count) as u32;
            descriptor.flags -= GroupFlags::BLOCK_UNINIT;
            descriptor.block_bitmap_checksum = block_bitmap_checksum(&bits, &self.layout);
            let block = descriptor.block_bitmap;
            self.write_block(block, &bits)?;
        }
        for (number, bits) in std::mem::take(&mut self.inode_bitmaps) {
            let count = self.layout.inodes_per_group() as usize;
            let descriptor = &mut self.groups[number as usize];
            descriptor.free_inodes_count = bitmap::count_zeros(&bits, 0..count) as u32;
            descriptor.flags -= GroupFlags::INODE_UNINIT;
            descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bits, &self.layout);
            let block = descriptor.inode_bitmap;
            self.write_block(block, &bits)?;
        }
        Ok(())
    }
}
