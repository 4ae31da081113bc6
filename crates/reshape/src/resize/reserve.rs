//! The descriptor table's blocks and those that are reserved for its growth, which the resize inode lists.

use crate::error::Result;
use crate::image::Image;
use crate::moves::Moves;
use drystone_ext4_format::block_map::{self, set_pointer};
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::inode::BLOCK_AREA_BYTES;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_mkfs::{RESERVED_MAP_POINTER, ReservedMap};

/// Writes the map of what is reserved now, or empties the inode if the image has it no longer.
pub(crate) fn store_reserve(image: &mut Image<'_>, old: &Layout, moves: &Moves) -> Result<()> {
    if !old.features().compat.contains(Compat::RESIZE_INODE) {
        return Ok(());
    }
    let (mut inode, mut bytes) = image.read_inode(InodeNumber::RESIZE)?;
    let area = &inode.block_area;
    let root = block_map::pointer(area, RESERVED_MAP_POINTER, inode.number, None, old)?;
    let Some(root) = root.map(|block| PhysicalBlock::new(moves.translate(block.get()))) else {
        return Ok(());
    };
    set_pointer(&mut inode.block_area, RESERVED_MAP_POINTER, Some(root));
    if image.layout.features().compat.contains(Compat::RESIZE_INODE) {
        let map = ReservedMap::new(&image.layout, root);
        for (block, bytes) in &map.blocks {
            image.write_block(*block, bytes)?;
        }
        (inode.size_bytes, inode.sectors) = (map.size_bytes, map.sectors);
    } else {
        let cluster = u64::from(old.blocks_per_cluster());
        image.mark(root.get()..root.get() + cluster, false)?;
        (inode.size_bytes, inode.sectors) = (0, 0);
        inode.block_area = [0; BLOCK_AREA_BYTES];
        inode.links_count = 0;
        inode.mode = 0;
    }
    image.write_inode(&inode, &mut bytes)
}

/// Frees what superblocks and descriptors no longer take in the first `count` groups.
pub(crate) fn free_old_bases(image: &mut Image<'_>, old: &Layout, count: u32) -> Result<()> {
    let mut is_any = false;
    for group in old.groups().take(count as usize) {
        let first = old.group_first_block(group).get();
        let cluster = u64::from(old.blocks_per_cluster());
        let end = |layout: &Layout| {
            first + u64::from(layout.group_base(group).blocks).next_multiple_of(cluster)
        };
        let freed = end(&image.layout)..end(old);
        is_any |= !freed.is_empty();
        image.mark(freed, false)?;
    }
    if is_any && old.blocks_per_cluster() > 1 {
        // Bitmaps and tables may share the clusters.
        for group in old.groups().take(count as usize) {
            for run in image.group_metadata(group) {
                image.mark(run, true)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{NewSize, resize};
    use drystone_blockdev::MemoryDevice;
    use drystone_fsck::CheckOptions;
    use drystone_testkit::judges::{FeatureSet, Scratch, have, mke2fs};

    /// `mke2fs` puts bitmaps into the cluster in which the descriptors end.
    #[test]
    fn a_cluster_that_bitmaps_share_stays_in_use() {
        if !have("mke2fs") {
            return;
        }
        let scratch = Scratch::new("reserve").unwrap();
        let path = scratch.join("image");
        let arguments =
            "-t ext4 -b 1024 -C 2048 -g 256 -N 800 -O bigalloc,^resize_inode,^has_journal";
        let set = FeatureSet { arguments, ..*FeatureSet::by_name("bigalloc-1k").unwrap() };
        mke2fs(&path, &set, 24 << 20).unwrap().expect_clean("new");
        let device = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        // Three blocks of descriptors in front, two after.
        let size = NewSize::Exactly(12 << 20);
        resize(&device, size, 1_700_000_000, &mut |_| {}).unwrap();
        let options = CheckOptions::default().replay(false);
        let report = drystone_fsck::check(&device, &options, &mut |_| {}).unwrap();
        assert_eq!(report.errors, 0, "{:?}", report.problems);
    }
}
