//! Block maps of ext2 and ext3 inodes: direct, indirect, double and triple indirect pointers.
//!
//! An inode holds 15 pointers: 12 to data, and one each to a block of pointers with one, two and
//! three levels. A pointer of 0 is a hole, at any level. Pointers have 32 bits, so mapped files
//! use only blocks below 2^32.
//!
//! # Reference
//! "Direct/Indirect Block Addressing" in the kernel's ext4 data structure pages.

use crate::error::Corrupt;
use crate::ids::{InodeNumber, LogicalBlock, PhysicalBlock};
use crate::inode::BLOCK_AREA_BYTES;
use crate::layout::Layout;

const POINTER_BYTES: usize = 4;
/// Pointers of an inode that lead to data.
pub const DIRECT_POINTERS: u32 = 12;
/// Pointers of an inode.
pub const ROOT_POINTERS: usize = BLOCK_AREA_BYTES / POINTER_BYTES;
/// Most levels of pointer blocks.
pub const LEVELS_MAX: usize = 3;

/// The way from an inode to a block of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPath {
    indexes: [u32; LEVELS_MAX + 1],
    levels: usize,
}

impl MapPath {
    /// The way to a block; nothing if a block map can't hold that block.
    #[must_use]
    pub fn new(logical: LogicalBlock, layout: &Layout) -> Option<Self> {
        let log_pointers = log_pointers_per_block(layout);
        let mask = (1u64 << log_pointers) - 1;
        let mut offset = logical.as_u64();
        if offset < u64::from(DIRECT_POINTERS) {
            return Some(Self { indexes: [logical.get(), 0, 0, 0], levels: 0 });
        }
        offset -= u64::from(DIRECT_POINTERS);
        for levels in 1..=LEVELS_MAX {
            let span = 1u64 << (log_pointers * levels as u32);
            if offset < span {
                let mut indexes = [0; LEVELS_MAX + 1];
                indexes[0] = DIRECT_POINTERS + levels as u32 - 1;
                for (level, index) in indexes[1..=levels].iter_mut().enumerate() {
                    let shift = log_pointers * (levels - 1 - level) as u32;
                    // Below the pointers of a block, at most 2^14.
                    *index = (offset >> shift & mask) as u32;
                }
                return Some(Self { indexes, levels });
            }
            offset -= span;
        }
        None
    }

    /// Positions of the pointers on the way: the first in the inode, the others in one block of
    /// pointers each; the last one leads to data.
    #[must_use]
    pub fn indexes(&self) -> &[u32] {
        &self.indexes[..=self.levels]
    }

    /// Blocks of pointers on the way.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.levels
    }
}

fn log_pointers_per_block(layout: &Layout) -> u32 {
    layout.log_block_size() - POINTER_BYTES.ilog2()
}

/// Pointers of a block of pointers.
#[must_use]
pub fn pointers_per_block(layout: &Layout) -> u32 {
    1 << log_pointers_per_block(layout)
}

/// Blocks of a file under a pointer that has `levels` levels of pointer blocks below it.
///
/// 0 levels are one block of data; more than [`LEVELS_MAX`] don't exist and count as that many.
#[must_use]
pub fn blocks_under(levels: usize, layout: &Layout) -> u64 {
    1 << (log_pointers_per_block(layout) * levels.min(LEVELS_MAX) as u32)
}

/// Levels of pointer blocks below a pointer of an inode.
#[must_use]
pub const fn levels_of_root_pointer(index: u32) -> usize {
    (index + 1).saturating_sub(DIRECT_POINTERS) as usize
}

/// Number after the last block that a block map can hold; it may exceed that of any file.
#[must_use]
pub fn logical_end(layout: &Layout) -> u64 {
    (1..=LEVELS_MAX).map(|levels| blocks_under(levels, layout)).sum::<u64>()
        + u64::from(DIRECT_POINTERS)
}

/// First block of a file under a pointer of an inode; nothing beyond the pointers.
#[must_use]
pub fn logical_of_root_pointer(index: u32, layout: &Layout) -> Option<u64> {
    if index < DIRECT_POINTERS {
        return Some(u64::from(index));
    }
    let levels = levels_of_root_pointer(index);
    if levels > LEVELS_MAX {
        return None;
    }
    let before: u64 = (1..levels).map(|levels| blocks_under(levels, layout)).sum();
    Some(before + u64::from(DIRECT_POINTERS))
}

/// Reads a pointer of an inode's block area or of a block of pointers; nothing for a hole.
///
/// `holder` is the block that holds the pointer, or none for the inode.
pub fn pointer(
    bytes: &[u8],
    index: u32,
    inode: InodeNumber,
    holder: Option<PhysicalBlock>,
    layout: &Layout,
) -> Result<Option<PhysicalBlock>, Corrupt> {
    let Some(stored) = bytes.as_chunks::<POINTER_BYTES>().0.get(index as usize) else {
        return Err(Corrupt::Truncated {
            structure: "block of pointers",
            needed: (index as usize + 1).saturating_mul(POINTER_BYTES),
            found: bytes.len(),
        });
    };
    let block = u64::from(u32::from_le_bytes(*stored));
    if block == 0 {
        return Ok(None);
    }
    let found = PhysicalBlock::new(block);
    if block <= u64::from(layout.first_data_block()) || !layout.contains_blocks(found, 1) {
        return Err(Corrupt::BlockPointer { inode, holder, index, found });
    }
    Ok(Some(found))
}

/// Writes a pointer; nothing makes a hole.
///
/// # Panics
/// If the index lies beyond the bytes or the block above 32 bits.
pub fn set_pointer(bytes: &mut [u8], index: u32, block: Option<PhysicalBlock>) {
    let number = block.map_or(0, PhysicalBlock::get);
    assert!(u32::try_from(number).is_ok(), "block {number} in a block map");
    bytes.as_chunks_mut::<POINTER_BYTES>().0[index as usize] = (number as u32).to_le_bytes();
}

/// Checks all pointers of an inode's block area or of a block of pointers.
pub fn check_pointers(
    bytes: &[u8],
    inode: InodeNumber,
    holder: Option<PhysicalBlock>,
    layout: &Layout,
) -> Result<(), Corrupt> {
    // A block has at most 2^14 pointers.
    (0..(bytes.len() / POINTER_BYTES) as u32)
        .try_for_each(|index| pointer(bytes, index, inode, holder, layout).map(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;

    #[test]
    fn ways_at_the_boundaries() {
        // 1024 pointers in a block.
        let layout = testing::layout();
        let path = |logical| MapPath::new(LogicalBlock::new(logical), &layout).unwrap();
        assert_eq!(path(11).indexes(), [11]);
        assert_eq!(path(12).indexes(), [12, 0]);
        assert_eq!(path(12 + 1023).indexes(), [12, 1023]);
        assert_eq!(path(12 + 1024).indexes(), [13, 0, 0]);
        assert_eq!(path(12 + 1024 + (1 << 20)).indexes(), [14, 0, 0, 0]);
        let end = logical_end(&layout);
        assert_eq!(path(end as u32 - 1).indexes(), [14, 1023, 1023, 1023]);
        assert_eq!(MapPath::new(LogicalBlock::new(end as u32), &layout), None);
    }

    #[test]
    fn pointers_are_checked() {
        let layout = testing::layout();
        let mut area = [0; BLOCK_AREA_BYTES];
        let inode = InodeNumber::new(12);
        set_pointer(&mut area, 14, Some(PhysicalBlock::new(299_999)));
        check_pointers(&area, inode, None, &layout).unwrap();
        let found = PhysicalBlock::new(300_000);
        set_pointer(&mut area, 14, Some(found));
        assert_eq!(
            check_pointers(&area, inode, None, &layout),
            Err(Corrupt::BlockPointer { inode, holder: None, index: 14, found })
        );
        assert!(pointer(&area, 15, inode, None, &layout).is_err());
    }

    proptest! {
        #[test]
        fn a_way_leads_back(logical: u32) {
            let layout = testing::layout();
            if let Some(path) = MapPath::new(LogicalBlock::new(logical), &layout) {
                let mut sum = logical_of_root_pointer(path.indexes()[0], &layout).unwrap();
                prop_assert_eq!(levels_of_root_pointer(path.indexes()[0]), path.levels());
                for (level, &index) in path.indexes()[1..].iter().enumerate() {
                    sum += u64::from(index) * blocks_under(path.levels() - 1 - level, &layout);
                }
                prop_assert_eq!(sum, u64::from(logical));
            } else {
                prop_assert!(u64::from(logical) >= logical_end(&layout));
            }
        }
    }
}
