//! Counts the fragments of files and of free space.
//!
//! A *fragment* is a run of blocks that follow one another on the device. Neither a hole nor a node of
//! the file's own extent tree or block map ends one.

use crate::error::Result;
use crate::image::InspectedImage;
use crate::map::{MapPart, walk_map};
use crate::names::names_of;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// How many of the most fragmented files are named.
const NAMED_MAX: usize = 10;

/// How fragmented files and free space are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fragmentation {
    /// Regular files with names.
    pub files: FileFragments,
    /// Directories.
    pub directories: FileFragments,
    /// The files and directories with the most fragments. One in a single fragment isn't listed.
    pub most_fragmented: Vec<FragmentedFile>,
    /// Free space, by the bitmaps.
    pub free: FreeFragments,
}

/// How fragmented the files of a kind are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileFragments {
    /// Files that have blocks.
    pub count: u64,
    /// Those among them that are in several fragments.
    pub fragmented: u64,
    /// Pieces of all of them.
    pub fragments: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
}

/// A file that is in several fragments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FragmentedFile {
    /// Its inode.
    pub inode: u32,
    /// A path to it; what isn't UTF-8 is replaced.
    pub path: String,
    /// Its fragments.
    pub fragments: u64,
    /// Bytes of its blocks.
    pub bytes: u64,
}

/// How fragmented free space is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FreeFragments {
    /// Free bytes.
    pub bytes: u64,
    /// Its fragments. None goes on into the next group.
    pub fragments: u64,
    /// The largest fragment.
    pub largest_bytes: u64,
    /// Pieces by their size, the smallest first.
    pub by_size: Vec<FreeFragmentsOfSize>,
}

/// Free fragments of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FreeFragmentsOfSize {
    /// The smallest size, a power of two. All are smaller than twice that.
    pub from_bytes: u64,
    /// How many there are.
    pub fragments: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// Measures how fragmented files and free space of an image are. `progress` is called with the number of inodes that
/// were read, and the number of inodes.
///
/// # Errors
/// The device fails, or a bitmap lies beyond its end.
pub fn fragmentation_of(
    image: &InspectedImage<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Fragmentation> {
    let mut found = Fragmentation { free: free_fragments(image)?, ..Fragmentation::default() };
    let total = u64::from(image.layout.inodes_count());
    let mut fragmented: Vec<(u64, u64, InodeNumber)> = Vec::new();
    image.each_inode(&mut |stored| {
        let inode = &stored.inode;
        progress(u64::from(inode.number.get()), total);
        let kind = match () {
            () if inode.links_count == 0 || image.serves_image(inode.number) => return Ok(true),
            () if inode.is_directory() => &mut found.directories,
            () if inode.is_regular() => &mut found.files,
            () => return Ok(true),
        };
        let (mut fragments, mut blocks, mut end) = (0, 0, None);
        walk_map(image, inode, &mut |part| {
            match part {
                MapPart::Run(run) => {
                    fragments += u64::from(end != Some(run.physical.get()));
                    blocks += u64::from(run.length);
                    end = Some(run.physical_end().get());
                }
                MapPart::Node { block, .. } if end == Some(block.get()) => {
                    end = Some(block.get() + 1);
                }
                MapPart::Node { .. } | MapPart::Problem(_) => {}
            }
            Ok(())
        })?;
        if blocks == 0 {
            return Ok(true);
        }
        let bytes = blocks << image.layout.log_block_size();
        kind.count += 1;
        kind.fragments += fragments;
        kind.bytes += bytes;
        if fragments > 1 {
            kind.fragmented += 1;
            fragmented.push((fragments, bytes, inode.number));
            if fragmented.len() > 2 * NAMED_MAX {
                keep_most(&mut fragmented);
            }
        }
        Ok(true)
    })?;
    keep_most(&mut fragmented);
    let numbers: Vec<InodeNumber> = fragmented.iter().map(|&(.., number)| number).collect();
    let names = names_of(image, &numbers)?;
    found.most_fragmented = fragmented
        .into_iter()
        .map(|(fragments, bytes, number)| {
            let name = names.iter().find(|name| name.inode == number);
            let path =
                name.map_or(String::new(), |name| String::from_utf8_lossy(&name.path).into_owned());
            FragmentedFile { inode: number.get(), path, fragments, bytes }
        })
        .collect();
    Ok(found)
}

/// Keeps those with the most fragments, and among equals those with the lowest inode numbers.
fn keep_most(fragmented: &mut Vec<(u64, u64, InodeNumber)>) {
    fragmented.sort_by_key(|&(fragments, _, number)| (std::cmp::Reverse(fragments), number));
    fragmented.truncate(NAMED_MAX);
}

fn free_fragments(image: &InspectedImage<'_>) -> Result<FreeFragments> {
    let layout = &image.layout;
    let parts = parts_of_groups(image)?;
    let mut free = FreeFragments::default();
    let mut by_size: BTreeMap<u32, FreeFragmentsOfSize> = BTreeMap::new();
    image.each_descriptor(&mut |group, descriptor, _| {
        let bits = match descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            true => unwritten_bitmap(image, group, &parts),
            false => image.read_block(descriptor.block_bitmap)?,
        };
        let clusters = layout.group_cluster_count(group) as usize;
        for run in bitmap::zero_runs(&bits, 0..clusters) {
            let first = layout.block_of_bit(group, run.start as u32).get();
            let blocks = run.len() as u64 * u64::from(layout.blocks_per_cluster());
            // The last cluster of an image may be cut.
            let blocks = blocks.min(layout.blocks_count().saturating_sub(first));
            let bytes = blocks << layout.log_block_size();
            let Some(log) = bytes.checked_ilog2() else { continue };
            free.fragments += 1;
            free.bytes += bytes;
            free.largest_bytes = free.largest_bytes.max(bytes);
            let of_size = by_size.entry(log).or_default();
            of_size.from_bytes = 1 << log;
            of_size.fragments += 1;
            of_size.bytes += bytes;
        }
        Ok(true)
    })?;
    free.by_size = by_size.into_values().collect();
    Ok(free)
}

/// Blocks of the bitmaps and inode tables of all groups, which may lie in other groups.
fn parts_of_groups(image: &InspectedImage<'_>) -> Result<Vec<Range<u64>>> {
    let mut parts = Vec::new();
    let table_blocks = u64::from(image.layout.inode_table_blocks());
    image.each_descriptor(&mut |_, descriptor, _| {
        for (start, length) in [
            (descriptor.block_bitmap.get(), 1),
            (descriptor.inode_bitmap.get(), 1),
            (descriptor.inode_table.get(), table_blocks),
        ] {
            parts.push(start..start.saturating_add(length));
        }
        Ok(true)
    })?;
    parts.sort_by_key(|part| part.start);
    Ok(parts)
}

/// The block bitmap of a group that has none yet: only the parts of groups are in use.
fn unwritten_bitmap(
    image: &InspectedImage<'_>,
    group: GroupNumber,
    parts: &[Range<u64>],
) -> Vec<u8> {
    let layout = &image.layout;
    let first = layout.group_first_block(group).get();
    let end = first + u64::from(layout.group_block_count(group));
    let mut bits = vec![0; layout.block_size()];
    let base = first..first + u64::from(layout.group_base(group).blocks);
    let length_max = u64::from(layout.inode_table_blocks());
    let before = parts.partition_point(|part| part.start.saturating_add(length_max) < first);
    let inside = parts[before..].iter().take_while(|part| part.start < end).cloned();
    for part in inside.chain([base]) {
        for block in part.start.max(first)..part.end.min(end) {
            if let Some((_, bit)) = layout.bit_of_block(PhysicalBlock::new(block)) {
                bitmap::set(&mut bits, bit as usize);
            }
        }
    }
    bits
}
