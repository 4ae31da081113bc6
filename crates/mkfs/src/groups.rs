//! Block groups: where their metadata lies, what they count, their bitmaps and descriptors.

use crate::error::Result;
use crate::map::BlocksToWrite;
use crate::space::{BlockRun, Space};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_ondisk::bitmap;
use std::collections::BTreeMap;

/// Finds places for bitmaps and inode tables: those of a flexible group together.
pub(crate) fn place_groups(layout: &Layout, space: &mut Space) -> Result<Vec<GroupDescriptor>> {
    let mut groups = vec![GroupDescriptor::default(); layout.group_count() as usize];
    let flexible = layout.features().incompat.contains(Incompat::FLEX_BG);
    let size = if flexible { layout.groups_per_flex().max(1) } else { 1 };
    for (index, members) in groups.chunks_mut(size as usize).enumerate() {
        let first = GroupNumber::new(index as u32 * size);
        let tables = layout.inode_table_blocks();
        for group in members.iter_mut() {
            group.block_bitmap = space.take_contiguous(first, 1, "block bitmaps")?;
        }
        for group in members.iter_mut() {
            group.inode_bitmap = space.take_contiguous(first, 1, "inode bitmaps")?;
        }
        for group in members.iter_mut() {
            group.inode_table = space.take_contiguous(first, tables, "inode tables")?;
        }
    }
    Ok(groups)
}

/// Zeroes what isn't written whole: the inode tables, and the journal, in which recovery would take
/// what an image before this one has logged for its own.
pub(crate) fn zero_tables_and_journal(
    device: &dyn BlockDevice,
    layout: &Layout,
    groups: &[GroupDescriptor],
    journal: &[BlockRun],
) -> Result<()> {
    let block_size = layout.block_size() as u64;
    for run in journal {
        device.zero_range(run.start * block_size, u64::from(run.length) * block_size)?;
    }
    let length = u64::from(layout.inode_table_blocks()) * block_size;
    for group in groups {
        device.zero_range(group.inode_table.get() * block_size, length)?;
    }
    Ok(())
}

/// Which inodes are in use.
pub(crate) struct UsedInodes {
    /// The first that isn't: all before it are.
    pub next: u32,
    /// Directories of each group.
    pub directories: Vec<u32>,
}

impl UsedInodes {
    /// The inodes that every image has; `next` is the first free one.
    pub fn new(layout: &Layout, inodes: &BTreeMap<u32, Inode>, next: u32) -> UsedInodes {
        let mut used = UsedInodes { next, directories: vec![0; layout.group_count() as usize] };
        for inode in inodes.values().filter(|inode| inode.is_directory()) {
            used.add_directory(layout, inode.number);
        }
        used
    }

    pub fn add_directory(&mut self, layout: &Layout, number: InodeNumber) {
        let group = (number.get() - 1) / layout.inodes_per_group();
        self.directories[group as usize] += 1;
    }

    /// How many of a group are in use: its first ones.
    fn in_group(&self, layout: &Layout, group: GroupNumber) -> u32 {
        let per_group = u64::from(layout.inodes_per_group());
        let before = u64::from(group.get()) * per_group;
        // Bounded by a group's inodes, which fit.
        u64::from(self.next - 1).saturating_sub(before).min(per_group) as u32
    }
}

/// Counts what is free and what is not initialised.
pub(crate) fn fill_groups(
    layout: &Layout,
    groups: &mut [GroupDescriptor],
    space: &Space,
    used: &UsedInodes,
) {
    let uninitialised = layout
        .features()
        .read_only_compat
        .intersects(ReadOnlyCompat::METADATA_CSUM | ReadOnlyCompat::GDT_CSUM);
    for (index, group) in groups.iter_mut().enumerate() {
        let number = GroupNumber::new(index as u32);
        let inodes = used.in_group(layout, number);
        group.free_clusters_count = space.free_clusters(number);
        group.free_inodes_count = layout.inodes_per_group() - inodes;
        group.used_directories_count = used.directories[index];
        if uninitialised {
            group.flags |= GroupFlags::INODE_ZEROED;
            group.unused_inodes_count = layout.inodes_per_group() - inodes;
            if inodes == 0 {
                group.flags |= GroupFlags::INODE_UNINIT;
            }
            // The last group may be shorter, which its bitmap has to say.
            if space.group(number).is_none() && number != layout.last_group() {
                group.flags |= GroupFlags::BLOCK_UNINIT;
            }
        }
    }
}

/// Makes the bitmaps of all groups that are initialised.
pub(crate) fn write_bitmaps(
    layout: &Layout,
    groups: &mut [GroupDescriptor],
    space: &Space,
    used: &UsedInodes,
    blocks: &mut BlocksToWrite,
) {
    for (index, group) in groups.iter_mut().enumerate() {
        let number = GroupNumber::new(index as u32);
        if !group.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bits = match space.group(number) {
                Some(bits) => bits.to_vec(),
                None => space.fixed(number),
            };
            group.block_bitmap_checksum = block_bitmap_checksum(&bits, layout);
            blocks.insert(group.block_bitmap.get(), bits);
        }
        if !group.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bits = vec![0; layout.block_size()];
            bitmap::set_range(&mut bits, 0..used.in_group(layout, number) as usize);
            let whole = bits.len() * 8;
            bitmap::set_range(&mut bits, layout.inodes_per_group() as usize..whole);
            group.inode_bitmap_checksum = inode_bitmap_checksum(&bits, layout);
            blocks.insert(group.inode_bitmap.get(), bits);
        }
    }
}

/// Makes the descriptor blocks and their copies.
pub(crate) fn write_descriptors(
    layout: &Layout,
    groups: &[GroupDescriptor],
    blocks: &mut BlocksToWrite,
) {
    let per_block = layout.descriptors_per_block() as usize;
    for (index, members) in groups.chunks(per_block).enumerate() {
        let mut bytes = vec![0; layout.block_size()];
        for (position, group) in members.iter().enumerate() {
            let number = GroupNumber::new((index * per_block + position) as u32);
            let at = position * layout.descriptor_size();
            group.encode_into(&mut bytes[at..at + layout.descriptor_size()], number, layout);
        }
        for backup in layout.descriptor_backups(index as u32) {
            blocks.insert(backup.get(), bytes.clone());
        }
        if let Some(block) = layout.descriptor_block(index as u32) {
            blocks.insert(block.get(), bytes);
        }
    }
}
