//! Adds blocks to the last group, and groups after it.

use super::geometry::reserved_blocks;
use super::reserve::{free_old_bases, store_reserve};
use crate::error::Result;
use crate::image::{Image, base_bitmap};
use crate::moves::Moves;
use crate::progress::ReshapeProgress;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::layout::Geometry;
use drystone_ondisk::bitmap;
use std::ops::Range;

pub(super) fn grow(
    image: &mut Image<'_>,
    geometry: &Geometry,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let old = image.layout;
    let last = old.last_group();
    image.block_bitmap(last)?;
    let mut superblock = image.superblock.clone();
    superblock.set_reserved_blocks_count(reserved_blocks(&superblock, geometry.blocks_count));
    image.set_superblock(superblock.with_geometry(geometry)?);
    let layout = image.layout;

    let (from, to) = (old.group_cluster_count(last), layout.group_cluster_count(last));
    bitmap::clear_range(image.block_bitmap(last)?, from as usize..to as usize);
    free_old_bases(image, &old, old.group_count())?;
    add_groups(image, old.group_count(), progress)?;
    store_reserve(image, &old, &Moves::default())?;
    image.store(progress)
}

/// Makes the groups from `first_new` on: those of a flexible group have their metadata together.
fn add_groups(
    image: &mut Image<'_>,
    first_new: u32,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let layout = image.layout;
    let count = layout.group_count();
    let has_checksums = image.has_group_checksums();
    for number in first_new..count {
        let group = GroupNumber::new(number);
        let mut descriptor = GroupDescriptor {
            free_inodes_count: layout.inodes_per_group(),
            ..GroupDescriptor::default()
        };
        let base = layout.clusters_for(u64::from(layout.group_base(group).blocks));
        descriptor.free_clusters_count = layout.group_cluster_count(group) - base as u32;
        if has_checksums {
            descriptor.flags = GroupFlags::INODE_UNINIT | GroupFlags::INODE_ZEROED;
            descriptor.unused_inodes_count = layout.inodes_per_group();
            // Until something is put there.
            descriptor.flags |= GroupFlags::BLOCK_UNINIT;
        }
        image.groups.push(descriptor);
        // The last group may be shorter, which its bitmap has to say.
        if !has_checksums || number + 1 == count {
            image.block_bitmaps.insert(number, base_bitmap(&layout, group));
        }
    }
    let flexible = layout.features().incompat.contains(Incompat::FLEX_BG);
    let together = if flexible { layout.groups_per_flex().max(1) } else { 1 };
    let mut start = first_new;
    while start < count {
        let end = ((start / together).saturating_add(1).saturating_mul(together)).min(count);
        place(image, start..end, flexible)?;
        start = end;
    }
    let total = u64::from(count - first_new);
    // Tables side by side are cleared at once.
    let mut tables = 0..0;
    for number in first_new..count {
        let table = image.offset_of(image.groups[number as usize].inode_table);
        if table != tables.end {
            clear(image, &tables)?;
            tables = table..table;
        }
        tables.end += u64::from(layout.inode_table_blocks()) << layout.log_block_size();
        let done = u64::from(number - first_new) + 1;
        progress(ReshapeProgress { step: "clearing inode tables", done, total });
        if !has_checksums {
            let bits = image.empty_inode_bitmap();
            image.inode_bitmaps.insert(number, bits);
        }
    }
    clear(image, &tables)
}

fn clear(image: &Image<'_>, bytes: &Range<u64>) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    Ok(image.device.zero_range(bytes.start, bytes.end - bytes.start)?)
}

/// Finds places for the bitmaps and inode tables of new groups.
fn place(image: &mut Image<'_>, groups: Range<u32>, is_flexible: bool) -> Result<()> {
    let count = image.layout.group_count();
    let goal = groups.start;
    let places = || goal..if is_flexible { count } else { goal + 1 };
    for number in groups.clone() {
        let block = image.take_contiguous(places(), 1, "block bitmaps")?;
        image.groups[number as usize].block_bitmap = block;
    }
    for number in groups.clone() {
        let block = image.take_contiguous(places(), 1, "inode bitmaps")?;
        image.groups[number as usize].inode_bitmap = block;
    }
    for number in groups {
        let length = image.layout.inode_table_blocks();
        let block = image.take_contiguous(places(), length, "inode tables")?;
        image.groups[number as usize].inode_table = block;
    }
    Ok(())
}
