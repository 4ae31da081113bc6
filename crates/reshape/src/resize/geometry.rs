//! The layout of an image after it is resized: how many blocks it has, and where its descriptors are.
//!
//! A descriptor table that grows takes the blocks that are reserved after it. When these don't suffice, the
//! descriptors of more groups go to those groups (`meta_bg`), as when Linux grows a mounted image. A
//! table that shrinks gives blocks back to the reserve.
//!
//! # Reference
//! "Meta Block Groups" in the kernel's ext4 data structure pages.

use crate::error::{Refusal, Result};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::layout::{Geometry, Layout};
use drystone_ext4_format::superblock::Superblock;

/// Blocks that a last group must have beyond its own metadata to be worth having, as for `mke2fs`.
const LAST_GROUP_ROOM: u64 = 50;

/// The geometry of an image that has as much of `size_bytes` as it can use.
pub(super) fn resized(superblock: &Superblock, size_bytes: u64) -> Result<Geometry> {
    let layout = superblock.layout();
    let mut blocks = size_bytes >> layout.log_block_size();
    let is_growth = blocks >= layout.blocks_count();
    // A part of a cluster could not be given to anybody. One that is there stays.
    blocks &= !u64::from(layout.blocks_per_cluster() - 1);
    if is_growth {
        blocks = blocks.max(layout.blocks_count());
    }
    let features = superblock.features();
    if blocks > u64::from(u32::MAX) && !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        let problem = format!("{blocks} blocks need the feature 64bit, which it doesn't have");
        return Err(Refusal::Value(problem).into());
    }
    let first = u64::from(layout.first_data_block());
    let per_group = u64::from(layout.blocks_per_group());
    loop {
        if blocks <= first {
            return Err(Refusal::NoSpace { what: "its metadata" }.into());
        }
        let groups = (blocks - first).div_ceil(per_group);
        if groups * u64::from(layout.inodes_per_group()) > u64::from(u32::MAX) {
            let problem = format!("{blocks} blocks have more inodes than there are numbers for");
            return Err(Refusal::Value(problem).into());
        }
        let geometry = with_groups(superblock, blocks, groups as u32);
        let last = blocks - first - (groups - 1) * per_group;
        // A whole group is worth having, however much of it is its own metadata, and one that is there stays.
        let is_worth_having = last >= needed(layout, &geometry, groups as u32).min(per_group)
            || is_growth && groups <= u64::from(layout.group_count());
        if groups == 1 || is_worth_having {
            // Now its numbers are checked.
            return match Layout::new(&geometry) {
                Err(_) if !is_growth => Err(Refusal::NoSpace { what: "its metadata" }.into()),
                checked => Ok(checked.map(|_| geometry)?),
            };
        }
        blocks -= last;
    }
}

/// Blocks that a last group must have: at most its own metadata, and some more.
fn needed(layout: &Layout, geometry: &Geometry, groups: u32) -> u64 {
    let per_block = layout.descriptors_per_block();
    let meta = geometry.features.incompat.contains(Incompat::META_BG);
    let table = match meta && (groups - 1) / per_block >= geometry.first_meta_group {
        true => 1,
        false if meta => geometry.first_meta_group,
        false => groups.div_ceil(per_block),
    };
    let base = 1 + table + u32::from(geometry.reserved_descriptor_blocks);
    u64::from(base + 2 + layout.inode_table_blocks()) + LAST_GROUP_ROOM
}

fn with_groups(superblock: &Superblock, blocks: u64, groups: u32) -> Geometry {
    let layout = superblock.layout();
    let mut geometry = superblock.geometry();
    geometry.blocks_count = blocks;
    let (before, after) =
        (layout.descriptor_blocks(), groups.div_ceil(layout.descriptors_per_block()));
    let reserved = layout.reserved_descriptor_blocks();
    let features = &mut geometry.features;
    if features.incompat.contains(Incompat::META_BG) {
        geometry.first_meta_group = geometry.first_meta_group.min(after);
    } else if after > before + reserved {
        features.incompat |= Incompat::META_BG;
        features.compat -= Compat::RESIZE_INODE;
        geometry.first_meta_group = before + reserved;
        geometry.reserved_descriptor_blocks = 0;
    } else if !features.compat.contains(Compat::RESIZE_INODE) {
        geometry.reserved_descriptor_blocks = 0;
    } else if blocks > u64::from(u32::MAX) {
        // The resize inode has 32-bit block numbers.
        features.compat -= Compat::RESIZE_INODE;
        geometry.reserved_descriptor_blocks = 0;
    } else {
        // One block of pointers lists them.
        let most = layout.block_size() as u32 / 4;
        geometry.reserved_descriptor_blocks = (before + reserved - after).min(most) as u16;
    }
    for backup in &mut geometry.backup_groups {
        if *backup >= groups {
            *backup = 0;
        }
    }
    geometry
}

/// How many blocks are reserved for a privileged user: the same share as before.
pub(super) fn reserved_blocks(superblock: &Superblock, blocks: u64) -> u64 {
    let (reserved, total) =
        (superblock.reserved_blocks_count(), superblock.layout().blocks_count());
    // 48 bits each: the product fits.
    (u128::from(reserved) * u128::from(blocks) / u128::from(total)) as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{NewSize, resize};
    use super::*;
    use crate::image::Image;
    use drystone_blockdev::MemoryDevice;
    use drystone_fsck::CheckOptions;
    use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};

    /// Though it is smaller than a new one would have to be.
    #[test]
    fn a_short_last_group_stays_when_an_image_grows() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("short-group").unwrap();
        let path = scratch.join("image");
        // Two groups, and a third without a copy of the superblock and of the blocks that are reserved after it.
        let blocks = 2 * 8192 + 300;
        let arguments = "-t ext4 -b 1024 -g 8192 -N 96 -O ^has_journal";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("flex-bg-wide").unwrap() };
        mke2fs(&path, &set, blocks << 10).unwrap().expect_clean("new");
        for more in [0, 100, 200] {
            let size_bytes = (blocks + more) << 10;
            let device = MemoryDevice::new(size_bytes);
            drystone_blockdev::BlockDevice::write_at(&device, 0, &std::fs::read(&path).unwrap())
                .unwrap();
            let size = NewSize::Exactly(size_bytes);
            let grown = resize(&device, size, 1_700_000_000, &mut |_| {}).unwrap();
            assert_eq!((grown.blocks_before, grown.blocks), (blocks, blocks + more));
            let options = CheckOptions::default().replay(false);
            let report = drystone_fsck::check(&device, &options, &mut |_| {}).unwrap();
            assert_eq!(report.errors, 0, "{:?}", report.problems);
        }
    }

    /// Groups may be nothing but metadata and a few blocks.
    #[test]
    fn an_image_of_groups_with_little_room_grows() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("geometry").unwrap();
        let path = scratch.join("image");
        let arguments = "-t ext4 -b 1024 -g 256 -I 256 -N 13000 -O ^resize_inode,^has_journal";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("flex-bg-wide").unwrap() };
        mke2fs(&path, &set, 4 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::new(8 << 20);
        drystone_blockdev::BlockDevice::write_at(&device, 0, &std::fs::read(&path).unwrap())
            .unwrap();
        let grown = resize(&device, NewSize::Exactly(8 << 20), 1_700_000_000, &mut |_| {}).unwrap();
        assert!(grown.blocks > 7 << 10, "{grown:?}");
        let options = CheckOptions::default().replay(false);
        let report = drystone_fsck::check(&device, &options, &mut |_| {}).unwrap();
        assert_eq!(report.errors, 0, "{:?}", report.problems);
    }

    /// Nobody could use a part of one.
    #[test]
    fn an_image_grows_by_whole_clusters() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("clusters").unwrap();
        let path = scratch.join("image");
        let set = FeatureSet::by_name("bigalloc-1k").unwrap();
        mke2fs(&path, set, 40 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        let superblock = Image::open(&device).unwrap().superblock;
        let blocks = superblock.layout().blocks_count();
        let grown = |superblock: &Superblock, blocks: u64| {
            resized(superblock, blocks << 10).unwrap().blocks_count
        };
        assert_eq!(grown(&superblock, blocks + 16), blocks + 16);
        assert_eq!(grown(&superblock, blocks + 31), blocks + 16);
        let geometry = Geometry { blocks_count: blocks - 3, ..superblock.geometry() };
        let cut = superblock.with_geometry(&geometry).unwrap();
        assert_eq!(grown(&cut, blocks - 2), blocks - 3);
        assert_eq!(grown(&cut, blocks + 5), blocks);
    }
}
