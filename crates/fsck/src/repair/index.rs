//! Indexes of directories that lost theirs: built anew when everything else of the image holds.
//!
//! The rules for directories write them without an index, and add names to them. Only a sound directory
//! is worth an index.

use super::directories::blocks_of;
use super::fields;
use super::maps;
use super::repairer::Repairer;
use super::salvage::Footprint;
use crate::directory::{DirectoryContext, casefold_of};
use crate::image::Error;
use drystone_ext4_format::dir::{DirectoryBlock, NewEntry};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::hash::{NameHash, NameHasher};
use drystone_ext4_format::htree::{DirectoryPlan, build_hashed};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};

/// A larger directory stays without an index: its names would take too much memory.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

/// Gives a directory an index, if it has more than one block; whether something was written.
pub(super) fn build(repairer: &mut Repairer<'_, '_>, number: InodeNumber) -> Result<bool, Error> {
    let image = &repairer.checker.image;
    let layout = image.layout;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(false) };
    let is_possible = inode.is_directory()
        && layout.features().compat.contains(Compat::DIR_INDEX)
        && !inode.flags.intersects(InodeFlags::INDEX | InodeFlags::INLINE_DATA)
        && inode.size_bytes <= DIRECTORY_BYTES_MAX;
    if !is_possible {
        return Ok(false);
    }
    let context = DirectoryContext::new(image, inode);
    let old = blocks_of(repairer, &context)?;
    if old.len() < 2 {
        return Ok(false);
    }
    let Some(blocks) = built(repairer, &context, &old)? else { return Ok(false) };
    let Some(places) = places(repairer, &context, &old, blocks.len())? else { return Ok(false) };
    for (place, bytes) in places.into_iter().zip(&blocks) {
        repairer.write_block(place, bytes)?;
    }
    fields::set_size(repairer, number, (blocks.len() as u64) << layout.log_block_size())?;
    repairer.edit_fields(number, |inode| inode.flags.insert(InodeFlags::INDEX))?;
    Ok(true)
}

/// The blocks of the directory with an index; nothing if the names can't be hashed.
fn built(
    repairer: &Repairer<'_, '_>,
    context: &DirectoryContext,
    old: &[PhysicalBlock],
) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let image = &repairer.checker.image;
    let layout = &context.layout;
    let superblock = &image.superblock;
    // Names that are encrypted and fold have a function of their own, which needs a key.
    let version = superblock.hash_version().filter(|_| !layout.stores_hashes());
    let Some(version) = version else { return Ok(None) };
    let hasher = NameHasher::new(version, superblock.hash_seed());
    let casefold = if layout.casefolded { casefold_of(image) } else { None };
    let mut bytes = Vec::with_capacity(old.len());
    for block in old {
        bytes.push(image.read_block(*block)?);
    }
    let mut parent = InodeNumber::ROOT;
    let mut entries: Vec<(NameHash, NewEntry<'_>)> = Vec::new();
    for entry in bytes.iter().flat_map(|bytes| DirectoryBlock::trusted(bytes, layout).entries()) {
        if entry.is_dot() {
            if entry.name == b".." {
                parent = entry.inode;
            }
            continue;
        }
        let hash = match &casefold {
            Some(casefold) => hasher.hash(&casefold.key(entry.name)),
            None => hasher.hash(entry.name),
        };
        let (name, inode, entry_type) = (entry.name, entry.inode, entry.entry_type);
        entries.push((hash, NewEntry { name, inode, entry_type, hash: None }));
    }
    let is_large = image.layout.features().incompat.contains(Incompat::LARGE_DIR);
    let own = context.inode.number;
    let plan = DirectoryPlan { own, parent, layout, block_size: image.layout.block_size() };
    Ok(build_hashed(&plan, version, is_large, &mut entries).ok())
}

/// Gives the directory so many blocks: of those that it has the first ones, and new ones. Nothing if there
/// is no room.
fn places(
    repairer: &mut Repairer<'_, '_>,
    context: &DirectoryContext,
    old: &[PhysicalBlock],
    count: usize,
) -> Result<Option<Vec<PhysicalBlock>>, Error> {
    if count == old.len() {
        return Ok(Some(old.to_vec()));
    }
    let number = context.inode.number;
    let Some(mut pieces) = maps::take_apart(repairer, number)? else { return Ok(None) };
    // The number of blocks has 32 bits, as their addresses in the file.
    let mut extents: Vec<Extent> =
        pieces.extents.iter().filter_map(|extent| extent.overlap(0, count as u64)).collect();
    let mut places: Vec<PhysicalBlock> = old.iter().take(count).copied().collect();
    for logical in (places.len() as u32..count as u32).map(LogicalBlock::new) {
        let Some(physical) = repairer.allocate_for(&extents, logical)? else { return Ok(None) };
        places.push(physical);
        Extent::of_block(logical, physical).append_to(&mut extents);
    }
    let before = Footprint::of(&repairer.checker.image, &context.inode)?.clusters(repairer);
    pieces.extents = extents;
    if maps::store(repairer, pieces)?.is_none() {
        return Ok(None);
    }
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    let after = Footprint::of(&repairer.checker.image, &inode)?.clusters(repairer);
    let layout = repairer.checker.image.layout;
    let sectors = |clusters: u64| {
        (clusters << layout.log_cluster_ratio()).saturating_mul(layout.sectors_per_block())
    };
    repairer.edit_fields(number, |inode| {
        inode.sectors = (inode.sectors + sectors(after)).saturating_sub(sectors(before));
    })?;
    Ok(Some(places))
}
