//! Reads the group descriptors when the image is mounted.
//!
//! # State
//! Leaves behind the groups, their sums, and the map of fixed metadata. Bitmaps are not read.

use super::group::{Group, check_descriptor};
use super::metadata_map::MetadataMap;
use crate::error::Result;
use crate::volume::Volume;
use drystone_ext4_format::GroupNumber;
use drystone_sync::atomic::Ordering;
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

/// Reads all descriptors. A damaged one takes its group out of use and is no error.
pub(super) fn load_groups(volume: &Volume) -> Result<Groups> {
    let layout = &volume.layout;
    let mut groups = Vec::with_capacity(layout.group_count() as usize);
    let mut runs = Vec::new();
    let block_size = volume.block_size();
    let (mut free_clusters, mut free_inodes, mut directories) = (0, 0, 0);
    let mut bytes = Vec::new();
    for blocks in descriptor_block_runs(volume) {
        bytes.resize((blocks.end - blocks.start) as usize * block_size, 0);
        volume.device.read_at(blocks.start * block_size as u64, &mut bytes)?;
        for descriptor in bytes
            .chunks_exact(block_size)
            .flat_map(|block| block.chunks_exact(layout.descriptor_size()))
        {
            // The layout proved that groups can be numbered.
            let number = GroupNumber::new(groups.len() as u32);
            if number > layout.last_group() {
                break;
            }
            let group = match check_descriptor(descriptor, number, volume) {
                Ok(descriptor) => {
                    let table = descriptor.inode_table.get();
                    runs.push(table..table + u64::from(layout.inode_table_blocks()));
                    for bitmap in [descriptor.block_bitmap, descriptor.inode_bitmap] {
                        runs.push(bitmap.get()..bitmap.get() + 1);
                    }
                    Group::new(number, &descriptor, layout.inodes_per_group())
                }
                Err(corrupt) => {
                    tracing::error!(group = number.get(), %corrupt, "group taken out of use");
                    Group::damaged(number, corrupt)
                }
            };
            let first = layout.group_first_block(number).get();
            runs.push(first..first + u64::from(layout.group_base(number).blocks));
            free_clusters += u64::from(group.available.load(Ordering::Relaxed));
            free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
            directories += u64::from(group.directories.load(Ordering::Relaxed));
            groups.push(group);
        }
    }
    Ok(Groups {
        groups: groups.into_boxed_slice(),
        metadata: MetadataMap::new(runs),
        free_clusters,
        free_inodes,
        directories,
    })
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
