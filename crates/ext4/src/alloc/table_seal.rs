//! Checksums of inodes, computed once per transaction, when a commit freezes their block of the
//! inode table.
//!
//! # State
//! A thread that changes an inode's record notes the part of the block that holds it. Until the
//! block is sealed, the record has the checksum of an earlier state. Only readers of the buffer can
//! see that: blocks are sealed when they are frozen for the log, and so before they are written.

use crate::lock_classes;
use drystone_cache::{PARTS, Seal};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_sync::PublishedValue;

/// Seals blocks of the inode tables.
#[derive(Debug)]
pub(super) struct TableSeal(PublishedValue<InodeTables>);

/// Where the inode tables are.
#[derive(Debug)]
struct InodeTables {
    layout: Layout,
    /// The start of each table and its group, in the order of blocks.
    tables: Box<[(PhysicalBlock, GroupNumber)]>,
}

impl TableSeal {
    /// The seal for `tables`, which may come in any order.
    pub fn new(
        layout: Layout,
        tables: impl Iterator<Item = (PhysicalBlock, GroupNumber)>,
    ) -> TableSeal {
        TableSeal(PublishedValue::new(&lock_classes::PUBLISHED, InodeTables::new(layout, tables)))
    }

    /// Takes over the tables of an image that has grown.
    pub fn grow(&self, layout: Layout, tables: impl Iterator<Item = (PhysicalBlock, GroupNumber)>) {
        self.0.replace(InodeTables::new(layout, tables));
    }
}

impl InodeTables {
    fn new(
        layout: Layout,
        tables: impl Iterator<Item = (PhysicalBlock, GroupNumber)>,
    ) -> InodeTables {
        let mut tables: Box<[_]> = tables.collect();
        tables.sort_unstable_by_key(|(start, _)| *start);
        InodeTables { layout, tables }
    }
}

impl Seal for TableSeal {
    fn seal(&self, block: u64, bytes: &mut [u8], mut parts: u64) {
        let InodeTables { layout, tables } = self.0.get();
        let behind = tables.partition_point(|(start, _)| start.get() <= block);
        let table = behind.checked_sub(1).and_then(|index| tables.get(index));
        let Some(&(start, group)) = table else { return };
        // A table has fewer than 2^32 blocks.
        let first = (block - start.get()) as u32 * layout.inodes_per_block();
        let size = layout.inode_size();
        while parts != 0 {
            let offset = offset_of_part(layout, parts.trailing_zeros());
            parts &= parts - 1;
            let bit = first + (offset / size) as u32;
            if let Some(inode) = layout.inode_of_bit(group, bit)
                && let Some(record) = bytes.get_mut(offset..offset + size)
            {
                Inode::seal(record, inode, layout);
            }
        }
    }
}

/// The part of its block by which an inode's record at `offset` is noted. `None` if a part could
/// hold several records, or if the image has no checksums.
pub(crate) fn part_of_record(layout: &Layout, offset: usize) -> Option<u32> {
    let part_bytes = layout.block_size() / PARTS as usize;
    let is_apart = layout.checksum_seed().is_some() && layout.inode_size() >= part_bytes;
    // The offset is in the block.
    is_apart.then(|| (offset / part_bytes) as u32)
}

fn offset_of_part(layout: &Layout, part: u32) -> usize {
    part as usize * (layout.block_size() / PARTS as usize)
}
