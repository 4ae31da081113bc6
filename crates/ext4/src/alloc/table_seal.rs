//! Checksums of inodes: computed once, when a commit freezes their block of the inode table, however
//! often they have changed.
//!
//! # State
//! Whoever changes an inode's record notes the part of the block that it is in. A record that was noted
//! and not sealed yet has the checksum of an earlier state, which only those get to see who look at the
//! buffer: what is frozen for the log, and so all that is ever written, has been sealed.

use drystone_cache::{PARTS, Seal};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};

/// Seals blocks of the inode tables.
pub(super) struct TableSeal {
    layout: Layout,
    /// Where each table starts, and whose it is, in the order of blocks.
    tables: Box<[(PhysicalBlock, GroupNumber)]>,
}

impl TableSeal {
    /// For these tables, in any order.
    pub fn new(
        layout: Layout,
        tables: impl Iterator<Item = (PhysicalBlock, GroupNumber)>,
    ) -> TableSeal {
        let mut tables: Box<[_]> = tables.collect();
        tables.sort_unstable_by_key(|(start, _)| *start);
        TableSeal { layout, tables }
    }
}

impl Seal for TableSeal {
    fn seal(&self, block: u64, bytes: &mut [u8], mut parts: u64) {
        let behind = self.tables.partition_point(|(start, _)| start.get() <= block);
        let table = behind.checked_sub(1).and_then(|index| self.tables.get(index));
        let Some(&(start, group)) = table else { return };
        // A table has fewer than 2^32 blocks.
        let first = (block - start.get()) as u32 * self.layout.inodes_per_block();
        let size = self.layout.inode_size();
        while parts != 0 {
            let offset = offset_of_part(&self.layout, parts.trailing_zeros());
            parts &= parts - 1;
            let bit = first + (offset / size) as u32;
            if let Some(inode) = self.layout.inode_of_bit(group, bit)
                && let Some(record) = bytes.get_mut(offset..offset + size)
            {
                Inode::seal(record, inode, &self.layout);
            }
        }
    }
}

/// The part of its block that an inode's record at `offset` is noted by; nothing if a part would have
/// room for several records, or if there are no checksums.
pub(crate) fn part_of_record(layout: &Layout, offset: usize) -> Option<u32> {
    let part_bytes = layout.block_size() / PARTS as usize;
    let is_apart = layout.checksum_seed().is_some() && layout.inode_size() >= part_bytes;
    // The offset is in the block.
    is_apart.then(|| (offset / part_bytes) as u32)
}

fn offset_of_part(layout: &Layout, part: u32) -> usize {
    part as usize * (layout.block_size() / PARTS as usize)
}
