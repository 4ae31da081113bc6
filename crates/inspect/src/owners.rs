//! Finds what blocks are used for, and by which inode.

use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::map::{MapPart, walk_map};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_ondisk::bitmap;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "use", rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockPurpose {
    /// The superblock or a copy of it.
    Superblock {
        /// Of this group.
        group: u32,
    },
    /// Group descriptors or a copy of some.
    Descriptors {
        /// In this group.
        group: u32,
    },
    /// A group's block bitmap.
    BlockBitmap {
        /// The group.
        group: u32,
    },
    /// A group's inode bitmap.
    InodeBitmap {
        /// The group.
        group: u32,
    },
    /// A part of a group's inode table.
    InodeTable {
        /// The group.
        group: u32,
        /// The first inode in the block.
        inode: u32,
    },
    /// Multi-mount protection.
    MultiMount,
    /// A block of a file.
    Data {
        /// The file.
        inode: u32,
        /// Which block of it.
        logical: u32,
        /// Whether it is allocated only.
        unwritten: bool,
    },
    /// A node of the extent tree or block map of a file.
    MapNode {
        /// The file.
        inode: u32,
        /// Levels below it.
        depth: u16,
    },
    /// Extended attributes.
    Attributes {
        /// The first file that has them.
        inode: u32,
    },
    /// The bitmap says that it is free.
    Free,
    /// The bitmap says that it is in use, but no owner was found.
    Unknown,
}

/// A block and what it is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockOwner {
    /// The block.
    pub block: u64,
    /// What it is used for.
    #[serde(flatten)]
    pub used_as: BlockPurpose,
}

impl BlockPurpose {
    /// The inode that it belongs to.
    #[must_use]
    pub const fn inode(&self) -> Option<InodeNumber> {
        match *self {
            Self::Data { inode, .. } | Self::MapNode { inode, .. } | Self::Attributes { inode } => {
                Some(InodeNumber::new(inode))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for BlockPurpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Superblock { group } => write!(f, "superblock of group {group}"),
            Self::Descriptors { group } => write!(f, "group descriptors in group {group}"),
            Self::BlockBitmap { group } => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap { group } => write!(f, "inode bitmap of group {group}"),
            Self::InodeTable { group, inode } => {
                write!(f, "inode table of group {group}, from inode {inode} on")
            }
            Self::MultiMount => write!(f, "multi-mount protection"),
            Self::Data { inode, logical, unwritten: false } => {
                write!(f, "inode {inode}, block {logical} of it")
            }
            Self::Data { inode, logical, unwritten: true } => {
                write!(f, "inode {inode}, block {logical} of it, not written yet")
            }
            Self::MapNode { inode, depth } => {
                write!(f, "inode {inode}, maps blocks of it, {depth} levels below")
            }
            Self::Attributes { inode } => write!(f, "inode {inode}, extended attributes of it"),
            Self::Free => write!(f, "free"),
            Self::Unknown => write!(f, "in use, by nothing that was found"),
        }
    }
}

/// Finds what each of these blocks is used for, in their order. A block that two files claim appears once for each.
///
/// # Errors
/// The device fails.
pub fn owners_of(image: &InspectedImage<'_>, blocks: &[u64]) -> Result<Vec<BlockOwner>> {
    let outside = |block: &&u64| **block >= image.layout.blocks_count();
    if let Some(block) = blocks.iter().find(outside) {
        return Err(InspectError::missing(format!("block {block} isn't part of the image")));
    }
    let mut found: BTreeMap<u64, Vec<BlockPurpose>> =
        blocks.iter().map(|&block| (block, Vec::new())).collect();
    fixed(image, &mut found)?;
    let is_metadata: Vec<u64> =
        found.iter().filter(|(_, uses)| !uses.is_empty()).map(|(&block, _)| block).collect();
    if is_metadata.len() < found.len() {
        owned(image, &mut found)?;
    }
    let mut owners = Vec::new();
    for &block in blocks {
        let uses = found.get(&block).map_or(&[][..], Vec::as_slice);
        let none = [if is_free(image, block) { BlockPurpose::Free } else { BlockPurpose::Unknown }];
        let uses = if uses.is_empty() { &none } else { uses };
        owners.extend(uses.iter().map(|&used_as| BlockOwner { block, used_as }));
    }
    Ok(owners)
}

/// Whether the bitmap says that a block is free.
fn is_free(image: &InspectedImage<'_>, block: u64) -> bool {
    let Some((group, bit)) = image.layout.bit_of_block(PhysicalBlock::new(block)) else {
        return false;
    };
    let Ok((descriptor, _)) = image.descriptor(group) else { return false };
    use drystone_ext4_format::group::GroupFlags;
    let free = descriptor.free_clusters_count;
    if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) && free > 0 {
        return true;
    }
    image.read_block(descriptor.block_bitmap).is_ok_and(|bits| !bitmap::test(&bits, bit as usize))
}

/// What lies at a fixed place or where a descriptor says.
fn fixed(image: &InspectedImage<'_>, found: &mut BTreeMap<u64, Vec<BlockPurpose>>) -> Result<()> {
    let layout = &image.layout;
    let has_mmp = image
        .superblock
        .features()
        .incompat
        .contains(drystone_ext4_format::features::Incompat::MMP);
    if let Some(uses) = image
        .superblock
        .mmp_block()
        .filter(|_| has_mmp)
        .and_then(|block| found.get_mut(&block.get()))
    {
        uses.push(BlockPurpose::MultiMount);
    }
    for (&block, uses) in found.iter_mut() {
        let Some(group) = layout.group_of_block(PhysicalBlock::new(block)) else { continue };
        let base = layout.group_base(group);
        let first = layout.group_first_block(group).get();
        let copy = layout.superblock_location(group).map(|(block, _)| block.get());
        if copy == Some(block) {
            uses.push(BlockPurpose::Superblock { group: group.get() });
        } else if block < first + u64::from(base.blocks - base.reserved_blocks) {
            uses.push(BlockPurpose::Descriptors { group: group.get() });
        }
    }
    image.each_descriptor(&mut |group, descriptor, _| {
        let number = group.get();
        if let Some(uses) = found.get_mut(&descriptor.block_bitmap.get()) {
            uses.push(BlockPurpose::BlockBitmap { group: number });
        }
        if let Some(uses) = found.get_mut(&descriptor.inode_bitmap.get()) {
            uses.push(BlockPurpose::InodeBitmap { group: number });
        }
        let table = descriptor.inode_table.get();
        let end = table.saturating_add(u64::from(layout.inode_table_blocks()));
        for (&block, uses) in found.range_mut(table..end) {
            uses.push(table_use(image, group, block - table));
        }
        Ok(true)
    })
}

fn table_use(image: &InspectedImage<'_>, group: GroupNumber, index: u64) -> BlockPurpose {
    // A block of a table that the layout has checked.
    let bit = index as u32 * image.layout.inodes_per_block();
    let inode = image.layout.inode_of_bit(group, bit).map_or(0, InodeNumber::get);
    BlockPurpose::InodeTable { group: group.get(), inode }
}

/// What belongs to inodes that have names.
fn owned(image: &InspectedImage<'_>, found: &mut BTreeMap<u64, Vec<BlockPurpose>>) -> Result<()> {
    image.each_inode(&mut |stored| {
        let inode = &stored.inode;
        let number = inode.number.get();
        if inode.links_count == 0 {
            return Ok(true);
        }
        if let Some(uses) = inode.attribute_block.and_then(|block| found.get_mut(&block.get()))
            // Many files may share one: the first is named.
            && !uses.iter().any(|used| matches!(used, BlockPurpose::Attributes { .. }))
        {
            uses.push(BlockPurpose::Attributes { inode: number });
        }
        walk_map(image, inode, &mut |part| {
            match part {
                MapPart::Node { block, depth } => {
                    if let Some(uses) = found.get_mut(&block.get()) {
                        uses.push(BlockPurpose::MapNode { inode: number, depth });
                    }
                }
                MapPart::Run(run) => {
                    for (&block, uses) in
                        found.range_mut(run.physical.get()..run.physical_end().get())
                    {
                        let logical = logical_at(&run, block);
                        let unwritten = run.unwritten;
                        uses.push(BlockPurpose::Data {
                            inode: number,
                            logical: logical.get(),
                            unwritten,
                        });
                    }
                }
                MapPart::Problem(_) => {}
            }
            Ok(())
        })?;
        Ok(true)
    })
}

fn logical_at(run: &Extent, block: u64) -> LogicalBlock {
    // A block of the run, whose length fits.
    LogicalBlock::new(run.logical.get() + (block - run.physical.get()) as u32)
}
