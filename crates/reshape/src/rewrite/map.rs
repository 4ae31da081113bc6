//! Rewrites the maps of files: extent trees and block maps.
//!
//! An extent tree in which something moves is rebuilt, each node full: extents that were cut may need
//! more nodes, and merged ones fewer. A block map keeps its shape.

use super::Rewriter;
use super::extents::{extents_of_runs, moved_extents};
use crate::error::{Refusal, Result};
use drystone_ext4_format::block_map::{
    self, MapPath, ROOT_POINTERS, levels_of_root_pointer, logical_of_root_pointer, set_pointer,
};
use drystone_ext4_format::extent::{
    DEPTH_MAX, Extent, ExtentIndex, ExtentNode, ExtentNodeMut, NodePlace, ROOT_ENTRIES,
    entries_per_block,
};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::{InodeSeed, LogicalBlock, PhysicalBlock};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of a file, where they are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedRun {
    pub physical: PhysicalBlock,
    pub length: u32,
}

impl MappedRun {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.physical.get() + u64::from(self.length)
    }

    pub fn blocks(&self) -> impl Iterator<Item = PhysicalBlock> + use<> {
        (self.physical.get()..self.end()).map(PhysicalBlock::new)
    }
}

/// An extent tree, read as a whole.
#[derive(Default)]
pub(super) struct ReadTree {
    pub extents: Vec<Extent>,
    /// The blocks of its nodes, where they are now.
    pub nodes: Vec<PhysicalBlock>,
    has_moved: bool,
}

impl Rewriter<'_, '_> {
    pub(super) fn translated(&self, block: PhysicalBlock) -> PhysicalBlock {
        PhysicalBlock::new(self.moves.translate(block.get()))
    }

    /// Rewrites the map of an inode. Returns whether the inode has changed, and where the blocks are that a
    /// caller looks into.
    pub(super) fn map(
        &mut self,
        inode: &mut Inode,
        must_seal: bool,
        seed: Option<InodeSeed>,
    ) -> Result<(bool, Vec<MappedRun>)> {
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.extents(inode, must_seal, seed)
        } else {
            // What isn't a directory may be large, and nobody looks into it by its map.
            let wants_runs = inode.is_directory()
                || self.image.superblock.orphan_file_inode() == Some(inode.number);
            self.pointers(inode, wants_runs)
        }
    }

    /// Gives a new file these blocks.
    pub fn map_runs(&mut self, inode: &mut Inode, runs: &[Range<u64>]) -> Result<()> {
        let layout = self.image.layout;
        let data: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let per_cluster = u64::from(layout.blocks_per_cluster()) * layout.sectors_per_block();
        inode.sectors += layout.clusters_for(data) * per_cluster;
        if !layout.features().incompat.contains(Incompat::EXTENTS) {
            let nodes = self.build_pointers(inode, runs)?;
            inode.sectors += nodes * per_cluster;
            return Ok(());
        }
        inode.flags |= InodeFlags::EXTENTS;
        let tree = ReadTree { extents: extents_of_runs(runs), ..ReadTree::default() };
        let seed = inode.seed(&layout);
        self.build_tree(inode, &tree, seed)
    }

    /// Builds the block map of a new file. Returns how many blocks of pointers there are.
    pub(super) fn build_pointers(&mut self, inode: &mut Inode, runs: &[Range<u64>]) -> Result<u64> {
        let layout = self.image.layout;
        let mut holders: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut area = inode.block_area;
        for (logical, physical) in runs.iter().flat_map(Range::clone).enumerate() {
            // No file that is made here is as long as a map allows.
            let Some(path) = MapPath::new(LogicalBlock::new(logical as u32), &layout) else {
                break;
            };
            let mut holder: Option<u64> = None;
            for (level, &index) in path.indexes().iter().enumerate() {
                let bytes = match holder {
                    None => &mut area[..],
                    Some(block) => holders.entry(block).or_default(),
                };
                if level + 1 == path.indexes().len() {
                    set_pointer(bytes, index, Some(PhysicalBlock::new(physical)));
                    break;
                }
                let at = index as usize * 4;
                let stored = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                let child = match u32::from_le_bytes(stored) {
                    0 => {
                        let child = self.take_node(&mut Vec::new())?;
                        let bytes = match holder {
                            None => &mut area[..],
                            Some(block) => holders.entry(block).or_default(),
                        };
                        set_pointer(bytes, index, Some(child));
                        holders.insert(child.get(), vec![0; layout.block_size()]);
                        child.get()
                    }
                    child => u64::from(child),
                };
                holder = Some(child);
            }
        }
        inode.block_area = area;
        for (block, bytes) in &holders {
            self.image.write_block(PhysicalBlock::new(*block), bytes)?;
        }
        Ok(holders.len() as u64)
    }

    /// All blocks of a file, those that map it among them.
    pub fn all_blocks(&self, inode: &Inode) -> Result<Vec<Range<u64>>> {
        let one = |block: PhysicalBlock| block.get()..block.get() + 1;
        let mut blocks = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let mut tree = ReadTree::default();
            let place = NodePlace::root(inode.number);
            self.read_tree(&inode.block_area, place, DEPTH_MAX + 1, &mut tree)?;
            blocks.extend(tree.nodes.into_iter().map(one));
            blocks.extend(tree.extents.iter().map(|extent| {
                extent.physical.get()..extent.physical.get() + u64::from(extent.length)
            }));
            return Ok(blocks);
        }
        let mut pending: Vec<(Vec<u8>, u32, usize)> = (0..ROOT_POINTERS as u32)
            .filter(|&index| logical_of_root_pointer(index, &self.old).is_some())
            .map(|index| (inode.block_area.to_vec(), index, levels_of_root_pointer(index)))
            .collect();
        while let Some((holder, index, levels)) = pending.pop() {
            let found = block_map::pointer(&holder, index, inode.number, None, &self.old)?;
            let Some(block) = found else { continue };
            blocks.push(one(block));
            if levels > 0 {
                let bytes = self.image.read_block(block)?;
                for index in 0..block_map::pointers_per_block(&self.old) {
                    let at = index as usize * 4;
                    if bytes[at..at + 4] != [0; 4] {
                        pending.push((bytes[at..at + 4].to_vec(), 0, levels - 1));
                    }
                }
            }
        }
        Ok(blocks)
    }

    /// The blocks of a file whose map is as it should be, in the file's order.
    pub fn data_runs(&mut self, inode: &Inode) -> Result<Vec<MappedRun>> {
        let mut inode = inode.clone();
        let (_, runs) = match inode.flags.contains(InodeFlags::EXTENTS) {
            true => self.extents(&mut inode, false, None)?,
            false => self.pointers(&mut inode, true)?,
        };
        Ok(runs)
    }

    fn extents(
        &mut self,
        inode: &mut Inode,
        must_seal: bool,
        seed: Option<InodeSeed>,
    ) -> Result<(bool, Vec<MappedRun>)> {
        let mut tree = ReadTree::default();
        let place = NodePlace::root(inode.number);
        self.read_tree(&inode.block_area.clone(), place, DEPTH_MAX + 1, &mut tree)?;
        let has_moved = tree.has_moved;
        if has_moved {
            tree.extents = moved_extents(&tree.extents, self.moves);
            self.build_tree(inode, &tree, seed)?;
        } else if must_seal {
            for &block in &tree.nodes {
                let mut bytes = self.image.read_block(block)?;
                let place = NodePlace::block(inode.number, block);
                ExtentNodeMut::reopen(&mut bytes, place)?.seal(seed);
                self.image.write_block(block, &bytes)?;
            }
        }
        let runs = tree
            .extents
            .iter()
            .map(|extent| MappedRun { physical: extent.physical, length: extent.length });
        Ok((has_moved, runs.collect()))
    }

    pub(super) fn read_tree(
        &self,
        bytes: &[u8],
        place: NodePlace,
        depth_above: u16,
        tree: &mut ReadTree,
    ) -> Result<()> {
        let node = ExtentNode::reopen(bytes, place)?;
        if node.depth() >= depth_above {
            return Err(Refusal::HasErrors.into());
        }
        for extent in node.is_leaf().then(|| node.extents()).into_iter().flatten() {
            let start = extent.physical.get();
            tree.has_moved |= self.moves.touches(&(start..start + u64::from(extent.length)));
            tree.extents.push(extent);
        }
        for index in (!node.is_leaf()).then(|| node.indexes()).into_iter().flatten() {
            let block = self.translated(index.child);
            tree.has_moved |= block != index.child;
            tree.nodes.push(block);
            let bytes = self.image.read_block(block)?;
            self.read_tree(&bytes, NodePlace::block(place.inode, block), node.depth(), tree)?;
        }
        Ok(())
    }

    /// Builds a tree of the extents in the blocks of the old one, and in more, or fewer.
    pub(super) fn build_tree(
        &mut self,
        inode: &mut Inode,
        tree: &ReadTree,
        seed: Option<InodeSeed>,
    ) -> Result<()> {
        let number = inode.number;
        let per_block = usize::from(entries_per_block(self.image.layout.block_size()));
        let per_root = usize::from(ROOT_ENTRIES);
        let mut free: Vec<PhysicalBlock> = tree.nodes.iter().rev().copied().collect();
        let mut used = 0;
        let mut area = [0; BLOCK_AREA_BYTES];
        if tree.extents.len() <= per_root {
            let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(number), 0);
            for (position, extent) in tree.extents.iter().enumerate() {
                root.insert_extent(position, extent);
            }
        } else {
            let mut level: Vec<ExtentIndex> = Vec::new();
            for chunk in tree.extents.chunks(per_block) {
                let child = self.take_node(&mut free)?;
                let mut bytes = vec![0; self.image.layout.block_size()];
                let mut node = ExtentNodeMut::init(&mut bytes, NodePlace::block(number, child), 0);
                for (position, extent) in chunk.iter().enumerate() {
                    node.insert_extent(position, extent);
                }
                node.seal(seed);
                self.image.write_block(child, &bytes)?;
                level.push(ExtentIndex { logical: chunk[0].logical, child });
                used += 1;
            }
            let mut depth = 1;
            while level.len() > per_root {
                let mut above = Vec::new();
                for chunk in level.chunks(per_block) {
                    let child = self.take_node(&mut free)?;
                    let mut bytes = vec![0; self.image.layout.block_size()];
                    let place = NodePlace::block(number, child);
                    let mut node = ExtentNodeMut::init(&mut bytes, place, depth);
                    for (position, index) in chunk.iter().enumerate() {
                        node.insert_index(position, index);
                    }
                    node.seal(seed);
                    self.image.write_block(child, &bytes)?;
                    above.push(ExtentIndex { logical: chunk[0].logical, child });
                    used += 1;
                }
                level = above;
                depth += 1;
            }
            let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(number), depth);
            for (position, index) in level.iter().enumerate() {
                root.insert_index(position, index);
            }
        }
        inode.block_area = area;
        let cluster = u64::from(self.image.layout.blocks_per_cluster());
        for block in free {
            self.image.mark(block.get()..block.get() + cluster, false)?;
        }
        let per_node = cluster * self.image.layout.sectors_per_block();
        inode.sectors = inode.sectors + used * per_node - tree.nodes.len() as u64 * per_node;
        Ok(())
    }

    fn take_node(&mut self, free: &mut Vec<PhysicalBlock>) -> Result<PhysicalBlock> {
        match free.pop() {
            Some(block) => Ok(block),
            None => self.image.take_contiguous(0..self.image.layout.group_count(), 1, "extents"),
        }
    }

    fn pointers(&mut self, inode: &mut Inode, wants_runs: bool) -> Result<(bool, Vec<MappedRun>)> {
        let mut area = inode.block_area;
        let mut runs = wants_runs.then(Vec::new);
        let mut is_changed = false;
        // There are 15 pointers.
        for index in 0..ROOT_POINTERS as u32 {
            let levels = levels_of_root_pointer(index);
            if logical_of_root_pointer(index, &self.old).is_some() {
                is_changed |= self.pointer(inode, &mut area, index, levels, &mut runs)?;
            }
        }
        inode.block_area = area;
        Ok((is_changed, runs.unwrap_or_default()))
    }

    /// Rewrites a pointer and what is below it. Returns whether the pointer has changed.
    fn pointer(
        &mut self,
        inode: &Inode,
        holder: &mut [u8],
        index: u32,
        levels: usize,
        runs: &mut Option<Vec<MappedRun>>,
    ) -> Result<bool> {
        let found = block_map::pointer(holder, index, inode.number, None, &self.old)?;
        let Some(before) = found else { return Ok(false) };
        let block = self.translated(before);
        if levels == 0 {
            if let Some(runs) = runs {
                match runs.last_mut() {
                    Some(last) if last.end() == block.get() && last.length < u32::MAX => {
                        last.length += 1;
                    }
                    _ => runs.push(MappedRun { physical: block, length: 1 }),
                }
            }
        } else {
            let mut bytes = self.image.read_block(block)?;
            let mut is_changed = false;
            for index in 0..block_map::pointers_per_block(&self.old) {
                is_changed |= self.pointer(inode, &mut bytes, index, levels - 1, runs)?;
            }
            if is_changed {
                self.image.write_block(block, &bytes)?;
            }
        }
        if block != before {
            set_pointer(holder, index, Some(block));
        }
        Ok(block != before)
    }
}
