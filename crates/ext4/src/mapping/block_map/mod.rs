//! Block maps of ext2 and ext3 files, over [`Nodes`]: twelve pointers in the inode, then trees of
//! pointers with one, two and three levels.
//!
//! # Invariants
//! Drystone leaves no indirect block without pointers; one that another system left is freed when
//! the blocks below it are removed. The depth of each tree is fixed, so no image can make a walk
//! endless.
//!
//! # Crash
//! Each function is one step of one transaction. Blocks for pointers are allocated before the map
//! changes.
//!
//! # Reference
//! "Direct/Indirect Block Addressing" in the kernel's documentation of ext4.

mod edit;

pub(super) use edit::{insert, remove};

use super::store::Nodes;
use crate::error::Result;
use crate::extent_status::MappedRun;
use drystone_ext4_format::block_map::{
    DIRECT_POINTERS, LEVELS_MAX, MapPath, blocks_under, check_pointers, logical_end, pointer,
    pointers_per_block,
};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

/// One more than the highest block number of any file.
const END: u64 = 1 << 32;

/// The indirect blocks on the way to one block of the file, as far as they exist.
struct PointerPath<N> {
    path: MapPath,
    /// Indirect blocks by level; the first `present` exist.
    nodes: [Option<(N, PhysicalBlock)>; LEVELS_MAX],
    present: usize,
}

impl<N: Clone> PointerPath<N> {
    fn find<S: Nodes<Node = N>>(nodes: &S, path: MapPath) -> Result<Self> {
        let (inode, layout) = (nodes.inode(), nodes.layout());
        let mut way = PointerPath { path, nodes: [const { None }; LEVELS_MAX], present: 0 };
        for level in 0..path.levels() {
            let Some(block) = way.pointer(nodes, level, way.index(level))? else { break };
            let node = nodes.load(block, |bytes| {
                check_pointers(bytes, inode, Some(block), layout)?;
                Ok(())
            })?;
            way.nodes[level] = Some((node, block));
            way.present = level + 1;
        }
        Ok(way)
    }

    /// The index of the pointer that the path follows at a level; level 0 is the inode.
    fn index(&self, level: usize) -> u32 {
        self.path.indexes()[level]
    }

    /// The block that holds the pointers of a level; `None` is the inode.
    fn holder(&self, level: usize) -> Option<&(N, PhysicalBlock)> {
        level.checked_sub(1).and_then(|above| self.nodes[above].as_ref())
    }

    /// Looks at the bytes that hold the pointers of a level.
    fn look<S: Nodes<Node = N>, R>(
        &self,
        nodes: &S,
        level: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self.holder(level) {
            Some((node, _)) => nodes.look(node, look),
            None => nodes.root(look),
        }
    }

    /// Reads one pointer of a level.
    fn pointer<S: Nodes<Node = N>>(
        &self,
        nodes: &S,
        level: usize,
        index: u32,
    ) -> Result<Option<PhysicalBlock>> {
        let holder = self.holder(level).map(|(_, block)| *block);
        let read = |bytes: &[u8]| pointer(bytes, index, nodes.inode(), holder, nodes.layout());
        Ok(self.look(nodes, level, read)?)
    }

    /// The number of pointers of a level, among `indexes` in their order, before the first one that
    /// `accept` refuses.
    fn count<S: Nodes<Node = N>>(
        &self,
        nodes: &S,
        level: usize,
        indexes: impl Iterator<Item = u32>,
        mut accept: impl FnMut(Option<PhysicalBlock>) -> bool,
    ) -> Result<u64> {
        let holder = self.holder(level).map(|(_, block)| *block);
        let (inode, layout) = (nodes.inode(), nodes.layout());
        self.look(nodes, level, |bytes| {
            let mut count = 0;
            for index in indexes {
                if !accept(pointer(bytes, index, inode, holder, layout)?) {
                    break;
                }
                count += 1;
            }
            Ok(count)
        })
    }

    /// The end of the pointers of a level that cover consecutive blocks of the file.
    fn pointers_end<S: Nodes<Node = N>>(&self, nodes: &S, level: usize) -> u32 {
        match (level, self.path.levels()) {
            (0, 0) => DIRECT_POINTERS,
            // Each pointer of the inode to an indirect block is the root of a tree of its own.
            (0, _) => self.index(0) + 1,
            _ => pointers_per_block(nodes.layout()),
        }
    }

    /// Blocks of the file below one pointer of a level.
    fn blocks_below<S: Nodes<Node = N>>(&self, nodes: &S, level: usize) -> u64 {
        blocks_under(self.path.levels() - level, nodes.layout())
    }

    /// How many blocks the pointer of a level covers before the path's block.
    fn blocks_before<S: Nodes<Node = N>>(&self, nodes: &S, level: usize) -> u64 {
        (level + 1..=self.path.levels())
            .map(|lower| u64::from(self.index(lower)) * self.blocks_below(nodes, lower))
            .sum()
    }
}

/// The mapping of a block, and its length within the block that holds the pointer.
fn run_at<N: Nodes>(
    nodes: &N,
    logical: u64,
    length_max: u64,
) -> Result<(Option<PhysicalBlock>, u64)> {
    let path = MapPath::new(LogicalBlock::new(logical as u32), nodes.layout());
    let Some(path) = path else { return Ok((None, END - logical)) };
    let way = PointerPath::find(nodes, path)?;
    let level = way.present;
    let rest = way.index(level)..way.pointers_end(nodes, level);
    if level < path.levels() {
        let missing = way.count(nodes, level, rest, |block| block.is_none())?;
        let length = missing * way.blocks_below(nodes, level) - way.blocks_before(nodes, level);
        return Ok((None, length));
    }
    let start = way.pointer(nodes, level, way.index(level))?;
    let mut length = 0;
    let rest = rest.take(usize::try_from(length_max).unwrap_or(usize::MAX));
    way.count(nodes, level, rest, |block| {
        let same = block == start.and_then(|start| start.checked_add(length));
        length += u64::from(same);
        same
    })?;
    Ok((start, length))
}

/// Looks up a block and those after it, as far as they are consecutive on the device.
pub(super) fn map<N: Nodes>(nodes: &N, logical: u32, length_max: u32) -> Result<MappedRun> {
    let logical = u64::from(logical);
    let length_max = u64::from(length_max).min(END - logical);
    let (start, mut length) = run_at(nodes, logical, length_max)?;
    while length < length_max {
        let (next, more) = run_at(nodes, logical + length, length_max - length)?;
        if next != start.and_then(|start| start.checked_add(length)) {
            break;
        }
        length += more;
    }
    let length = length.min(length_max) as u32;
    if let Some(start) = start {
        nodes.check_mapped(start, length)?;
    }
    Ok(MappedRun { physical: start, unwritten: false, delayed: false, length })
}

/// The first mapped run at or after `from`.
pub(super) fn next<N: Nodes>(nodes: &N, from: u32) -> Result<Option<Extent>> {
    let mut from = u64::from(from);
    while from < logical_end(nodes.layout()).min(END) {
        let logical = from as u32;
        let mapped = map(nodes, logical, u32::MAX)?;
        if let Some(physical) = mapped.physical {
            return Ok(Some(Extent {
                logical: LogicalBlock::new(logical),
                physical,
                length: mapped.length,
                unwritten: false,
            }));
        }
        from += u64::from(mapped.length);
    }
    Ok(None)
}

/// A mapped block shortly before `logical`, from which a goal is computed.
///
/// It is the last one whose pointer is in the same block as that of `logical`, or else the block
/// right before.
pub(super) fn previous_nearby<N: Nodes>(
    nodes: &N,
    logical: LogicalBlock,
) -> Result<Option<Extent>> {
    let Some(path) = MapPath::new(logical, nodes.layout()) else { return Ok(None) };
    let way = PointerPath::find(nodes, path)?;
    let level = path.levels();
    let skipped = if way.present < level {
        0
    } else {
        way.count(nodes, level, (0..way.index(level)).rev(), |block| block.is_none())? as u32
    };
    let Some(before) = logical.checked_sub(skipped + 1) else { return Ok(None) };
    let mapped = map(nodes, before.get(), 1)?;
    let extent = |physical| Extent::of_block(before, physical);
    Ok(mapped.physical.map(extent))
}

/// The number of blocks from `logical` up to the last one whose pointer is in the same block;
/// `None` beyond the largest file.
pub(super) fn run_length_max<N: Nodes>(nodes: &N, logical: LogicalBlock) -> Option<u32> {
    let path = MapPath::new(logical, nodes.layout())?;
    let last = path.levels();
    let end = if last == 0 { DIRECT_POINTERS } else { pointers_per_block(nodes.layout()) };
    Some(end - path.indexes()[last])
}

#[cfg(test)]
mod tests;
