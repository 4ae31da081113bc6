//! What it takes to grow an image while it is open: the blocks to write, which the engine writes as a transaction of
//! its own.
//!
//! # Crash
//! Blocks beyond the old end are written at once: nothing refers to them before the superblock says that they are
//! part of the image. Those inside it are only collected.
//!
//! # Locking
//! None. The caller holds back changes of the image until the growth is complete.

use super::geometry;
use crate::error::{Refusal, Result};
use crate::image::{Image, ReshapeDevice};
use drystone_blockdev::{BlockDevice, DeviceResult, Overlay, check_range};
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::{SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock};
use std::collections::{BTreeMap, BTreeSet};

/// What is still to be written for an image to be larger.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The superblock of the larger image.
    pub superblock: Superblock,
    /// Blocks inside the old end and their new content, in order, without the superblock's.
    pub blocks: Vec<(PhysicalBlock, Vec<u8>)>,
    /// The same for copies of the superblock and of descriptors, which only a repair reads.
    pub copies: Vec<(PhysicalBlock, Vec<u8>)>,
}

/// How many blocks an image can use of a size, when it grows.
///
/// # Errors
/// A refusal: the image has errors, or can't have so many blocks.
pub fn usable_blocks(superblock: &Superblock, size_bytes: u64) -> Result<u64> {
    if superblock.state().contains(StateFlags::ERRORS) {
        return Err(Refusal::HasErrors.into());
    }
    let blocks = geometry::resized(superblock, size_bytes)?.blocks_count;
    Ok(blocks.max(superblock.layout().blocks_count()))
}

/// Plans how an open image takes as much of a size as it can use, and prepares the blocks beyond its end. `None`
/// if it can't use more than it has.
///
/// `device` shows the image as it is, with an empty journal, and nothing else changes it. `superblock` is its superblock,
/// marked as that of a closed image.
///
/// # Errors
/// A refusal, or an error of the device. The image is as it was.
pub fn plan_growth(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    size_bytes: u64,
) -> Result<Option<Growth>> {
    let old = *superblock.layout();
    let geometry = geometry::resized(superblock, size_bytes)?;
    if geometry.blocks_count <= old.blocks_count() {
        return Ok(None);
    }
    if geometry.blocks_count > device.size_bytes() >> old.log_block_size() {
        return Err(Refusal::Truncated { blocks: geometry.blocks_count }.into());
    }
    let split = SplitDevice {
        inside: Overlay::new(device),
        end_bytes: old.blocks_count() << old.log_block_size(),
    };
    let mut image = Image::of(&split, superblock.clone())?;
    super::grow::grow(&mut image, &geometry, &mut |_| {})?;
    let Image { superblock, layout, .. } = image;
    let own = SUPERBLOCK_OFFSET_BYTES >> layout.log_block_size();
    let mut blocks = split.changed_blocks(&layout)?;
    blocks.remove(&own);
    let places = copies(&layout);
    let (copies, blocks) = blocks
        .into_iter()
        .map(|(block, bytes)| (PhysicalBlock::new(block), bytes))
        .partition(|(block, _)| places.contains(block));
    Ok(Some(Growth { superblock, blocks, copies }))
}

/// Where the copies of the superblock and of descriptors are.
fn copies(layout: &Layout) -> BTreeSet<PhysicalBlock> {
    let superblocks = layout.superblock_groups().skip(1);
    let superblocks = superblocks.filter_map(|group| Some(layout.superblock_location(group)?.0));
    let descriptors =
        (0..layout.descriptor_blocks()).flat_map(|index| layout.descriptor_backups(index));
    superblocks.chain(descriptors).collect()
}

/// A device of which only the part beyond the image's end is written.
#[derive(Debug)]
struct SplitDevice<'d> {
    inside: Overlay<&'d dyn BlockDevice>,
    /// A multiple of the block size. No access crosses it.
    end_bytes: u64,
}

impl<'d> SplitDevice<'d> {
    fn at(&self, offset: u64) -> &dyn BlockDevice {
        if offset < self.end_bytes { &self.inside } else { *self.inside.base() }
    }

    /// The blocks inside the end that differ now, by number.
    fn changed_blocks(&self, layout: &Layout) -> Result<BTreeMap<u64, Vec<u8>>> {
        let log = layout.log_block_size();
        let mut changed = BTreeMap::new();
        let [mut before, mut after] = [(); 2].map(|()| vec![0; layout.block_size()]);
        for range in self.inside.changed_ranges() {
            let end = range.end.min(self.end_bytes);
            for block in range.start >> log..end.div_ceil(1 << log) {
                self.inside.base().read_at(block << log, &mut before)?;
                self.inside.read_at(block << log, &mut after)?;
                if before != after {
                    changed.insert(block, after.clone());
                }
            }
        }
        Ok(changed)
    }
}

impl BlockDevice for SplitDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.inside.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.at(offset).read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        check_range(self.size_bytes(), offset, data.len() as u64)?;
        self.at(offset).write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.at(offset).zero_range(offset, length)
    }

    /// The caller of the plan flushes.
    fn flush(&self) -> DeviceResult {
        Ok(())
    }
}

impl ReshapeDevice for SplitDevice<'_> {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{NewSize, ReshapeProgress, resize};
    use super::*;
    use drystone_blockdev::MemoryDevice;
    use drystone_ext4_format::superblock::SUPERBLOCK_BYTES;
    use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};

    /// The plan leaves everything inside the end as it is, and once applied is what a resize makes.
    #[test]
    fn a_plan_leads_where_a_resize_does() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("growth").unwrap();
        for (name, from, to) in [
            ("default", 16, 140),
            ("default-1k", 17, 60),
            ("no-resize-inode", 16, 150),
            ("meta-bg-1k", 17, 100),
            ("sparse-super2", 40, 150),
            ("ext2-1k", 16, 100),
            ("bigalloc-1k", 40, 160),
        ] {
            let path = scratch.join(name);
            let set = FeatureSet::by_name(name).unwrap();
            let from = set.size_mib_min.max(from) << 20;
            mke2fs(&path, set, from).unwrap().expect_clean(name);
            let device = MemoryDevice::new(to << 20);
            device.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
            let resized = device.snapshot();
            resize(&resized, NewSize::Exactly(to << 20), 1_700_000_000, &mut |_| {}).unwrap();

            let mut bytes = [0; SUPERBLOCK_BYTES];
            device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
            let mut superblock = Superblock::check(&bytes).unwrap();
            superblock.set_write_time_seconds(1_700_000_000);
            let before = device.to_vec();
            let growth = plan_growth(&device, &superblock, to << 20).unwrap().unwrap();
            assert!(before[..from as usize] == device.to_vec()[..from as usize], "{name}");
            for (block, bytes) in growth.blocks.iter().chain(&growth.copies) {
                let offset = block.get() << superblock.layout().log_block_size();
                assert!(offset < from, "{name}");
                device.write_at(offset, bytes).unwrap();
            }
            device.write_at(SUPERBLOCK_OFFSET_BYTES, &growth.superblock.encode()).unwrap();
            assert!(device.to_vec() == resized.to_vec(), "{name}");
        }
    }

    #[test]
    fn a_growth_says_how_far_it_is() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("growth-progress").unwrap();
        let path = scratch.join("image");
        let set = FeatureSet::by_name("default-1k").unwrap();
        mke2fs(&path, set, 17 << 20).unwrap().expect_clean("mke2fs");
        let device = MemoryDevice::new(100 << 20);
        device.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
        let mut steps = std::collections::BTreeMap::new();
        let mut note = |progress: ReshapeProgress| {
            steps.insert(progress.step, (progress.done, progress.total));
        };
        let resized =
            resize(&device, NewSize::Exactly(100 << 20), 1_700_000_000, &mut note).unwrap();
        let new_groups = u64::from(resized.groups) - 3;
        assert_eq!(steps["clearing inode tables"], (new_groups, new_groups));
        let (done, total) = steps["writing group descriptors"];
        assert!(done == total && total > 0);
    }
}
