//! Writes the nodes of a new map of a file: an extent tree, or a block map.
//!
//! The blocks of all nodes are taken before the first is written: without room for the whole map nothing is written, and
//! what was taken is given back. So the nodes of the old map, which new ones may replace, stay as they are then. The
//! nodes themselves are written as they are made: those of a large block map would take much memory.

use super::repairer::Repairer;
use crate::image::Error;
use crate::mapping;
use drystone_ext4_format::block_map::{
    ROOT_POINTERS, blocks_under, levels_of_root_pointer, logical_of_root_pointer,
    pointers_per_block, set_pointer,
};
use drystone_ext4_format::extent::{
    Extent, ExtentIndex, ExtentNodeMut, NodePlace, entries_per_block,
};
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use std::ops::Range;

/// Entries of the root of an extent tree.
pub(super) const ROOT_ENTRIES: usize = 4;

/// Writes the nodes of a map of `extents`, which are in order and don't overlap. Returns what the inode
/// then has for its root; nothing if there is no room. When no block is free, nodes go into `old_nodes`.
pub(super) fn write(
    repairer: &mut Repairer<'_, '_>,
    inode: &Inode,
    extents: Vec<Extent>,
    old_nodes: Vec<PhysicalBlock>,
) -> Result<Option<[u8; BLOCK_AREA_BYTES]>, Error> {
    let is_tree = inode.flags.contains(InodeFlags::EXTENTS);
    let layout = repairer.checker.image.layout;
    let needed = match is_tree {
        true => tree_nodes(extents.len(), &layout),
        false if extents.iter().all(fits_pointers) => map_nodes(&extents, &layout),
        false => return Ok(None),
    };
    let Some(blocks) = take_blocks(repairer, needed, old_nodes, is_tree)? else { return Ok(None) };
    let mut writer = MapWriter { repairer, inode, extents, blocks };
    match is_tree {
        true => writer.tree().map(Some),
        false => writer.pointers().map(Some),
    }
}

/// Whether pointers can lead to all blocks of an extent.
fn fits_pointers(extent: &Extent) -> bool {
    u32::try_from(extent.physical_end().get()).is_ok()
}

/// Blocks for so many nodes; nothing if there are fewer. A damaged pointer may have led to somebody's data: the old
/// nodes are the last choice.
fn take_blocks(
    repairer: &mut Repairer<'_, '_>,
    count: u64,
    old_nodes: Vec<PhysicalBlock>,
    is_tree: bool,
) -> Result<Option<Vec<PhysicalBlock>>, Error> {
    let mut taken = Vec::new();
    while (taken.len() as u64) < count {
        let Some(block) = repairer.allocate()? else { break };
        taken.push(block);
    }
    let missing = count - taken.len() as u64;
    let mut blocks: Vec<PhysicalBlock> =
        old_nodes.into_iter().rev().take(missing as usize).collect();
    let can_hold = |block: &PhysicalBlock| is_tree || u32::try_from(block.get()).is_ok();
    if (blocks.len() as u64) < missing || !taken.iter().chain(&blocks).all(can_hold) {
        repairer.give_back(taken);
        return Ok(None);
    }
    // The first to be taken is the last.
    blocks.reverse();
    blocks.extend(taken.into_iter().rev());
    Ok(Some(blocks))
}

/// Nodes of an extent tree below its root.
fn tree_nodes(extents: usize, layout: &Layout) -> u64 {
    let capacity = usize::from(entries_per_block(layout.block_size()));
    let (mut level, mut nodes) = (extents, 0);
    while level > ROOT_ENTRIES {
        level = level.div_ceil(capacity);
        nodes += level;
    }
    nodes as u64
}

/// Blocks of pointers of a block map.
fn map_nodes(extents: &[Extent], layout: &Layout) -> u64 {
    let roots = (0..ROOT_POINTERS as u32).map_while(|index| {
        let logical = logical_of_root_pointer(index, layout)?;
        Some(nodes_under(extents, layout, logical, levels_of_root_pointer(index)))
    });
    roots.sum()
}

/// Blocks of pointers that a pointer leads to.
fn nodes_under(extents: &[Extent], layout: &Layout, logical: u64, levels: usize) -> u64 {
    if levels == 0 || !has_any(extents, logical..logical + blocks_under(levels, layout)) {
        return 0;
    }
    let span = blocks_under(levels - 1, layout);
    let below =
        |index: u32| nodes_under(extents, layout, logical + u64::from(index) * span, levels - 1);
    let children = if levels > 1 { pointers_per_block(layout) } else { 0 };
    1 + (0..children).map(below).sum::<u64>()
}

/// Whether a logical block of a range is mapped.
fn has_any(extents: &[Extent], range: Range<u64>) -> bool {
    let next = extents.partition_point(|extent| extent.logical_end() <= range.start);
    extents.get(next).is_some_and(|extent| extent.logical.as_u64() < range.end)
}

/// What a node of an extent tree holds: extents in leaves, indexes above them.
trait NodeEntry {
    fn logical(&self) -> LogicalBlock;
    fn insert(&self, node: &mut ExtentNodeMut<'_>, position: usize);
}

impl NodeEntry for Extent {
    fn logical(&self) -> LogicalBlock {
        self.logical
    }

    fn insert(&self, node: &mut ExtentNodeMut<'_>, position: usize) {
        node.insert_extent(position, self);
    }
}

impl NodeEntry for ExtentIndex {
    fn logical(&self) -> LogicalBlock {
        self.logical
    }

    fn insert(&self, node: &mut ExtentNodeMut<'_>, position: usize) {
        node.insert_index(position, self);
    }
}

struct MapWriter<'b, 'm, 'i> {
    repairer: &'b mut Repairer<'m, 'i>,
    inode: &'b Inode,
    extents: Vec<Extent>,
    /// For the nodes that aren't written yet.
    blocks: Vec<PhysicalBlock>,
}

impl MapWriter<'_, '_, '_> {
    fn next_block(&mut self) -> PhysicalBlock {
        // As many were taken as the map needs.
        self.blocks.pop().expect("a block for each node")
    }

    fn tree(&mut self) -> Result<[u8; BLOCK_AREA_BYTES], Error> {
        let extents = std::mem::take(&mut self.extents);
        if extents.len() <= ROOT_ENTRIES {
            return Ok(self.root(0, &extents));
        }
        let mut level = self.level(0, &extents)?;
        let mut depth = 1;
        while level.len() > ROOT_ENTRIES {
            level = self.level(depth, &level)?;
            depth += 1;
        }
        Ok(self.root(depth, &level))
    }

    fn root<E: NodeEntry>(&self, depth: u16, entries: &[E]) -> [u8; BLOCK_AREA_BYTES] {
        let mut area = [0; BLOCK_AREA_BYTES];
        let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(self.inode.number), depth);
        for (position, entry) in entries.iter().enumerate() {
            entry.insert(&mut root, position);
        }
        area
    }

    /// Writes the nodes that hold `entries`, and gives what leads to them.
    fn level<E: NodeEntry>(
        &mut self,
        depth: u16,
        entries: &[E],
    ) -> Result<Vec<ExtentIndex>, Error> {
        let layout = self.repairer.checker.image.layout;
        let seed = self.inode.seed(&layout);
        let capacity = usize::from(entries_per_block(layout.block_size()));
        let mut above = Vec::new();
        for part in entries.chunks(capacity) {
            let block = self.next_block();
            let mut bytes = vec![0; layout.block_size()];
            let place = NodePlace::block(self.inode.number, block);
            let mut node = ExtentNodeMut::init(&mut bytes, place, depth);
            for (position, entry) in part.iter().enumerate() {
                entry.insert(&mut node, position);
            }
            node.seal(seed);
            self.repairer.write_block(block, &bytes)?;
            // A part of a slice is never empty.
            let logical = part.first().map_or(LogicalBlock::FIRST, NodeEntry::logical);
            above.push(ExtentIndex { logical, child: block });
        }
        Ok(above)
    }

    fn pointers(&mut self) -> Result<[u8; BLOCK_AREA_BYTES], Error> {
        let layout = self.repairer.checker.image.layout;
        let mut area = [0; BLOCK_AREA_BYTES];
        for index in 0..ROOT_POINTERS as u32 {
            let Some(logical) = logical_of_root_pointer(index, &layout) else { break };
            let block = self.below(logical, levels_of_root_pointer(index))?;
            set_pointer(&mut area, index, block);
        }
        Ok(area)
    }

    /// What a pointer leads to: nothing, in a hole.
    fn below(&mut self, logical: u64, levels: usize) -> Result<Option<PhysicalBlock>, Error> {
        let layout = self.repairer.checker.image.layout;
        if !has_any(&self.extents, logical..logical + blocks_under(levels, &layout)) {
            return Ok(None);
        }
        if levels == 0 {
            let logical = u32::try_from(logical).map(LogicalBlock::new);
            return Ok(logical.ok().and_then(|logical| mapping::find(&self.extents, logical)));
        }
        let block = self.next_block();
        let mut bytes = vec![0; layout.block_size()];
        let span = blocks_under(levels - 1, &layout);
        for index in 0..pointers_per_block(&layout) {
            let child = self.below(logical + u64::from(index) * span, levels - 1)?;
            set_pointer(&mut bytes, index, child);
        }
        self.repairer.write_block(block, &bytes)?;
        Ok(Some(block))
    }
}
