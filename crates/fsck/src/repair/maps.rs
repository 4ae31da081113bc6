//! Maps of files: made anew from the extents that hold.
//!
//! A map is never repaired in place. The extents that can be read are collected, changed as the problem
//! asks, and a new map is written: into new blocks, and only if there are none into its old ones.

use super::fields;
use super::map_writer;
use super::repairer::{Done, Repairer};
use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::image::Error;
use crate::inode_content::maps_blocks;
use crate::mapping::{self, MapEvent};
use drystone_ext4_format::extent::{Extent, ExtentNode, NodeExpectation, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::xattr::{self, AttributePlace, AttributesBlock};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where the root of a map lies in an inode.
const BLOCK_AREA: Range<usize> = 40..40 + BLOCK_AREA_BYTES;

/// A map, taken apart.
pub(super) struct Pieces {
    pub inode: Inode,
    /// In order, without overlaps.
    pub extents: Vec<Extent>,
    /// Blocks of the map that nothing else uses.
    nodes: Vec<PhysicalBlock>,
}

/// Takes the map of an inode apart; nothing if it has none.
pub(super) fn take_apart(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Option<Pieces>, Error> {
    let image = &repairer.checker.image;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if !maps_blocks(&inode, &image.layout) {
        return Ok(None);
    }
    let claims = &repairer.checker.found.claims;
    let mut visited = BlockSet::new(image.layout.blocks_count());
    let (mut found, mut nodes, mut misplaced) = (Vec::new(), Vec::new(), BTreeSet::new());
    // What the extents in their place take: with a wrong length the blocks of those that follow, too.
    let mut own = BlockSet::new(claims.bound());
    let mut own_twice = BlockSet::new(claims.bound());
    mapping::walk(image, &inode, &mut visited, &mut |event| match event {
        MapEvent::Extent(extent) => {
            own.insert_range(clusters_of(claims, &extent), &mut own_twice);
            found.push(extent);
        }
        MapEvent::Misplaced(extent) => {
            misplaced.insert(found.len());
            found.push(extent);
        }
        MapEvent::Node(block) if repairer.is_alone(block) => nodes.push(block),
        MapEvent::Node(_) | MapEvent::Issue(_) => {}
    })?;
    if !misplaced.is_empty() {
        let holds = |set: &BlockSet, cluster: u64| set.has_any(cluster..cluster + 1);
        let is_own = |extent: &Extent| {
            claims.used.runs(clusters_of(claims, extent)).into_iter().flatten().all(|cluster| {
                let is_alone = holds(&own, cluster) && !holds(&claims.twice, cluster);
                is_alone || holds(&own_twice, cluster)
            })
        };
        let possible = (0..).zip(&found);
        let possible: Vec<Extent> = possible
            .filter(|(position, extent)| !misplaced.contains(position) || is_own(extent))
            .map(|(_, extent)| *extent)
            .collect();
        found = longest_chain(&possible);
        cut_overlaps(claims, &mut found);
    }
    found.sort_by_key(|extent: &Extent| extent.logical);
    let mut extents: Vec<Extent> = Vec::with_capacity(found.len());
    for extent in found {
        if extents.last().is_none_or(|last| last.logical_end() <= extent.logical.as_u64()) {
            extents.push(extent);
        }
    }
    nodes.dedup();
    Ok(Some(Pieces { inode, extents, nodes }))
}

/// Extents in a row that are compared with all others.
const CHAIN_MAX: usize = 4096;

fn clusters_of(claims: &Claims, extent: &Extent) -> Range<u64> {
    claims.clusters(extent.physical.get(), extent.physical_end().get())
}

/// Cuts extents of a chain that reach into the next one: before it, and before blocks that others have.
fn cut_overlaps(claims: &Claims, chain: &mut [Extent]) {
    for position in 1..chain.len() {
        let next = chain[position].logical;
        let mut extent = chain[position - 1];
        if extent.logical_end() <= next.as_u64() {
            continue;
        }
        let (start, end) = (extent.physical.get(), extent.physical_end().get());
        let others = chain.iter().map(|other| other.physical.get());
        let owned = claims.twice.runs(clusters_of(claims, &extent)).into_iter().flatten();
        let limit = others
            .chain(owned.map(|cluster| claims.block(cluster).get()))
            .filter(|&block| start < block && block < end)
            .min()
            .unwrap_or(end);
        // No longer than the extent was.
        extent.length = (limit - start).min(next.as_u64() - extent.logical.as_u64()) as u32;
        chain[position - 1] = extent;
    }
}

/// Of extents in stored order the most that start behind each other in the file: an entry that is damaged is
/// left out, and not those behind it.
fn longest_chain(found: &[Extent]) -> Vec<Extent> {
    if found.len() > CHAIN_MAX {
        return found.to_vec();
    }
    // Extents and blocks of the best chain that ends with each, and the one before it.
    let mut best: Vec<((usize, u64), Option<usize>)> = Vec::with_capacity(found.len());
    for (position, extent) in found.iter().enumerate() {
        let before = (0..position)
            .filter(|&before| found[before].logical < extent.logical)
            .max_by_key(|&before| best[before].0);
        let (count, blocks) = before.map_or((0, 0), |before| best[before].0);
        best.push(((count + 1, blocks + u64::from(extent.length)), before));
    }
    let mut next = (0..found.len()).max_by_key(|&position| best[position].0);
    let mut chain = Vec::new();
    while let Some(position) = next {
        chain.push(found[position]);
        next = best[position].1;
    }
    chain.reverse();
    chain
}

/// Makes the map of an inode anew from the extents for which `change` gives something.
pub(super) fn rebuild(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    change: impl FnMut(Extent) -> Option<Extent>,
) -> Result<Done, Error> {
    const DONE: Done = Some("the map was made anew from what of it holds");
    if !repairer.rebuilt_maps.insert(number.get()) {
        return Ok(DONE);
    }
    let Some(mut pieces) = take_apart(repairer, number)? else { return Ok(None) };
    pieces.extents = pieces.extents.into_iter().filter_map(change).collect();
    // What such a directory named is connected to lost+found; a reserved inode without a type is unused.
    if pieces.extents.is_empty() && number == InodeNumber::ROOT {
        return Ok(None);
    }
    let is_useless = pieces.inode.is_directory() || pieces.inode.mode == 0;
    if pieces.extents.is_empty() && is_useless {
        return repairer.clear_inode(number);
    }
    Ok(store(repairer, pieces)?.and(DONE))
}

/// Whether an inode holds the root of an extent tree, and only the flag is lost that says so: what is wrong with its
/// pointers is wrong because they are none.
pub(super) fn has_unflagged_tree(
    repairer: &Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<bool, Error> {
    let image = &repairer.checker.image;
    let Some((inode, _)) = image.inode(number)? else { return Ok(false) };
    let root = || {
        let (place, expected) = (NodePlace::root(number), &NodeExpectation::ROOT);
        ExtentNode::check(&inode.block_area, place, expected, &image.layout)
    };
    Ok(image.layout.features().incompat.contains(Incompat::EXTENTS)
        && inode.has_block_mapping()
        && !inode.flags.contains(InodeFlags::EXTENTS)
        && root().is_ok_and(|root| !root.is_empty()))
}

/// Gives an inode an extent tree in place of pointers, or only the flag if it has the root of one.
pub(super) fn use_extents(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if ExtentNode::reopen(&inode.block_area, NodePlace::root(number)).is_err() {
        let Some(mut pieces) = take_apart(repairer, number)? else { return Ok(None) };
        pieces.inode.flags.insert(InodeFlags::EXTENTS);
        if store(repairer, pieces)?.is_none() {
            return Ok(None);
        }
    }
    repairer.rebuilt_maps.insert(number.get());
    fields::set_flags(repairer, number, InodeFlags::EXTENTS)
}

/// Writes a map of these pieces.
pub(super) fn store(repairer: &mut Repairer<'_, '_>, pieces: Pieces) -> Result<Done, Error> {
    let Pieces { inode, extents, nodes } = pieces;
    let Some(area) = map_writer::write(repairer, &inode, extents, nodes)? else { return Ok(None) };
    repairer.edit_inode(inode.number, |bytes| bytes[BLOCK_AREA].copy_from_slice(&area))
}

/// Gives an inode copies of the blocks that it shares with another owner.
pub(super) fn unshare(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    is_own_twice: bool,
) -> Result<Done, Error> {
    if let Some(done) = repairer.unshared.get(&number.get()) {
        return Ok(*done);
    }
    let done = if repairer.rebuilt_maps.insert(number.get()) {
        unshare_map(repairer, number, is_own_twice)?
    } else {
        GOT_COPIES
    };
    repairer.unshared.insert(number.get(), done);
    Ok(done)
}

/// Bytes that are copied at once.
const COPY_BYTES_MAX: u64 = 256 << 10;

/// Copies of blocks that are to be made. Neighbours are copied together.
#[derive(Default)]
struct BlockCopies {
    /// From where to where, and how many.
    runs: Vec<(u64, u64, u64)>,
    /// The clusters that were taken for them.
    taken: Vec<PhysicalBlock>,
}

impl BlockCopies {
    fn add(&mut self, from: PhysicalBlock, to: PhysicalBlock) {
        let (from, to) = (from.get(), to.get());
        match self.runs.last_mut() {
            Some((start, target, count)) if *start + *count == from && *target + *count == to => {
                *count += 1;
            }
            _ => self.runs.push((from, to, 1)),
        }
    }

    fn make(&self, repairer: &Repairer<'_, '_>) -> Result<(), Error> {
        let image = &repairer.checker.image;
        let log_block_size = image.layout.log_block_size();
        let count_max = COPY_BYTES_MAX >> log_block_size;
        let mut buffer = Vec::new();
        for (from, to, count) in &self.runs {
            for done in (0..*count).step_by(count_max as usize) {
                buffer.resize((count_max.min(count - done) << log_block_size) as usize, 0);
                image.read_blocks(PhysicalBlock::new(from + done), &mut buffer)?;
                image.device.write_at((to + done) << log_block_size, &buffer)?;
            }
        }
        Ok(())
    }
}

const GOT_COPIES: Done = Some("the inode got copies of the blocks that it shared");

fn unshare_map(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    is_own_twice: bool,
) -> Result<Done, Error> {
    const NO_ROOM: Done = Some("the inode lost blocks that it shared: there is no room for copies");
    let mut done = GOT_COPIES;
    let layout = repairer.checker.image.layout;
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    unshare_attributes(repairer, &inode)?;
    let Some(mut pieces) = take_apart(repairer, number)? else { return Ok(GOT_COPIES) };
    let ratio = u64::from(layout.blocks_per_cluster());
    let mut met = BlockSet::new(repairer.checker.found.claims.bound());
    // The last cluster of the file, and where it lies.
    let mut current: Option<(u64, u64)> = None;
    let (mut unshared, mut own): (Vec<Extent>, Vec<Extent>) = (Vec::new(), Vec::new());
    let mut copies = BlockCopies::default();
    for extent in std::mem::take(&mut pieces.extents) {
        for offset in 0..extent.length {
            let (Some(logical), Some(mut physical)) = (
                extent.logical.checked_add(offset),
                extent.physical.checked_add(u64::from(offset)),
            ) else {
                break;
            };
            let cluster = repairer.checker.found.claims.cluster(physical.get());
            let file_cluster = logical.as_u64() / ratio;
            let target = match current {
                Some((last, target)) if last == file_cluster => target,
                _ => {
                    let is_shared =
                        repairer.checker.found.claims.twice.has_any(cluster..cluster + 1);
                    // One that the inode has twice stays in the first place.
                    let stays = if is_own_twice { met.insert(cluster) } else { !is_shared };
                    if stays {
                        cluster
                    } else if let Some(block) = repairer.allocate()? {
                        copies.taken.push(block);
                        repairer.checker.found.claims.cluster(block.get())
                    } else {
                        done = NO_ROOM;
                        current = None;
                        continue;
                    }
                }
            };
            current = Some((file_cluster, target));
            if target != cluster {
                let start = repairer.checker.found.claims.block(target).get();
                let place = PhysicalBlock::new(start + logical.as_u64() % ratio);
                // What was never written reads as zeros wherever it lies.
                if !extent.unwritten {
                    copies.add(physical, place);
                }
                physical = place;
            }
            let next = Extent { logical, length: 1, physical, unwritten: extent.unwritten };
            next.append_to(&mut unshared);
            if target == cluster {
                next.append_to(&mut own);
            }
        }
    }
    let (inode, nodes) = (pieces.inode.clone(), pieces.nodes.clone());
    if store(repairer, Pieces { inode, extents: unshared, nodes })?.is_some() {
        copies.make(repairer)?;
        return Ok(done);
    }
    repairer.give_back(copies.taken);
    // Where there is no room for the nodes of such a map either, the inode keeps what needs fewer or none.
    let few: Vec<Extent> = own.iter().take(map_writer::ROOT_ENTRIES).copied().collect();
    for extents in [own, few, Vec::new()] {
        let (inode, nodes) = (pieces.inode.clone(), pieces.nodes.clone());
        if store(repairer, Pieces { inode, extents, nodes })?.is_some() {
            return Ok(NO_ROOM);
        }
    }
    Ok(None)
}

/// Gives an inode an attribute block of its own, if something else has its block.
fn unshare_attributes(repairer: &mut Repairer<'_, '_>, inode: &Inode) -> Result<(), Error> {
    let Some(block) = inode.attribute_block else { return Ok(()) };
    if repairer.is_alone(block) || !repairer.checker.image.layout.contains_blocks(block, 1) {
        return Ok(());
    }
    let number = inode.number;
    let mut bytes = repairer.checker.image.read_block(block)?;
    let place = AttributePlace { inode: number, block: Some(block) };
    let is_sound = AttributesBlock::check(&bytes, place).is_ok();
    let Some(copy) = repairer.allocate()?.filter(|_| is_sound) else {
        super::attributes::drop_block(repairer, number)?;
        return Ok(());
    };
    xattr::set_reference_count(&mut bytes, 1);
    xattr::seal_block(&mut bytes, repairer.checker.image.layout.checksum_seed(), copy);
    repairer.write_block(copy, &bytes)?;
    repairer.edit_fields(number, |inode| inode.attribute_block = Some(copy))?;
    Ok(())
}

/// Moves the blocks of a directory together, so that it has no hole, and takes all for written.
pub(super) fn close_holes(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let mut end = 0;
    let mut unwritten = Vec::new();
    let closed = rebuild(repairer, number, |extent| {
        let logical = LogicalBlock::new(end);
        end = end.checked_add(extent.length)?;
        if extent.unwritten {
            unwritten.push(extent);
        }
        Some(Extent { logical, unwritten: false, ..extent })
    })?;
    if closed.is_none() {
        return Ok(None);
    }
    let zeros = vec![0; layout.block_size()];
    for extent in unwritten {
        for offset in 0..u64::from(extent.length) {
            if let Some(block) = extent.physical.checked_add(offset) {
                repairer.write_block(block, &zeros)?;
            }
        }
    }
    if end > 0 {
        fields::set_size(repairer, number, u64::from(end) << layout.log_block_size())?;
    }
    Ok(closed.and(Some("the directory's blocks were moved together")))
}
