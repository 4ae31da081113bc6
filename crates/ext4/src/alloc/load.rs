//! Reads the group descriptors when the image is mounted or has grown.
//!
//! # State
//! None of its own. The result is the groups, their sums, and the map of fixed metadata; bitmaps
//! are not read.

use super::group::{BlockGroup, BlockGroupState};
use super::group_metadata::descriptor_in;
use super::system_zones::SystemZones;
use crate::error::Result;
use crate::volume::Volume;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{Corrupt, GroupNumber, PhysicalBlock};
use drystone_sync::atomic::{AtomicU32, Ordering};
use std::ops::Range;

/// Descriptors are read in pieces of at most this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// How many damaged groups are logged one by one.
const TOLD_MAX: u32 = 16;
/// The most damaged groups with which an image is still opened: 1 MiB of descriptors.
const DAMAGED_MAX: u32 = 1 << 14;

/// The groups of an image, from one on.
#[derive(Debug)]
pub(super) struct LoadedGroups {
    /// Those that were asked for; the sums are theirs.
    pub groups: Vec<BlockGroup>,
    /// The fixed metadata of all groups.
    pub metadata: SystemZones,
    pub free_clusters: u64,
    pub free_inodes: u64,
    pub directories: u64,
}

/// Reads all descriptors, and makes the groups from number `first` on. `journal` holds the blocks of the
/// journal.
///
/// # Errors
/// Those of the device. [`Corrupt::GroupsDamaged`] if more than `DAMAGED_MAX` groups are damaged;
/// fewer are only taken out of use.
pub(super) fn load_groups(
    volume: &Volume,
    layout: &Layout,
    journal: &[Range<u64>],
    first: u32,
) -> Result<LoadedGroups> {
    let block_size = volume.block_size();
    // The descriptor table may be one large hole, so the vectors grow as descriptors are read.
    let mut groups = Vec::new();
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    let mut damages = Damages::default();
    let mut numbers = (0..layout.group_count()).map(GroupNumber::new);
    for blocks in descriptor_block_runs(layout) {
        bytes.resize((blocks.end - blocks.start) as usize * block_size, 0);
        volume.device.read_at(blocks.start * block_size as u64, &mut bytes)?;
        let in_block = |block| <[u8]>::chunks_exact(block, layout.descriptor_size());
        let descriptors = bytes.chunks_exact(block_size).flat_map(in_block);
        for (bytes, number) in descriptors.zip(numbers.by_ref()) {
            let group = match descriptor_in(bytes, number, layout) {
                Ok(descriptor) => {
                    parts.extend(GroupPartBlocks::of(number, &descriptor, layout));
                    BlockGroup::new(number, &descriptor, layout.inodes_per_group())
                }
                Err(corrupt) => {
                    damages.note(number, &corrupt)?;
                    BlockGroup::damaged(number, corrupt)
                }
            };
            parts.extend(GroupPartBlocks::base(number, layout));
            if number.get() >= first {
                groups.push(group);
            }
        }
    }
    parts.sort_unstable_by_key(|part| part.blocks.start);
    for (part, block) in overlaps(&parts) {
        // One from before was found damaged when it was loaded.
        let Some(index) = part.group.get().checked_sub(first) else { continue };
        let group = &mut groups[index as usize];
        let corrupt = Corrupt::GroupOverlap { group: part.group, block };
        if !matches!(*group.state.lock(), BlockGroupState::Damaged(..)) {
            damages.note(part.group, &corrupt)?;
        }
        group.withdraw(corrupt, part.kind == PartKind::InodeTable);
    }
    if damages.0 > 0 {
        volume.damage.note_later();
    }
    let sum = |count: fn(&BlockGroup) -> &AtomicU32| {
        groups.iter().map(|group| u64::from(count(group).load(Ordering::Relaxed))).sum()
    };
    let fixed = parts.into_iter().map(|part| part.blocks).chain(journal.iter().cloned());
    Ok(LoadedGroups {
        metadata: SystemZones::new(fixed.collect()),
        free_clusters: sum(|group| &group.available),
        free_inodes: sum(|group| &group.free_inodes),
        directories: sum(|group| &group.directories),
        groups,
    })
}

/// Groups that were found damaged.
#[derive(Default)]
struct Damages(u32);

impl Damages {
    /// Counts one more.
    fn note(&mut self, group: GroupNumber, corrupt: &Corrupt) -> Result<()> {
        self.0 += 1;
        if self.0 <= TOLD_MAX {
            tracing::error!(group = group.get(), %corrupt, "group taken out of use");
        }
        if self.0 > DAMAGED_MAX {
            let (count, groups) = (self.0, group.get() + 1);
            return Err(Corrupt::GroupsDamaged { count, groups }.into());
        }
        Ok(())
    }
}

/// The kinds of a group's fixed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    /// Superblock and descriptors, whose place follows from the geometry.
    Base,
    Bitmap,
    InodeTable,
}

/// A part of a group's metadata.
#[derive(Clone, Debug)]
struct GroupPartBlocks {
    blocks: Range<u64>,
    group: GroupNumber,
    kind: PartKind,
}

impl GroupPartBlocks {
    /// The parts whose place is in the descriptor.
    fn of(
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        layout: &Layout,
    ) -> [GroupPartBlocks; 3] {
        let part = |start: PhysicalBlock, length: u32, kind| GroupPartBlocks {
            blocks: start.get()..start.get() + u64::from(length),
            group,
            kind,
        };
        [
            part(descriptor.block_bitmap, 1, PartKind::Bitmap),
            part(descriptor.inode_bitmap, 1, PartKind::Bitmap),
            part(descriptor.inode_table, layout.inode_table_blocks(), PartKind::InodeTable),
        ]
    }

    /// The superblock and the descriptors at the start of a group, if it has them.
    fn base(group: GroupNumber, layout: &Layout) -> Option<GroupPartBlocks> {
        let start = layout.group_first_block(group).get();
        let length = layout.group_base(group).blocks;
        let blocks = start..start + u64::from(length);
        (length > 0).then_some(GroupPartBlocks { blocks, group, kind: PartKind::Base })
    }
}

/// The parts, other than bases, that overlap another part, each with the first block that both
/// have. `parts` are sorted by their first blocks.
fn overlaps(parts: &[GroupPartBlocks]) -> Vec<(&GroupPartBlocks, PhysicalBlock)> {
    let mut found = Vec::new();
    let mut furthest: Option<&GroupPartBlocks> = None;
    for part in parts {
        let Some(before) = furthest.replace(part) else { continue };
        if part.blocks.start < before.blocks.end {
            let block = PhysicalBlock::new(part.blocks.start);
            // Any other part here was already found to overlap the one that reaches furthest.
            found.extend([before, part].map(|part| (part, block)));
        }
        if before.blocks.end > part.blocks.end {
            furthest = Some(before);
        }
    }
    found.retain(|(part, _)| part.kind != PartKind::Base);
    found
}

/// The blocks of the descriptor table in order, as runs of neighbours.
fn descriptor_block_runs(layout: &Layout) -> impl Iterator<Item = Range<u64>> {
    let blocks_max = (READ_BYTES_MAX / layout.block_size()) as u64;
    let mut blocks = (0..layout.descriptor_blocks())
        .map_while(move |index| layout.descriptor_block(index))
        .map(PhysicalBlock::get)
        .peekable();
    std::iter::from_fn(move || {
        let start = blocks.next()?;
        let mut end = start + 1;
        while end - start < blocks_max && blocks.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(start..end)
    })
}
