//! The data blocks of a file, their places, and the extent tree that maps them.

use super::directory;
use crate::error::{Error, Result};
use crate::tree::{FileTree, Node, NodeKind};
use drystone_ext4_format::extent::{
    Extent, ExtentIndex, ExtentNodeMut, NodePlace, WRITTEN_BLOCKS_MAX, entries_per_block,
};
use drystone_ext4_format::inode::BLOCK_AREA_BYTES;
use drystone_ext4_format::{InodeNumber, InodeSeed, LogicalBlock, PhysicalBlock};
use std::ops::Range;

/// Extents that fit an inode.
const ROOT_EXTENTS: usize = 4;

/// Walks through the free blocks of an image, handing them out in order.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    free: &'a [Range<u64>],
    at: usize,
    /// The next block, inside `free[at]`.
    next: u64,
    /// Blocks that were requested beyond the free ones.
    pub missing: u64,
    /// Blocks handed out.
    pub taken: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(free: &'a [Range<u64>]) -> Cursor<'a> {
        let next = free.first().map_or(0, |run| run.start);
        Cursor { free, at: 0, next, missing: 0, taken: 0 }
    }

    /// The next run of at most `wanted` blocks. Blocks that don't exist have numbers too, after the
    /// last, so that a layout that doesn't fit can be measured.
    fn take(&mut self, wanted: u64) -> Range<u64> {
        let Some(run) = self.free.get(self.at) else {
            let start = self.next;
            self.next += wanted;
            self.missing += wanted;
            return start..self.next;
        };
        let start = self.next;
        let end = run.end.min(start + wanted);
        self.next = end;
        self.taken += end - start;
        if end == run.end {
            self.at += 1;
            if let Some(run) = self.free.get(self.at) {
                self.next = run.start;
            }
        }
        start..end
    }

    /// One block.
    pub fn take_block(&mut self) -> u64 {
        self.take(1).start
    }

    /// All blocks that were handed out.
    pub fn used(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let partly = self.free.get(self.at).map(|run| run.start..self.next);
        self.free[..self.at].iter().cloned().chain(partly)
    }
}

/// Where the content of one file is. Used for one file after the other.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Ranges of the file's blocks that have data, sorted and without overlap.
    ranges: Vec<Range<u64>>,
    pub extents: Vec<Extent>,
    /// Blocks of the tree of extents, the leaves first.
    pub nodes: Vec<u64>,
}

impl Placed {
    /// Places the content of a node at the cursor; for a directory the number of blocks is given.
    pub fn place(
        &mut self,
        node: &Node<'_>,
        directory_blocks: u64,
        block_size: usize,
        cursor: &mut Cursor<'_>,
    ) {
        self.extents.clear();
        self.nodes.clear();
        self.find_ranges(node, directory_blocks, block_size as u64);
        for range in &self.ranges {
            let mut at = range.start;
            while at < range.end {
                let run = cursor.take((range.end - at).min(WRITTEN_BLOCKS_MAX.into()));
                let length = run.end - run.start;
                self.extents.push(Extent {
                    // Sizes of files are bounded before anything is placed.
                    logical: LogicalBlock::new(at as u32),
                    length: length as u32,
                    physical: PhysicalBlock::new(run.start),
                    unwritten: false,
                });
                at += length;
            }
        }
        for _ in 0..node_count(self.extents.len(), block_size) {
            self.nodes.push(cursor.take_block());
        }
    }

    fn find_ranges(&mut self, node: &Node<'_>, directory_blocks: u64, block_size: u64) {
        self.ranges.clear();
        match node.kind() {
            NodeKind::Directory => self.ranges.push(0..directory_blocks),
            NodeKind::Symlink(target) if !is_fast(target) => self.ranges.push(0..1),
            NodeKind::File { .. } => {
                if let Some(bytes) = node.inline_bytes() {
                    self.ranges.push(0..(bytes.len() as u64).div_ceil(block_size));
                }
                for segment in node.segments() {
                    let start = segment.logical / block_size;
                    let end = (segment.logical + segment.length).div_ceil(block_size);
                    match self.ranges.last_mut() {
                        Some(last) if start <= last.end => last.end = last.end.max(end),
                        _ => self.ranges.push(start..end),
                    }
                }
            }
            _ => {}
        }
    }

    /// Blocks of data and of the tree.
    pub fn blocks(&self) -> u64 {
        let data: u64 = self.extents.iter().map(|extent| u64::from(extent.length)).sum();
        data + self.nodes.len() as u64
    }

    /// The root of the tree of extents, and the bytes of its other nodes with their blocks.
    pub fn encode(
        &self,
        inode: InodeNumber,
        seed: Option<InodeSeed>,
        block_size: usize,
    ) -> ([u8; BLOCK_AREA_BYTES], Vec<(u64, Vec<u8>)>) {
        let mut area = [0; BLOCK_AREA_BYTES];
        let mut below = Vec::with_capacity(self.nodes.len());
        if self.nodes.is_empty() {
            let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(inode), 0);
            for (position, extent) in self.extents.iter().enumerate() {
                root.insert_extent(position, extent);
            }
            return (area, below);
        }
        let per_block = usize::from(entries_per_block(block_size));
        let mut places = self.nodes.iter().copied();
        let mut level: Vec<ExtentIndex> = Vec::new();
        for chunk in self.extents.chunks(per_block) {
            let Some(block) = places.next() else { break };
            let mut bytes = vec![0; block_size];
            let place = NodePlace::block(inode, PhysicalBlock::new(block));
            let mut leaf = ExtentNodeMut::init(&mut bytes, place, 0);
            for (position, extent) in chunk.iter().enumerate() {
                leaf.insert_extent(position, extent);
            }
            leaf.seal(seed);
            level.push(ExtentIndex { logical: chunk[0].logical, child: PhysicalBlock::new(block) });
            below.push((block, bytes));
        }
        let mut depth = 1;
        while level.len() > ROOT_EXTENTS {
            let mut above = Vec::new();
            for chunk in level.chunks(per_block) {
                let Some(block) = places.next() else { break };
                let mut bytes = vec![0; block_size];
                let place = NodePlace::block(inode, PhysicalBlock::new(block));
                let mut node = ExtentNodeMut::init(&mut bytes, place, depth);
                for (position, index) in chunk.iter().enumerate() {
                    node.insert_index(position, index);
                }
                node.seal(seed);
                above.push(ExtentIndex {
                    logical: chunk[0].logical,
                    child: PhysicalBlock::new(block),
                });
                below.push((block, bytes));
            }
            level = above;
            depth += 1;
        }
        let mut root = ExtentNodeMut::init(&mut area, NodePlace::root(inode), depth);
        for (position, index) in level.iter().enumerate() {
            root.insert_index(position, index);
        }
        (area, below)
    }
}

/// Whether the target of a symbolic link lies in its inode.
pub(super) fn is_fast(target: &[u8]) -> bool {
    target.len() < BLOCK_AREA_BYTES
}

/// Nodes beside the root of a tree with so many extents.
fn node_count(extents: usize, block_size: usize) -> usize {
    if extents <= ROOT_EXTENTS {
        return 0;
    }
    let per_block = usize::from(entries_per_block(block_size));
    let mut level = extents.div_ceil(per_block);
    let mut count = level;
    while level > ROOT_EXTENTS {
        level = level.div_ceil(per_block);
        count += level;
    }
    count
}

/// Whether all files can be what they are in an image with such blocks.
pub(super) fn check(tree: &FileTree, node: Node<'_>, limits: &ContentLimits) -> Result<()> {
    let problem = |problem| Err(Error::File { path: tree.path_of(node.id()), problem });
    match node.kind() {
        NodeKind::File { size } if size > limits.file_bytes_max => {
            return problem(format!(
                "a file of {size} bytes: with blocks of {} it can have {}",
                limits.block_size, limits.file_bytes_max
            ));
        }
        NodeKind::Symlink(target) if target.len() >= limits.block_size => {
            return problem(format!(
                "a symbolic link to {} bytes: with blocks of {} it can have {}",
                target.len(),
                limits.block_size,
                limits.block_size - 1
            ));
        }
        NodeKind::CharacterDevice { major, minor } | NodeKind::BlockDevice { major, minor }
            if major >= 1 << 12 || minor >= 1 << 20 =>
        {
            return problem(format!("there can be no device {major}:{minor}"));
        }
        _ => {}
    }
    let links_max = u32::from(drystone_ext4_format::layout::LINKS_MAX);
    if node.links() > links_max {
        return problem(format!("{} hard links: there can be {links_max}", node.links()));
    }
    if matches!(node.kind(), NodeKind::Directory) && !limits.many_subdirectories {
        let subdirectories = directory::subdirectories(tree, node.id());
        if subdirectories + 2 > links_max {
            return problem(format!(
                "{subdirectories} subdirectories: without dir_nlink there can be {}",
                links_max - 2
            ));
        }
    }
    Ok(())
}

/// What bounds files.
pub(super) struct ContentLimits {
    pub block_size: usize,
    pub file_bytes_max: u64,
    pub many_subdirectories: bool,
}
