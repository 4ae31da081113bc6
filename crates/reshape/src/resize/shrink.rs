//! Shrinks an image, after moving everything that is beyond the new end.

use super::evacuation::{Evacuation, GroupMetadata};
use super::geometry::reserved_blocks;
use super::reserve::{free_old_bases, store_reserve};
use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::progress::ReshapeProgress;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::{Geometry, Layout};
use drystone_ondisk::bitmap;

/// Cuts an image as planned. Returns how many inodes got other numbers.
pub(super) fn shrink(
    image: &mut Image<'_>,
    geometry: &Geometry,
    plan: Evacuation,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<u64> {
    let old = image.layout;
    // Before blocks of their tables are used for something else.
    let leaving = read_leaving(image, &plan.inodes)?;
    move_metadata(image, &plan)?;
    plan.moves.copy(image, &plan.released, &mut |done, total| {
        progress(ReshapeProgress { step: "moving blocks", done, total });
    })?;

    let mut superblock = image.superblock.clone();
    superblock.set_reserved_blocks_count(reserved_blocks(&superblock, geometry.blocks_count));
    image.set_superblock(superblock.with_geometry(geometry)?);
    drop_groups(image)?;
    free_old_bases(image, &old, image.layout.group_count())?;
    let numbers = new_numbers(image, &leaving, &old)?;

    let groups = u64::from(image.layout.group_count());
    let mut rewriter = Rewriter::new(image, old, &plan.moves, &numbers);
    for group in 0..groups as u32 {
        rewriter.group(GroupNumber::new(group))?;
        let (done, total) = (u64::from(group) + 1, groups);
        progress(ReshapeProgress { step: "correcting inodes", done, total });
    }
    let count = leaving.len() as u64;
    for (number, mut bytes) in leaving {
        rewriter.inode(number, &mut bytes)?;
    }
    rewriter.finish()?;
    store_reserve(image, &old, &plan.moves)?;
    image.store(progress)?;
    Ok(count)
}

/// The bytes of these inodes, which are in order: whole tables are read, not single inodes.
fn read_leaving(image: &Image<'_>, inodes: &[InodeNumber]) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
    let (layout, size) = (image.layout, image.layout.inode_size());
    let mut leaving = Vec::with_capacity(inodes.len());
    for here in
        inodes.chunk_by(|&a, &b| layout.group_of_inode(a).ok() == layout.group_of_inode(b).ok())
    {
        let (group, first) = layout.bit_of_inode(here[0])?;
        let (_, last) = layout.bit_of_inode(here[here.len() - 1])?;
        let table = image.read_inodes(group, first..last + 1)?;
        for &number in here {
            let at = (number.get() - here[0].get()) as usize * size;
            leaving.push((number, table[at..at + size].to_vec()));
        }
    }
    Ok(leaving)
}

/// Copies bitmaps and inode tables to their new places.
fn move_metadata(image: &mut Image<'_>, plan: &Evacuation) -> Result<()> {
    let shift = image.layout.log_block_size();
    for one in &plan.metadata {
        let mut bytes = vec![0; ((one.from.end - one.from.start) << shift) as usize];
        image.device.read_at(one.from.start << shift, &mut bytes)?;
        image.device.write_at(one.to.get() << shift, &bytes)?;
        let descriptor = &mut image.groups[one.group.index()];
        match one.part {
            GroupMetadata::BlockBitmap => descriptor.block_bitmap = one.to,
            GroupMetadata::InodeBitmap => descriptor.inode_bitmap = one.to,
            GroupMetadata::InodeTable => descriptor.inode_table = one.to,
        }
    }
    Ok(())
}

/// Forgets the groups that go. The bitmap of the last one says where the image ends.
fn drop_groups(image: &mut Image<'_>) -> Result<()> {
    let count = image.layout.group_count();
    image.groups.truncate(count as usize);
    image.block_bitmaps.retain(|&group, _| group < count);
    image.inode_bitmaps.retain(|&group, _| group < count);
    let last = image.layout.last_group();
    let clusters = image.layout.group_cluster_count(last) as usize;
    let bits = image.block_bitmap(last)?;
    let whole = bits.len() * 8;
    bitmap::set_range(bits, clusters..whole);
    Ok(())
}

/// Gives inodes the lowest free numbers.
fn new_numbers(
    image: &mut Image<'_>,
    leaving: &[(InodeNumber, Vec<u8>)],
    old: &Layout,
) -> Result<InodeNumbers> {
    let mut numbers = InodeNumbers::default();
    let layout = image.layout;
    let mut group = GroupNumber::FIRST;
    for (number, bytes) in leaving {
        let inode = Inode::read(bytes, *number, old)?;
        let new = loop {
            if group.get() >= layout.group_count() {
                return Err(Refusal::NoSpace { what: "its inodes" }.into());
            }
            if let Some(new) = image.take_inode(group)? {
                break new;
            }
            group = GroupNumber::new(group.get() + 1);
        };
        if inode.is_directory() {
            image.groups[group.index()].used_directories_count += 1;
        }
        numbers.push(*number, new);
    }
    Ok(numbers)
}
