//! What a damaged field of an inode hides, and other fields still prove: its type, the target of a link,
//! the end of a node.

use super::fields;
use super::repairer::{Done, Repairer};
use crate::block_set::BlockSet;
use crate::image::{Error, Image};
use crate::inode_content::target_length;
use crate::mapping::{self, MapEvent};
use drystone_blockdev::{BlockDevice, Overlay};
use drystone_ext4_format::extent::{Extent, ExtentNode, ExtentNodeMut, NodePlace};
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags, ModeFileType};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock, xattr};
use std::ops::Range;

/// Where a node counts its entries.
const ENTRY_COUNT: Range<usize> = 2..4;

/// Bytes of an inode without extra fields, and where their size lies.
const BASE_BYTES: usize = 128;
const EXTRA_SIZE: Range<usize> = 128..130;

/// Bytes of a node's header, and of each entry.
const ENTRY_BYTES: usize = 12;

/// Nodes of a map that are looked at for hidden entries.
const NODES_MAX: usize = 256;

/// Makes an inode a directory or a file again whose type says that it can't have the blocks that it has;
/// nothing if it has none.
pub(super) fn restore_type(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(None);
    }
    let extents = mapping::extents_of(&repairer.checker.image, &inode)?;
    let is_own = |extent: &Extent| repairer.is_unclaimed(extent);
    // What other inodes have was never this one's.
    if extents.is_empty() || inode.size_bytes == 0 || !extents.iter().all(is_own) {
        return Ok(None);
    }
    let kind = match holds_directory(repairer, &inode, &extents)? {
        true => ModeFileType::Directory,
        false => ModeFileType::Regular,
    };
    fields::set_type(repairer, number, kind)
}

/// Makes an inode a directory again that a name says to be one, and whose first block is a directory's.
pub(super) fn restore_directory(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if inode.is_directory() || inode.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(None);
    }
    let extents = mapping::extents_of(&repairer.checker.image, &inode)?;
    match holds_directory(repairer, &inode, &extents)? {
        true => fields::set_type(repairer, number, ModeFileType::Directory),
        false => Ok(None),
    }
}

/// Gives a link its size back whose target lies in a block, though its size says that the inode holds
/// the target; nothing if it has no such block.
pub(super) fn restore_link_size(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let image = &repairer.checker.image;
    let Some((mut inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    // The target of an encrypted link is not text.
    if !inode.is_fast_symlink() || inode.flags.contains(InodeFlags::ENCRYPT) {
        return Ok(None);
    }
    // The least size that has a block.
    inode.size_bytes = BLOCK_AREA_BYTES as u64;
    let map = Footprint::of(image, &inode)?;
    let [extent] = &map.extents[..] else { return Ok(None) };
    let clusters = map.clusters(repairer) + u64::from(inode.attribute_block.is_some());
    let per_cluster = image.layout.sectors_per_block() << image.layout.log_cluster_ratio();
    let is_its_target = extent.logical == LogicalBlock::FIRST
        && extent.length == 1
        && !extent.unwritten
        && !map.is_broken
        && repairer.is_unclaimed(extent)
        && inode.sectors == clusters * per_cluster;
    // A short target may look like a pointer to what somebody has deleted.
    if !is_its_target || !repairer.is_marked(extent.physical)? {
        return Ok(None);
    }
    let Some(length) = target_length(&image.read_block(extent.physical)?) else { return Ok(None) };
    fields::set_size(repairer, number, length)?;
    Ok(Some("the link got the size of its target back"))
}

/// Finds the attributes of an inode with inline data whose extra fields have another size than they say.
pub(super) fn restore_extra_size(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let Some((inode, bytes)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    let holds_attributes =
        |start: usize| bytes.get(start..start + 4) == Some(&xattr::MAGIC.to_le_bytes()[..]);
    if holds_attributes(inode.attribute_area(&layout).start) {
        return Ok(None);
    }
    let wanted = usize::from(layout.extra_inode_size());
    let possible = [wanted].into_iter().chain((4..=layout.inode_size() - BASE_BYTES).step_by(4));
    for size in possible.filter(|size| *size > 0) {
        if holds_attributes(BASE_BYTES + size) {
            fields::set(repairer, number, EXTRA_SIZE, size as u64)?;
            return Ok(Some("the inode's extra fields got their size back"));
        }
    }
    if wanted > 0 && bytes.get(EXTRA_SIZE) == Some(&[0, 0]) {
        // Readers look for attributes behind extra fields only.
        fields::set(repairer, number, EXTRA_SIZE, wanted as u64)?;
    }
    Ok(None)
}

/// Whether the first block of an inode starts with the entry that names the inode itself, and `..`.
fn holds_directory(
    repairer: &Repairer<'_, '_>,
    inode: &Inode,
    extents: &[Extent],
) -> Result<bool, Error> {
    let image = &repairer.checker.image;
    let Some(block) = mapping::find_written(extents, LogicalBlock::FIRST) else { return Ok(false) };
    let size = inode.size_bytes;
    if size == 0 || !size.is_multiple_of(image.layout.block_size() as u64) {
        return Ok(false);
    }
    let bytes = image.read_block(block)?;
    let starts = bytes.starts_with(&inode.number.get().to_le_bytes());
    let dot = bytes.get(4..10).is_some_and(|rest| rest[..3] == [12, 0, 1] && rest[4..] == *b".\0");
    let dotdot = bytes.get(18) == Some(&2) && bytes.get(20..23) == Some(b"..\0");
    Ok(starts && dot && dotdot)
}

/// Gives a node of an inode's extent tree the entries back that its count hides, if the inode then has
/// the `sectors` that it says; nothing if there are no such entries.
pub(super) fn uncover_entries(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
    missing_clusters: u64,
) -> Result<Done, Error> {
    let image = &repairer.checker.image;
    let layout = image.layout;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        return Ok(None);
    }
    let before = Footprint::of(image, &inode)?;
    let mut places = vec![None];
    places.extend(before.nodes.iter().take(NODES_MAX).map(|block| Some(*block)));
    for place in places {
        let old = match place {
            None => inode.block_area.to_vec(),
            Some(block) => image.read_block(block)?,
        };
        let node_place = NodePlace { inode: number, block: place };
        let Ok(node) = ExtentNode::reopen(&old, node_place) else { continue };
        for count in node.len() + 1..=node.capacity() {
            let entry = old.get(count * ENTRY_BYTES..(count + 1) * ENTRY_BYTES);
            if entry.is_none_or(|entry| entry.iter().all(|&byte| byte == 0)) {
                break;
            }
            let mut new = old.clone();
            // A node has at most as many entries as 16 bits count.
            new[ENTRY_COUNT].copy_from_slice(&(count as u16).to_le_bytes());
            if let Ok(mut node) = ExtentNodeMut::reopen(&mut new, node_place) {
                node.seal(inode.seed(&layout));
            }
            let overlay = Overlay::new(image.device);
            let mut changed = inode.clone();
            match place {
                None => changed.block_area.copy_from_slice(&new),
                Some(block) => overlay.write_at(block.get() << layout.log_block_size(), &new)?,
            }
            let after = Footprint::of(&Image::new(&overlay, image.superblock.clone()), &changed)?;
            if after.is_broken {
                break;
            }
            let is_whole = after.clusters(repairer) == before.clusters(repairer) + missing_clusters;
            let is_own = after
                .extents
                .iter()
                .all(|extent| before.extents.contains(extent) || repairer.is_unclaimed(extent));
            if is_whole && is_own {
                match place {
                    None => repairer
                        .edit_fields(number, |inode| inode.block_area = changed.block_area)?,
                    Some(block) => repairer.write_block(block, &new).map(Some)?.map(|()| ""),
                };
                return Ok(Some("the map got the entries back that a count hid"));
            }
        }
    }
    Ok(None)
}

/// The same for a node that says that it has none, by the sectors that the inode says it has.
pub(super) fn uncover_node(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    let held = Footprint::of(&repairer.checker.image, &inode)?.clusters(repairer)
        + u64::from(inode.attribute_block.is_some());
    let per_cluster = layout.sectors_per_block() << layout.log_cluster_ratio();
    match (inode.sectors / per_cluster).saturating_sub(held) {
        0 => Ok(None),
        missing => uncover_entries(repairer, number, missing),
    }
}

/// What a map refers to.
#[derive(Default)]
pub(super) struct Footprint {
    extents: Vec<Extent>,
    nodes: Vec<PhysicalBlock>,
    is_broken: bool,
}

impl Footprint {
    pub fn of(image: &Image<'_>, inode: &Inode) -> Result<Self, Error> {
        let mut found = Self::default();
        let mut visited = BlockSet::new(image.layout.blocks_count());
        mapping::walk(image, inode, &mut visited, &mut |event| match event {
            MapEvent::Extent(extent) => found.extents.push(extent),
            MapEvent::Node(block) => found.nodes.push(block),
            MapEvent::Issue(_) | MapEvent::Misplaced(_) => found.is_broken = true,
        })?;
        Ok(found)
    }

    pub fn clusters(&self, repairer: &Repairer<'_, '_>) -> u64 {
        let mut own = crate::claims::InodeClaims::default();
        for extent in &self.extents {
            own.next(&repairer.checker.found.claims, extent);
        }
        own.count + self.nodes.len() as u64
    }
}
