//! Writes the nodes of a new map of a file: an extent tree, or a block map.
//!
//! Nodes are written once the whole map has room: those of the old map, which they may replace, stay as they are
//! otherwise.

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
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

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
    let mut writer = MapWriter { repairer, inode, extents, old_nodes, nodes: Vec::new() };
    let root = match inode.flags.contains(InodeFlags::EXTENTS) {
        true => writer.tree()?,
        false => writer.pointers()?,
    };
    if root.is_some() {
        for (block, bytes) in &writer.nodes {
            writer.repairer.write_block(*block, bytes)?;
        }
    }
    Ok(root)
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
    old_nodes: Vec<PhysicalBlock>,
    /// What is to be written.
    nodes: Vec<(PhysicalBlock, Vec<u8>)>,
}

impl MapWriter<'_, '_, '_> {
    fn node(&mut self) -> Result<Option<PhysicalBlock>, Error> {
        // A damaged pointer may have led to somebody's data: the old nodes are the last choice.
        match self.repairer.allocate()? {
            Some(block) => Ok(Some(block)),
            None => Ok(self.old_nodes.pop()),
        }
    }

    /// An extent tree; nothing if there is no room for it.
    fn tree(&mut self) -> Result<Option<[u8; BLOCK_AREA_BYTES]>, Error> {
        let extents = std::mem::take(&mut self.extents);
        if extents.len() <= ROOT_ENTRIES {
            return Ok(Some(self.root(0, &extents)));
        }
        let Some(mut level) = self.level(0, &extents)? else { return Ok(None) };
        let mut depth = 1;
        while level.len() > ROOT_ENTRIES {
            let Some(above) = self.level(depth, &level)? else { return Ok(None) };
            level = above;
            depth += 1;
        }
        Ok(Some(self.root(depth, &level)))
    }

    fn root<E: NodeEntry>(&self, depth: u16, entries: &[E]) -> [u8; BLOCK_AREA_BYTES] {
        let mut area = [0; BLOCK_AREA_BYTES];
        let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(self.inode.number), depth);
        for (position, entry) in entries.iter().enumerate() {
            entry.insert(&mut root, position);
        }
        area
    }

    /// Makes the nodes that hold `entries`, and gives what leads to them; nothing if there is no room.
    fn level<E: NodeEntry>(
        &mut self,
        depth: u16,
        entries: &[E],
    ) -> Result<Option<Vec<ExtentIndex>>, Error> {
        let layout = self.repairer.checker.image.layout;
        let seed = self.inode.seed(&layout);
        let capacity = usize::from(entries_per_block(layout.block_size()));
        let mut above = Vec::new();
        for part in entries.chunks(capacity) {
            let Some(block) = self.node()? else { return Ok(None) };
            let mut bytes = vec![0; layout.block_size()];
            let place = NodePlace::block(self.inode.number, block);
            let mut node = ExtentNodeMut::init(&mut bytes, place, depth);
            for (position, entry) in part.iter().enumerate() {
                entry.insert(&mut node, position);
            }
            node.seal(seed);
            self.nodes.push((block, bytes));
            // A part of a slice is never empty.
            let logical = part.first().map_or(LogicalBlock::FIRST, NodeEntry::logical);
            above.push(ExtentIndex { logical, child: block });
        }
        Ok(Some(above))
    }

    /// A block map; nothing if there is no room for it, or a block that it can't hold.
    fn pointers(&mut self) -> Result<Option<[u8; BLOCK_AREA_BYTES]>, Error> {
        let layout = self.repairer.checker.image.layout;
        let mut area = [0; BLOCK_AREA_BYTES];
        for index in 0..ROOT_POINTERS as u32 {
            let Some(logical) = logical_of_root_pointer(index, &layout) else { break };
            let levels = levels_of_root_pointer(index);
            match self.below(logical, levels)? {
                Some(block) => set_pointer(&mut area, index, block),
                None => return Ok(None),
            }
        }
        Ok(Some(area))
    }

    /// What a pointer leads to: nothing, in a hole. The outer nothing is lack of room.
    fn below(
        &mut self,
        logical: u64,
        levels: usize,
    ) -> Result<Option<Option<PhysicalBlock>>, Error> {
        let layout = self.repairer.checker.image.layout;
        let extents = &self.extents;
        let next = extents.partition_point(|extent| extent.logical_end() <= logical);
        let end = logical + blocks_under(levels, &layout);
        if extents.get(next).is_none_or(|extent| extent.logical.as_u64() >= end) {
            return Ok(Some(None));
        }
        if levels == 0 {
            let logical = u32::try_from(logical).map(LogicalBlock::new);
            let found = logical.ok().and_then(|logical| mapping::find(extents, logical));
            return Ok(Some(found));
        }
        let Some(block) = self.node()?.filter(|block| u32::try_from(block.get()).is_ok()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; layout.block_size()];
        let span = blocks_under(levels - 1, &layout);
        for index in 0..pointers_per_block(&layout) {
            match self.below(logical + u64::from(index) * span, levels - 1)? {
                Some(child) => set_pointer(&mut bytes, index, child),
                None => return Ok(None),
            }
        }
        self.nodes.push((block, bytes));
        Ok(Some(Some(block)))
    }
}
