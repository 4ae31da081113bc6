//! Gives an image a layout in which fixed metadata are longer: a descriptor table with larger descriptors, inode
//! tables with larger inodes.
//!
//! The descriptor table grows where it is, so whatever lies after it moves away. An inode table that grows gets
//! another place, in free space or, if no hole is long enough, where files are, which move. `room` finds the places.
//!
//! # State
//! Blocks and tables are copied as soon as they have a place; what refers to them is corrected at the end. The
//! bitmaps that are loaded show what is in use at each moment.

mod room;

use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::moves::Moves;
use crate::progress::ReshapeProgress;
use crate::resize::{free_old_bases, store_reserve};
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::{Geometry, Layout};
use drystone_ext4_format::{GroupNumber, InodeNumber};
use room::Room;
use std::collections::BTreeSet;
use std::ops::Range;

/// Writes an inode in use into the longer, zeroed bytes that it gets.
pub(crate) type InodeCopy<'c> = dyn Fn(InodeNumber, &[u8], &mut [u8]) -> Result<()> + 'c;

/// Gives the image a geometry with the same groups. Returns how many blocks of files have moved.
pub(crate) fn change_layout(
    image: &mut Image<'_>,
    geometry: &Geometry,
    copy_inode: &InodeCopy<'_>,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<u64> {
    let old = image.layout;
    let superblock = image.superblock.with_geometry(geometry)?;
    let new = *superblock.layout();
    load_bitmaps(image, &new)?;
    let growths = growths(&old, &new)?;
    let are_tables_longer = old.inode_table_blocks() != new.inode_table_blocks();
    let are_inodes_longer = old.inode_size() != new.inode_size();
    if (!growths.is_empty() || are_tables_longer)
        && image.read_inode(InodeNumber::BAD_BLOCKS)?.0.sectors > 0
    {
        let problem = "its metadata can't move: it lists bad blocks";
        return Err(Refusal::Value(problem.into()).into());
    }

    let mut room = Room::new(image, &new, growths);
    let displaced = room.claim_growths(image)?;
    let flexible = new.features().incompat.contains(Incompat::FLEX_BG);
    let groups_for = |group: GroupNumber| match flexible {
        true => room::from_flexible_group(&new, group),
        false => vec![group],
    };
    let total = u64::from(old.group_count());
    for group in old.groups() {
        let [block_bitmap, inode_bitmap, table] = image.group_metadata(group);
        if displaced.contains(&block_bitmap.start) {
            image.block_bitmap(group)?;
            let place = room.replace(image, block_bitmap, 1, &groups_for(group), "bitmaps")?;
            image.groups[group.index()].block_bitmap = place;
        }
        if displaced.contains(&inode_bitmap.start) {
            if !image.is_without_inodes(group) {
                image.inode_bitmap(group)?;
            }
            let place = room.replace(image, inode_bitmap, 1, &groups_for(group), "bitmaps")?;
            image.groups[group.index()].inode_bitmap = place;
        }
        if are_inodes_longer || displaced.contains(&table.start) {
            // An uninitialised table has no inodes to be read.
            let bytes = image.read_inodes(group, 0..table_count(image, group))?;
            let length = new.inode_table_blocks();
            let is_in_place =
                table.end - table.start == u64::from(length) && !displaced.contains(&table.start);
            if !is_in_place {
                let groups = groups_for(group);
                let place = room.replace(image, table, length, &groups, "inode tables")?;
                image.groups[group.index()].inode_table = place;
            }
            store_table(image, group, &bytes, &new, copy_inode)?;
        }
        let done = u64::from(group.get()) + 1;
        progress(ReshapeProgress { step: "moving metadata", done, total });
    }
    room.evacuate_growths(image)?;
    let moves = room.finish(image)?;

    // Inodes have their new size already.
    let mut written = image.superblock.geometry();
    (written.inode_size, written.extra_inode_size) =
        (geometry.inode_size, geometry.extra_inode_size);
    let written = Layout::new(&written)?;
    image.set_superblock(superblock);
    free_old_bases(image, &old, old.group_count())?;
    if moves.blocks() > 0 {
        correct_inodes(image, written, &moves, progress)?;
    }
    store_reserve(image, &old, &moves)?;
    Ok(moves.blocks())
}

/// Corrects what refers to blocks that have moved.
fn correct_inodes(
    image: &mut Image<'_>,
    written: Layout,
    moves: &Moves,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let numbers = InodeNumbers::default();
    let total = u64::from(written.group_count());
    let mut rewriter = Rewriter::new(image, written, moves, &numbers);
    for group in written.groups() {
        rewriter.group(group)?;
        let done = u64::from(group.get()) + 1;
        progress(ReshapeProgress { step: "correcting inodes", done, total });
    }
    rewriter.finish()
}

/// Loads the bitmaps that the new layout changes: all whose checksum gets another width, and those that aren't
/// initialised where the superblock and descriptors of a group get another length.
fn load_bitmaps(image: &mut Image<'_>, new: &Layout) -> Result<()> {
    let old = image.layout;
    let is_width_other = old.descriptor_size() != new.descriptor_size();
    for group in old.groups() {
        let flags = image.groups[group.index()].flags;
        let is_unwritten = image.has_group_checksums() && flags.contains(GroupFlags::BLOCK_UNINIT);
        let is_base_other = old.group_base(group).blocks != new.group_base(group).blocks;
        if is_base_other || is_width_other && !is_unwritten {
            image.block_bitmap(group)?;
        }
        if is_width_other && !image.is_without_inodes(group) {
            image.inode_bitmap(group)?;
        }
    }
    Ok(())
}

/// The blocks that superblocks and descriptors of groups take in addition, in order.
fn growths(old: &Layout, new: &Layout) -> Result<Vec<Range<u64>>> {
    let mut growths = Vec::new();
    for group in old.groups() {
        let first = old.group_first_block(group).get();
        let before = u64::from(old.group_base(group).blocks);
        let after = u64::from(new.group_base(group).blocks);
        if after > u64::from(new.group_block_count(group)) {
            return Err(Refusal::NoSpace { what: "group descriptors" }.into());
        }
        if after > before {
            growths.push(first + before..first + after);
        }
    }
    Ok(growths)
}

/// Inodes at the start of a group's table that have ever been in use.
fn table_count(image: &Image<'_>, group: GroupNumber) -> u32 {
    let all = image.layout.inodes_per_group();
    match image.has_group_checksums() {
        true if image.is_without_inodes(group) => 0,
        true => all - image.groups[group.index()].unused_inodes_count,
        false => all,
    }
}

/// Writes a group's table at its place, inode by inode, and zeros after them.
fn store_table(
    image: &mut Image<'_>,
    group: GroupNumber,
    bytes: &[u8],
    new: &Layout,
    copy_inode: &InodeCopy<'_>,
) -> Result<()> {
    let (size, new_size) = (image.layout.inode_size(), new.inode_size());
    let used: BTreeSet<_> = image.used_inodes(group)?.into_iter().collect();
    let mut table = vec![0; bytes.len() / size * new_size];
    let inodes = bytes.chunks_exact(size).zip(table.chunks_exact_mut(new_size));
    for (bit, (from, to)) in (0..).zip(inodes) {
        match new.inode_of_bit(group, bit) {
            Some(number) if new_size != size && used.contains(&number) => {
                copy_inode(number, from, to)?;
            }
            number => {
                to[..size].copy_from_slice(from);
                // A deleted inode has a checksum, and nothing else need be right.
                if let Some(number) = number.filter(|_| from.iter().any(|&byte| byte != 0)) {
                    Inode::seal(to, number, new);
                }
            }
        }
    }
    let start = image.offset_of(image.groups[group.index()].inode_table);
    image.device.write_at(start, &table)?;
    let end = u64::from(new.inode_table_blocks()) << new.log_block_size();
    let written = table.len() as u64;
    image.device.zero_range(start + written, end - written)?;
    if image.has_group_checksums() {
        image.groups[group.index()].flags |= GroupFlags::INODE_ZEROED;
    }
    Ok(())
}
