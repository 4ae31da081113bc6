//! The blocks of a file, however they are mapped.
//!
//! A walk goes on after what is wrong: impossible entries are reported and skipped. A
//! node that was visited before in the same pass is not entered again, so that a walk over many
//! inodes reads each node once.

mod block_map;
mod extents;

use crate::block_set::BlockSet;
use crate::image::{Error, Image};
use crate::issue::{InodeIssue, Issue};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

/// Something that a walk over a map meets.
pub(crate) enum MapEvent {
    /// Blocks of the file, all in the image. A block map gives runs, as if it had extents.
    Extent(Extent),
    /// An extent whose blocks are all in the image, but which doesn't fit the others or its node.
    Misplaced(Extent),
    /// A block of the map itself.
    Node(PhysicalBlock),
    /// Something that is wrong.
    Issue(Issue),
}

/// A walk over the map of one inode.
pub(crate) struct MapWalk<'a, 'b> {
    pub image: &'a Image<'a>,
    pub inode: &'a Inode,
    pub visited: &'b mut BlockSet,
    pub event: &'b mut dyn FnMut(MapEvent),
}

impl MapWalk<'_, '_> {
    pub fn issue(&mut self, issue: impl Into<Issue>) {
        (self.event)(MapEvent::Issue(issue.into()));
    }

    /// Tells of a node of the map and reads it, unless it was read before.
    pub fn enter(&mut self, block: PhysicalBlock) -> Result<Option<Vec<u8>>, Error> {
        (self.event)(MapEvent::Node(block));
        if !self.visited.insert(block.get()) {
            let inode = self.inode.number;
            self.issue(Issue::Inode { inode, issue: InodeIssue::SharedNode { block } });
            return Ok(None);
        }
        Ok(Some(self.image.read_block(block)?))
    }
}

/// Walks the map of an inode that has one.
pub(crate) fn walk(
    image: &Image<'_>,
    inode: &Inode,
    visited: &mut BlockSet,
    event: &mut dyn FnMut(MapEvent),
) -> Result<(), Error> {
    let mut walk = MapWalk { image, inode, visited, event };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        extents::walk(&mut walk)
    } else {
        block_map::walk(&mut walk)
    }
}

/// The extents of one file in order, without what is wrong with its map.
pub(crate) fn extents_of(image: &Image<'_>, inode: &Inode) -> Result<Vec<Extent>, Error> {
    let mut visited = BlockSet::new(image.layout.blocks_count());
    let mut extents = Vec::new();
    walk(image, inode, &mut visited, &mut |event| {
        if let MapEvent::Extent(extent) = event {
            extents.push(extent);
        }
    })?;
    Ok(extents)
}

/// Where a block of a file lies that has been written, given the file's extents in order.
pub(crate) fn find_written(extents: &[Extent], logical: LogicalBlock) -> Option<PhysicalBlock> {
    let behind = extents.partition_point(|extent| extent.logical <= logical);
    extents[..behind].last().filter(|extent| !extent.unwritten)?.physical_of(logical)
}

/// Where a block of a file lies, given the file's extents in order.
pub(crate) fn find(extents: &[Extent], logical: LogicalBlock) -> Option<PhysicalBlock> {
    let behind = extents.partition_point(|extent| extent.logical <= logical);
    extents[..behind].last()?.physical_of(logical)
}
