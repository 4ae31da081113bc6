//! Larger inodes, and descriptors for 64-bit block numbers.

use super::Tuned;
use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::progress::ReshapeProgress;
use crate::relocate::change_layout;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::{Inode, KNOWN_EXTRA_BYTES};
use drystone_ext4_format::layout::{
    BASE_INODE_BYTES, Geometry, LARGE_DESCRIPTOR_BYTES, Layout, SMALL_DESCRIPTOR_BYTES,
};
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::xattr::{AttributePlace, AttributeSet, MAGIC, XattrView};

/// Checks that inodes can get this size.
pub(super) fn check_inode_size(superblock: &Superblock, bytes: u16) -> Result<(), Refusal> {
    let layout = superblock.layout();
    let (before, block_size) = (layout.inode_size(), layout.block_size());
    let refuse = |text: String| Err(Refusal::Value(text));
    if !bytes.is_power_of_two() || bytes < BASE_INODE_BYTES || usize::from(bytes) > block_size {
        return refuse(format!(
            "inodes can't have {bytes} bytes: a power of two from {BASE_INODE_BYTES} to the block \
             size, {block_size}, is possible"
        ));
    }
    if usize::from(bytes) < before {
        return refuse(format!(
            "its inodes have {before} bytes and can't get fewer: what the rest holds would be lost"
        ));
    }
    Ok(())
}

/// Checks that all inodes in use have the extra fields that new features need.
pub(super) fn check_extra_fields(image: &Image<'_>, features: ReadOnlyCompat) -> Result<()> {
    let promised = image.superblock.min_extra_inode_size().max(KNOWN_EXTRA_BYTES);
    let mut lacking = 0u64;
    for group in image.layout.groups() {
        for number in image.used_inodes(group)? {
            let (inode, _) = image.read_inode(number)?;
            // Some inodes of the file system itself are empty.
            lacking += u64::from(inode.mode != 0 && inode.extra_size < promised);
        }
    }
    if lacking > 0 {
        let bytes = image.layout.inode_size();
        let features = Features { read_only_compat: features, ..Features::NONE };
        let problem = format!(
            "it can't get {features}: {lacking} of its inodes, of {bytes} bytes, lack the extra fields"
        );
        return Err(Refusal::Value(problem).into());
    }
    Ok(())
}

/// Gives all inodes more bytes.
pub(super) fn enlarge_inodes(
    image: &mut Image<'_>,
    bytes: u16,
    tuned: &mut Tuned,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let old = image.layout;
    if old.inode_size() == usize::from(bytes) {
        return Ok(());
    }
    let mut geometry = image.superblock.geometry();
    geometry.inode_size = bytes;
    // Inodes that have extra fields may have fewer.
    let are_bare = old.inode_size() == usize::from(BASE_INODE_BYTES);
    if are_bare {
        image.superblock.set_min_extra_inode_size(KNOWN_EXTRA_BYTES);
    }
    if are_bare || image.superblock.wanted_extra_inode_size() == 0 {
        image.superblock.set_wanted_extra_inode_size(KNOWN_EXTRA_BYTES);
        geometry.extra_inode_size = KNOWN_EXTRA_BYTES;
    }
    let new = Layout::new(&geometry)?;
    let copy =
        |number: InodeNumber, from: &[u8], to: &mut [u8]| widen(number, from, to, &old, &new);
    tuned.blocks_moved += change_layout(image, &geometry, &copy, progress)?;
    Ok(())
}

/// Writes an inode into more bytes, with all extra fields, and its attributes where there is room now.
fn widen(
    number: InodeNumber,
    from: &[u8],
    to: &mut [u8],
    old: &Layout,
    new: &Layout,
) -> Result<()> {
    to[..from.len()].copy_from_slice(from);
    if from.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let mut inode = Inode::read(from, number, old)?;
    let area = inode.attribute_area(old);
    let is_bare = old.inode_size() == usize::from(BASE_INODE_BYTES);
    if is_bare {
        inode.extra_size = new.extra_inode_size();
    } else if from[area.clone()].starts_with(&MAGIC.to_le_bytes()) {
        let place = AttributePlace { inode: number, block: None };
        let attributes = AttributeSet::read(&XattrView::check_in_inode(&from[area], place)?);
        let area = inode.attribute_area(new);
        // More room than before.
        attributes.encode_in_inode(&mut to[area]).map_err(|_| Refusal::HasErrors)?;
    }
    Ok(inode.encode_into(to, new)?)
}

/// Gives descriptors 64 or 32 bytes.
pub(super) fn set_sixty_four_bit(
    image: &mut Image<'_>,
    is_on: bool,
    tuned: &mut Tuned,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    if image.superblock.features().incompat.contains(Incompat::SIXTY_FOUR_BIT) == is_on {
        return Ok(());
    }
    let geometry = sixty_four_bit(&image.superblock, is_on);
    // Inodes keep their size, and so their bytes.
    let copy = |_: InodeNumber, _: &[u8], _: &mut [u8]| Ok(());
    tuned.blocks_moved += change_layout(image, &geometry, &copy, progress)?;
    Ok(())
}

/// The geometry with descriptors of another size. The table takes reserved blocks, or gives blocks back to the reserve.
fn sixty_four_bit(superblock: &Superblock, is_on: bool) -> Geometry {
    let layout = superblock.layout();
    let mut geometry = superblock.geometry();
    geometry.features.incompat.set(Incompat::SIXTY_FOUR_BIT, is_on);
    geometry.descriptor_size = if is_on { LARGE_DESCRIPTOR_BYTES } else { SMALL_DESCRIPTOR_BYTES };
    let per_block = layout.block_size() as u32 / u32::from(geometry.descriptor_size);
    let (before, after) = (layout.descriptor_blocks(), layout.group_count().div_ceil(per_block));
    if geometry.features.incompat.contains(Incompat::META_BG) {
        geometry.first_meta_group = geometry.first_meta_group.min(after);
    } else if geometry.features.compat.contains(Compat::RESIZE_INODE) {
        // One block of pointers lists them.
        let most = layout.block_size() as u32 / 4;
        let left = (before + layout.reserved_descriptor_blocks()).saturating_sub(after);
        geometry.reserved_descriptor_blocks = left.min(most) as u16;
    }
    geometry
}
