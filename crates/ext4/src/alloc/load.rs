//! Reads the group descriptors when the image is mounted.
//!
//! # State
//! Leaves behind the groups, their sums, and the map of fixed metadata. Bitmaps are not read.

use super::group::{Group, check_descriptor};
use super::metadata_map::MetadataMap;
use crate::error::Result;
use crate::volume::Volume;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::GroupNumber;
use drystone_sync::atomic::{AtomicU32, Ordering};
use std::ops::Range;

/// Descriptors are read in pieces of at most this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// The groups of an image.
#[derive(Debug)]
pub(super) struct Groups {
    pub groups: Box<[Group]>,
    pub metadata: MetadataMap,
    pub free_clusters: u64,
    pub free_inodes: u64,
    pub directories: u64,
}

/// Reads all descriptors.
pub(super) fn load_groups(volume: &Volume) -> Result<Groups> {
    let layout = &volume.layout;
    let block_size = volume.block_size();
    let mut groups = Vec::with_capacity(layout.group_count() as usize);
    let mut fixed = Vec::new();
    let mut bytes = Vec::new();
    for blocks in descriptor_block_runs(volume) {
        bytes.resize((blocks.end - blocks.start) as usize * block_size, 0);
        volume.device.read_at(blocks.start * block_size as u64, &mut bytes)?;
        let in_block = |block| <[u8]>::chunks_exact(block, layout.descriptor_size());
        let groups_left = layout.group_count() as usize - groups.len();
        for descriptor in bytes.chunks_exact(block_size).flat_map(in_block).take(groups_left) {
            // The layout proved that groups can be numbered.
            let number = GroupNumber::new(groups.len() as u32);
            groups.push(load_group(volume, number, descriptor, &mut fixed));
        }
    }
    let sum = |count: fn(&Group) -> &AtomicU32| {
        groups.iter().map(|group| u64::from(count(group).load(Ordering::Relaxed))).sum()
    };
    Ok(Groups {
        metadata: MetadataMap::new(fixed),
        free_clusters: sum(|group| &group.available),
        free_inodes: sum(|group| &group.free_inodes),
        directories: sum(|group| &group.directories),
        groups: groups.into_boxed_slice(),
    })
}

/// A group as its descriptor says, and the blocks of its metadata. A damaged descriptor takes its group
/// out of use and is no error.
fn load_group(
    volume: &Volume,
    number: GroupNumber,
    descriptor: &[u8],
    fixed: &mut Vec<Range<u64>>,
) -> Group {
    let layout = &volume.layout;
    let first = layout.group_first_block(number).get();
    fixed.push(first..first + u64::from(layout.group_base(number).blocks));
    match check_descriptor(descriptor, number, volume) {
        Ok(descriptor) => {
            let table = descriptor.inode_table.get();
            fixed.push(table..table + u64::from(layout.inode_table_blocks()));
            for bitmap in [descriptor.block_bitmap, descriptor.inode_bitmap] {
                fixed.push(bitmap.get()..bitmap.get() + 1);
            }
            Group::new(number, &descriptor, layout.inodes_per_group())
        }
        Err(corrupt) => {
            tracing::error!(group = number.get(), %corrupt, "group taken out of use");
            Group::damaged(number, corrupt)
        }
    }
}

/// The blocks of the descriptor table in order, neighbours together.
fn descriptor_block_runs(volume: &Volume) -> Vec<Range<u64>> {
    let blocks_max = (READ_BYTES_MAX / volume.block_size()) as u64;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for index in 0..volume.layout.descriptor_blocks() {
        let Some(block) = volume.layout.descriptor_block(index) else { break };
        match runs.last_mut() {
            Some(run) if run.end == block.get() && run.end - run.start < blocks_max => run.end += 1,
            _ => runs.push(block.get()..block.get() + 1),
        }
    }
    runs
}
