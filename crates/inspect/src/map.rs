//! Walks extent trees and block maps, as far as they can be followed.

use crate::error::Result;
use crate::image::InspectedImage;
use drystone_ext4_format::block_map::{self, ROOT_POINTERS};
use drystone_ext4_format::extent::{DEPTH_MAX, Extent, ExtentNode, NodePlace};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use std::collections::HashSet;

/// A part of an extent tree or block map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapPart {
    /// A block that maps others: a node of an extent tree, or a block of pointers.
    Node {
        /// The block.
        block: PhysicalBlock,
        /// Levels below it: 0 if it maps data.
        depth: u16,
    },
    /// Blocks of the file.
    Run(Extent),
    /// Something that can't be followed.
    Problem(String),
}

/// Walks the extent tree or block map of an inode that has one.
///
/// # Errors
/// The device or `visit` fails. What can't be followed is passed to `visit`.
pub fn walk_map(
    image: &InspectedImage<'_>,
    inode: &Inode,
    visit: &mut dyn FnMut(MapPart) -> Result<()>,
) -> Result<()> {
    walk_map_once(image, inode, &mut HashSet::new(), visit)
}

/// As [`walk_map`], but skips nodes that are in `visited`, and adds those that it enters. So a node that many files
/// share is walked once.
pub(crate) fn walk_map_once(
    image: &InspectedImage<'_>,
    inode: &Inode,
    visited: &mut HashSet<u64>,
    visit: &mut dyn FnMut(MapPart) -> Result<()>,
) -> Result<()> {
    if !inode.has_block_mapping() {
        return Ok(());
    }
    let mut walk = MapWalker { image, inode, visited, visit };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        return walk.extents(&inode.block_area, None, DEPTH_MAX + 1);
    }
    for index in 0..ROOT_POINTERS as u32 {
        if let Some(logical) = block_map::logical_of_root_pointer(index, &image.layout) {
            let levels = block_map::levels_of_root_pointer(index);
            walk.pointer(&inode.block_area, index, None, levels, logical)?;
        }
    }
    Ok(())
}

struct MapWalker<'a, 'd> {
    image: &'a InspectedImage<'d>,
    inode: &'a Inode,
    /// Nodes that were entered, so that a cycle ends.
    visited: &'a mut HashSet<u64>,
    visit: &'a mut dyn FnMut(MapPart) -> Result<()>,
}

impl MapWalker<'_, '_> {
    /// Reads a node that wasn't entered before.
    fn enter(&mut self, block: PhysicalBlock, depth: u16) -> Result<Option<Vec<u8>>> {
        (self.visit)(MapPart::Node { block, depth })?;
        if !self.visited.insert(block.get()) {
            let problem = format!("block {block} maps blocks at two places");
            (self.visit)(MapPart::Problem(problem))?;
            return Ok(None);
        }
        match self.image.read_block(block) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => {
                (self.visit)(MapPart::Problem(error.to_string()))?;
                Ok(None)
            }
        }
    }

    fn extents(
        &mut self,
        bytes: &[u8],
        block: Option<PhysicalBlock>,
        depth_above: u16,
    ) -> Result<()> {
        let place = NodePlace { inode: self.inode.number, block };
        let node = match ExtentNode::reopen(bytes, place) {
            Ok(node) => node,
            Err(problem) => return (self.visit)(MapPart::Problem(problem.to_string())),
        };
        if node.depth() >= depth_above {
            let problem = format!("a node of depth {} is too deep for its place", node.depth());
            return (self.visit)(MapPart::Problem(problem));
        }
        for extent in node.extents() {
            if self.image.layout.contains_blocks(extent.physical, u64::from(extent.length)) {
                (self.visit)(MapPart::Run(extent))?;
            } else {
                let (first, count) = (extent.physical, extent.length);
                let problem = format!("an extent of {count} blocks at {first} isn't in the image");
                (self.visit)(MapPart::Problem(problem))?;
            }
        }
        for index in node.indexes() {
            if let Some(bytes) = self.enter(index.child, node.depth() - 1)? {
                self.extents(&bytes, Some(index.child), node.depth())?;
            }
        }
        Ok(())
    }

    fn pointer(
        &mut self,
        holder: &[u8],
        index: u32,
        at: Option<PhysicalBlock>,
        levels: usize,
        logical: u64,
    ) -> Result<()> {
        let layout = self.image.layout;
        let block = match block_map::pointer(holder, index, self.inode.number, at, &layout) {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(()),
            Err(problem) => return (self.visit)(MapPart::Problem(problem.to_string())),
        };
        if levels == 0 {
            // Beyond that no file has blocks.
            let Ok(logical) = u32::try_from(logical) else { return Ok(()) };
            let logical = LogicalBlock::new(logical);
            return (self.visit)(MapPart::Run(Extent::of_block(logical, block)));
        }
        // At most three levels.
        let Some(bytes) = self.enter(block, (levels - 1) as u16)? else { return Ok(()) };
        let under = block_map::blocks_under(levels - 1, &layout);
        for index in 0..block_map::pointers_per_block(&layout) {
            let logical = logical + u64::from(index) * under;
            self.pointer(&bytes, index, Some(block), levels - 1, logical)?;
        }
        Ok(())
    }
}

/// All runs of a file in order, without what can't be followed.
pub(crate) fn runs_of(image: &InspectedImage<'_>, inode: &Inode) -> Result<Vec<Extent>> {
    let mut runs: Vec<Extent> = Vec::new();
    walk_map(image, inode, &mut |part| {
        if let MapPart::Run(run) = part {
            run.append_to(&mut runs);
        }
        Ok(())
    })?;
    Ok(runs)
}
