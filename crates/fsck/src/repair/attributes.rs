//! Extended attributes: what can be read is encoded anew, and the rest dropped.

use super::fields;
use super::repairer::{Done, Repairer};
use super::salvage;
use crate::checker::Kept;
use crate::image::Error;
use drystone_ext4_format::block_map::set_pointer;
use drystone_ext4_format::extent::{Extent, ExtentNodeMut, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::xattr::{
    self, AttributeName, AttributePlace, AttributeSet, AttributeValue, AttributesBlock, XattrView,
};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::ops::Range;

const DONE: Done = Some("the attributes were written anew, without what can't be read");

/// Where an inode names its attribute block.
const ATTRIBUTE_BLOCK_LOW: Range<usize> = 104..108;
const ATTRIBUTE_BLOCK_HIGH: Range<usize> = 118..120;

/// Where the inode of a value has the value's hash.
const VALUE_HASH: Range<usize> = 8..12;

/// Fields of an attribute block's header: magic number, references, blocks.
const BLOCK_HEADER: Range<usize> = 0..12;

/// Encodes the attributes of an inode anew, in the inode and in its block.
pub(super) fn rewrite(repairer: &mut Repairer<'_, '_>, number: InodeNumber) -> Result<Done, Error> {
    rewrite_area(repairer, number)?;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    match inode.attribute_block {
        Some(block) => rewrite_block(repairer, number, block),
        None => Ok(DONE),
    }
}

/// The attributes that are worth keeping.
fn kept(repairer: &Repairer<'_, '_>, attributes: &XattrView<'_>) -> AttributeSet {
    let mut set = AttributeSet::read(attributes);
    let bad: Vec<AttributeName> = set
        .iter()
        .filter(|(name, value)| {
            let is_lost = match value {
                AttributeValue::Inline(_) => false,
                AttributeValue::Inode { inode, length, .. } => {
                    !repairer.holds_value(*inode, u64::from(*length))
                }
            };
            name.index == 0 || name.suffix.contains(&0) || is_lost
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in bad {
        set.remove(&name);
    }
    // The hash of an entry follows from the one that the value's inode has.
    let values: Vec<_> = set
        .iter()
        .filter_map(|(name, value)| match *value {
            AttributeValue::Inode { inode, length, .. } => {
                let (_, bytes) = repairer.checker.image.inode(inode).ok()??;
                let hash = u32::from_le_bytes(*bytes.get(VALUE_HASH)?.first_chunk()?);
                Some((name.clone(), AttributeValue::in_inode(name, inode, length, hash)))
            }
            AttributeValue::Inline(_) => None,
        })
        .collect();
    for (name, value) in values {
        set.set(name, value);
    }
    set
}

pub(super) fn rewrite_area(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let Some((mut inode, mut bytes)) = repairer.checker.image.inode(number)? else {
        return Ok(None);
    };
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        if let Some(done) = salvage::restore_extra_size(repairer, number)? {
            return Ok(Some(done));
        }
        let Some(again) = repairer.checker.image.inode(number)? else { return Ok(None) };
        (inode, bytes) = again;
    }
    let range = inode.attribute_area(&layout);
    let Some(area) = bytes.get(range.clone()) else { return Ok(DONE) };
    let place = AttributePlace { inode: number, block: None };
    let checked = XattrView::check_in_inode(area, place);
    // What has no attributes stays as it is.
    let is_bare = checked.as_ref().is_ok_and(|attributes| attributes.iter().next().is_none());
    let mut set = checked.map(|attributes| kept(repairer, &attributes)).unwrap_or_default();
    let is_inline = inode.flags.contains(InodeFlags::INLINE_DATA);
    let name = AttributeName::inline_data();
    let is_missing = is_inline && set.get(&name).is_none();
    if is_missing {
        set.set(name, AttributeValue::Inline(Vec::new()));
    }
    if set.is_empty() && is_bare {
        return Ok(DONE);
    }
    let mut encoded = vec![0; range.len()];
    if set.encode_in_inode(&mut encoded).is_err() {
        return if is_missing { give_up_inline(repairer, &inode) } else { Ok(None) };
    }
    repairer.edit_inode(number, |bytes| bytes[range].copy_from_slice(&encoded))?;
    if is_missing {
        let size = inode.size_bytes.min(60);
        fields::set_size(repairer, number, size)?;
    }
    Ok(DONE)
}

/// Gives a file a block for its inline data, for whose attribute it has no room.
fn give_up_inline(repairer: &mut Repairer<'_, '_>, inode: &Inode) -> Result<Done, Error> {
    if !inode.is_regular() {
        return repairer.clear_inode(inode.number);
    }
    let layout = repairer.checker.image.layout;
    let length = inode.block_area.len().min(inode.size_bytes as usize);
    let mut area = [0; BLOCK_AREA_BYTES];
    let has_extents = layout.features().incompat.contains(Incompat::EXTENTS);
    if length > 0 {
        let Some(block) = repairer.allocate()? else { return Ok(None) };
        if has_extents {
            let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(inode.number), 0);
            root.insert_extent(0, &Extent::of_block(LogicalBlock::FIRST, block));
        } else if u32::try_from(block.get()).is_ok() {
            set_pointer(&mut area, 0, Some(block));
        } else {
            return Ok(None);
        }
        let mut bytes = repairer.checker.image.block_buffer();
        bytes[..length].copy_from_slice(&inode.block_area[..length]);
        repairer.write_block(block, &bytes)?;
    } else if has_extents {
        ExtentNodeMut::init(&mut area, NodePlace::root(inode.number), 0);
    }
    repairer.edit_fields(inode.number, |inode| {
        inode.flags.remove(InodeFlags::INLINE_DATA);
        inode.flags.set(InodeFlags::EXTENTS, has_extents);
        inode.block_area = area;
        inode.size_bytes = length as u64;
    })?;
    Ok(Some("the file got a block for its data: the inode has no room for them"))
}

pub(super) fn rewrite_block(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    block: PhysicalBlock,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    if !layout.contains_blocks(block, 1) || !repairer.is_alone(block) {
        return drop_block(repairer, number);
    }
    let mut bytes = repairer.checker.image.read_block(block)?;
    let place = AttributePlace { inode: number, block: Some(block) };
    if AttributesBlock::check(&bytes, place).is_err() {
        // The header of a block that is one: its magic number, one reference, one block.
        let header = xattr_header();
        if bytes[..4] == header[..4] || bytes[8..12] == header[8..12] {
            bytes[BLOCK_HEADER].copy_from_slice(&header);
        }
    }
    let (set, references) = match AttributesBlock::check(&bytes, place) {
        Ok(found) => (kept(repairer, &found.attributes()), found.reference_count()),
        Err(_) => return drop_block(repairer, number),
    };
    let mut encoded = repairer.checker.image.block_buffer();
    if set.is_empty() || set.encode_block(&mut encoded, references).is_err() {
        return drop_block(repairer, number);
    }
    xattr::seal_block(&mut encoded, layout.checksum_seed(), block);
    repairer.write_block(block, &encoded)?;
    Ok(DONE)
}

fn xattr_header() -> [u8; 12] {
    let mut header = [0; 12];
    for (place, number) in header.chunks_exact_mut(4).zip([0xea02_0000u32, 1, 1]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    header
}

/// Takes the attribute block from an inode.
pub(super) fn drop_block(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    repairer.edit_inode(number, |bytes| {
        bytes[ATTRIBUTE_BLOCK_LOW].fill(0);
        bytes[ATTRIBUTE_BLOCK_HIGH].fill(0);
    })?;
    Ok(Some("the inode's attribute block was given up"))
}

/// Takes attribute blocks from all inodes that have them where none can be.
pub(super) fn drop_impossible(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    const SWEPT: Done = Some("attribute blocks outside of the image were given up");
    if repairer.is_swept {
        return Ok(SWEPT);
    }
    repairer.is_swept = true;
    let checker = &*repairer.checker;
    let layout = checker.image.layout;
    let sound = checker.kept.as_ref().map(Kept::runs).unwrap_or_default();
    let mut impossible = Vec::new();
    for group in layout.groups() {
        let doubtful = checker.states.used_in(group).filter(|inode| !sound.contain(inode.get()));
        checker.image.visit_inodes(doubtful, |inode| {
            let is_impossible = inode.attribute_block.is_some_and(|block| {
                !layout.contains_blocks(block, 1)
                    || block.get() <= u64::from(layout.first_data_block())
            });
            impossible.extend(is_impossible.then_some(inode.number));
            Ok(())
        })?;
    }
    let mut done = None;
    for number in impossible {
        if drop_block(repairer, number)?.is_some() {
            done = SWEPT;
        }
    }
    Ok(done)
}
