//! Plans what moves out of the part of an image that is cut off, and where it goes.
//!
//! Blocks in use beyond the new end move to free ones, in order: neighbours stay neighbours as far as free space
//! allows. Bitmaps and inode tables of the remaining groups stay contiguous. Inodes of groups that are cut off get
//! the lowest free numbers.

use crate::error::{Refusal, Result};
use crate::image::{Image, used_runs};
use crate::moves::{BlockMove, Moves};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::layout::{Geometry, Layout};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::ops::Range;

/// A part of a group's own metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupMetadata {
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

/// A bitmap or an inode table that moves.
pub(super) struct MetadataMove {
    pub group: GroupNumber,
    pub part: GroupMetadata,
    pub from: Range<u64>,
    pub to: PhysicalBlock,
}

/// A plan. The bitmaps of the image that are loaded show it as done.
pub(super) struct Evacuation {
    pub moves: Moves,
    pub metadata: Vec<MetadataMove>,
    /// Where metadata were in front of the new end: of groups that go, or that move across the end.
    pub released: Vec<Range<u64>>,
    /// Inodes in use of groups that go.
    pub inodes: Vec<InodeNumber>,
    /// Extents that are cut at most.
    pub cuts: u64,
}

impl Evacuation {
    /// Plans to cut an image.
    pub fn plan(image: &mut Image<'_>, geometry: &Geometry) -> Result<Evacuation> {
        let new = Layout::new(geometry)?;
        let kept = new.group_count();
        if image.read_inode(InodeNumber::BAD_BLOCKS)?.0.sectors > 0 {
            let problem = "it can't shrink: it lists bad blocks, which can't move";
            return Err(Refusal::Value(problem.into()).into());
        }
        let inodes = leaving_inodes(image, &new)?;
        let mut released = release(image, &new)?;
        let metadata = place_metadata(image, &new)?;
        let crossing = metadata.iter().filter(|one| one.from.start < new.blocks_count());
        released.extend(crossing.map(|one| one.from.clone()));
        let runs = leaving_runs(image, new.blocks_count(), kept)?;
        let moves = find_places(image, &runs, &new)?;
        let cuts = (moves.len() - runs.len()) as u64 + 1;
        let moves = Moves::new(moves);
        Ok(Evacuation { moves, metadata, released, inodes, cuts })
    }
}

fn leaving_inodes(image: &Image<'_>, new: &Layout) -> Result<Vec<InodeNumber>> {
    let mut inodes = Vec::new();
    for group in (new.group_count()..image.layout.group_count()).map(GroupNumber::new) {
        inodes.extend(image.used_inodes(group)?);
    }
    if !inodes.is_empty() && image.layout.features().compat.contains(Compat::STABLE_INODES) {
        let problem = "its inodes can't get other numbers, on which encrypted files depend \
                       (stable_inodes)";
        return Err(Refusal::Value(problem.into()).into());
    }
    let kept = &image.groups[..new.group_count() as usize];
    let free: u64 = kept.iter().map(|group| u64::from(group.free_inodes_count)).sum();
    if free < inodes.len() as u64 {
        return Err(Refusal::NoSpace { what: "its inodes" }.into());
    }
    Ok(inodes)
}

/// Frees the metadata of groups that go. Returns what lies in groups that stay.
fn release(image: &mut Image<'_>, new: &Layout) -> Result<Vec<Range<u64>>> {
    let old = image.layout;
    let end = new.blocks_count();
    let mut released = Vec::new();
    for number in new.group_count()..old.group_count() {
        let group = GroupNumber::new(number);
        let first = old.group_first_block(group).get();
        let base = first..first + u64::from(old.group_base(group).blocks);
        for run in image.group_metadata(group).into_iter().chain([base]) {
            if run.start < end {
                released.push(run.clone());
            }
            image.mark(run, false)?;
        }
    }
    mark_staying(image, new, old.blocks_count())?;
    Ok(released)
}

/// Finds places for what groups that stay have beyond the new end.
fn place_metadata(image: &mut Image<'_>, new: &Layout) -> Result<Vec<MetadataMove>> {
    let end = new.blocks_count();
    let flexible = new.features().incompat.contains(Incompat::FLEX_BG);
    let mut moves = Vec::new();
    let parts = [GroupMetadata::BlockBitmap, GroupMetadata::InodeBitmap, GroupMetadata::InodeTable];
    for number in 0..new.group_count() {
        let group = GroupNumber::new(number);
        for (part, from) in parts.into_iter().zip(image.group_metadata(group)) {
            if from.end <= end {
                continue;
            }
            image.mark(from.clone(), false)?;
            if from.start < end {
                mark_staying(image, new, end)?;
            }
            let groups = if flexible { 0..new.group_count() } else { number..number + 1 };
            // A table's length fits.
            let length = (from.end - from.start) as u32;
            let to = take_before(image, groups, length, new)?;
            moves.push(MetadataMove { group, part, from, to });
        }
    }
    Ok(moves)
}

/// Marks what groups that stay have in front of `end` as in use again: what was freed may share clusters with it.
fn mark_staying(image: &mut Image<'_>, new: &Layout, end: u64) -> Result<()> {
    let old = image.layout;
    if old.blocks_per_cluster() == 1 {
        return Ok(());
    }
    for group in new.groups() {
        let first = old.group_first_block(group).get();
        let base = first..first + u64::from(old.group_base(group).blocks);
        for run in image.group_metadata(group).into_iter().chain([base]) {
            if run.end <= end {
                image.mark(run, true)?;
            }
        }
    }
    Ok(())
}

/// Takes blocks in one piece, all in front of the new end.
fn take_before(
    image: &mut Image<'_>,
    groups: Range<u32>,
    length: u32,
    new: &Layout,
) -> Result<PhysicalBlock> {
    let clusters = new.clusters_for(u64::from(length)) as usize;
    for group in groups.map(GroupNumber::new) {
        let count = new.group_cluster_count(group) as usize;
        let bits = image.block_bitmap(group)?;
        if let Some(first) = bitmap::find_zero_run(bits, 0..count, clusters) {
            bitmap::set_range(bits, first..first + clusters);
            return Ok(new.block_of_bit(group, first as u32));
        }
    }
    Err(Refusal::NoSpace { what: "bitmaps and inode tables" }.into())
}

/// The blocks in use beyond the new end, in order.
fn leaving_runs(image: &mut Image<'_>, end: u64, kept: u32) -> Result<Vec<Range<u64>>> {
    let layout = image.layout;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in kept - 1..layout.group_count() {
        let group = GroupNumber::new(number);
        let descriptor = &image.groups[group.index()];
        let count = layout.group_cluster_count(group) as usize;
        // Only metadata could be there, which is dealt with.
        if number >= kept
            && !image.block_bitmaps.contains_key(&number)
            && descriptor.free_clusters_count as usize == count
        {
            continue;
        }
        let first = layout.group_first_block(group).get();
        let from = (end.saturating_sub(first) >> layout.log_cluster_ratio()) as usize;
        let bits = image.block_bitmap(group)?;
        let used: Vec<_> = used_runs(bits, from.min(count)..count).collect();
        for run in used {
            let block = |bit: usize| first + ((bit as u64) << layout.log_cluster_ratio());
            let (start, stop) = (block(run.start), block(run.end).min(layout.blocks_count()));
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = stop,
                _ => runs.push(start..stop),
            }
        }
    }
    Ok(runs)
}

/// Gives each run free blocks in front of the new end.
fn find_places(image: &mut Image<'_>, runs: &[Range<u64>], new: &Layout) -> Result<Vec<BlockMove>> {
    let mut moves = Vec::new();
    let mut rest = runs.iter().cloned();
    let Some(mut run) = rest.next() else { return Ok(moves) };
    for group in new.groups() {
        // Most groups of a full image have nothing to give.
        if image.groups[group.index()].free_clusters_count == 0
            && !image.block_bitmaps.contains_key(&group.get())
        {
            continue;
        }
        let count = new.group_cluster_count(group) as usize;
        let first = new.group_first_block(group).get();
        let ratio = new.log_cluster_ratio();
        let end = new.blocks_count();
        let bits = image.block_bitmap(group)?;
        let free: Vec<_> = bitmap::zero_runs(bits, 0..count).collect();
        for hole in free {
            let mut start = first + ((hole.start as u64) << ratio);
            let stop = (first + ((hole.end as u64) << ratio)).min(end);
            while start < stop {
                let length = (run.end - run.start).min(stop - start);
                moves.push(BlockMove { from: run.start, to: start, length });
                let taken = length.next_multiple_of(1 << ratio);
                let bit = ((start - first) >> ratio) as usize;
                bitmap::set_range(bits, bit..bit + (taken >> ratio) as usize);
                start += taken;
                run.start += length;
                if run.start == run.end {
                    match rest.next() {
                        Some(next) => run = next,
                        None => return Ok(moves),
                    }
                }
            }
        }
    }
    Err(Refusal::NoSpace { what: "its files" }.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::geometry::resized;
    use super::*;
    use drystone_blockdev::MemoryDevice;
    use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};

    /// What moves over a table wasn't free space before: a rollback needs the table.
    #[test]
    fn a_table_across_the_new_end_is_released() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("evacuation").unwrap();
        let path = scratch.join("image");
        // The bitmaps of many groups are in front of their tables, and nothing is reserved for growth.
        let arguments = "-t ext4 -b 1024 -G 64 -g 512 -O ^resize_inode";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("flex-bg-wide").unwrap() };
        mke2fs(&path, &set, 72 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        let mut image = Image::open(&device).unwrap();
        let group = GroupNumber::new(image.layout.groups_per_flex());
        let table = image.group_metadata(group)[2].clone();
        let end = table.start + (table.end - table.start) / 2;
        let geometry =
            resized(&image.superblock, image.offset_of(PhysicalBlock::new(end))).unwrap();
        assert_eq!(geometry.blocks_count, end);
        let plan = Evacuation::plan(&mut image, &geometry).unwrap();
        let moved = plan.metadata.iter().find(|moved| moved.from == table).unwrap();
        assert!(moved.to.get() < table.start);
        assert!(plan.released.contains(&table), "{:?}", plan.released);
    }

    /// `mke2fs` puts bitmaps and tables of several groups, and the end of the descriptors, into one cluster.
    #[test]
    fn clusters_that_staying_metadata_share_stay_in_use() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("evacuation").unwrap();
        let path = scratch.join("image");
        let arguments =
            "-t ext4 -b 1024 -C 4096 -g 256 -G 8 -N 800 -O bigalloc,^resize_inode,^has_journal";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("bigalloc-1k").unwrap() };
        mke2fs(&path, &set, 24 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        let blocks = Image::open(&device).unwrap().layout.blocks_count();
        let mut planned = 0;
        for end in (blocks / 3..blocks).step_by(4) {
            let mut image = Image::open(&device).unwrap();
            let size_bytes = image.offset_of(PhysicalBlock::new(end));
            let Ok(geometry) = resized(&image.superblock, size_bytes) else { continue };
            let Ok(plan) = Evacuation::plan(&mut image, &geometry) else { continue };
            planned += 1;
            let new = Layout::new(&geometry).unwrap();
            let cluster = |block: u64| block / 4;
            let taken: std::collections::BTreeSet<u64> =
                plan.metadata.iter().map(|one| cluster(one.to.get())).collect();
            for group in new.groups() {
                let first = new.group_first_block(group).get();
                let base = first..first + u64::from(new.group_base(group).blocks);
                for run in image.group_metadata(group).into_iter().chain([base]) {
                    if run.end > new.blocks_count() {
                        continue;
                    }
                    for block in run {
                        let (group, bit) = new.bit_of_block(PhysicalBlock::new(block)).unwrap();
                        let bits = image.current_block_bitmap(group).unwrap();
                        assert!(bitmap::test(&bits, bit as usize), "{block} with end {end}");
                        assert!(!taken.contains(&cluster(block)), "{block} with end {end}");
                    }
                }
            }
        }
        assert!(planned > 100);
    }
}
