//! What the index of a hashed directory says of its leaves.

use super::intervals::Intervals;
use crate::error::Result;
use crate::image::InspectedImage;
use drystone_ext4_format::casefold::Casefold;
use drystone_ext4_format::dir::{DirectoryLayout, DirectoryPlace, Entry};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::hash::{HashVersion, NameHasher};
use drystone_ext4_format::htree::{CONTINUATION, IndexBlock, IndexKind, IndexLimits};
use drystone_ext4_format::superblock::SuperblockFlags;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::HashSet;

/// The blocks of a directory, in order.
pub(super) struct DirectoryBlocks {
    runs: Vec<Extent>,
}

impl DirectoryBlocks {
    pub fn new(mut runs: Vec<Extent>) -> Self {
        runs.sort_by_key(|run| run.logical);
        Self { runs }
    }

    /// Where a block lies.
    pub fn place(&self, logical: LogicalBlock) -> Option<PhysicalBlock> {
        let behind = self.runs.partition_point(|run| run.logical <= logical);
        self.runs[..behind].last()?.physical_of(logical)
    }

    /// How many blocks there are, holes included.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| u32::try_from(run.logical_end()).unwrap_or(u32::MAX))
    }
}

/// A leaf and the hashes that its names may have.
struct IndexedLeaf {
    block: u32,
    /// The hash that leads to it, as it is stored.
    first: u32,
    /// The one that leads to the next leaf.
    next: Option<u32>,
}

/// The index of a directory.
pub(super) struct DirectoryIndex {
    /// The hashes in the index, old ones only so far.
    hashes: Vec<u32>,
    /// In the order of their blocks.
    leaves: Vec<IndexedLeaf>,
    nodes: HashSet<u32>,
    hasher: NameHasher,
    casefold: Option<Casefold>,
    /// Whether entries have their hashes with them, because nobody can compute them without a key.
    stores_hashes: bool,
}

impl DirectoryIndex {
    /// Reads the index of a directory, as far as it can be followed; nothing if it has no root that holds.
    pub fn read(
        image: &InspectedImage<'_>,
        inode: InodeNumber,
        layout: &DirectoryLayout,
        blocks: &DirectoryBlocks,
    ) -> Result<Option<Self>> {
        let Some(bytes) =
            blocks.place(LogicalBlock::FIRST).and_then(|at| image.read_block(at).ok())
        else {
            return Ok(None);
        };
        let features = image.layout.features();
        let limits = IndexLimits {
            directory_blocks: blocks.end(),
            large_directory: features.incompat.contains(Incompat::LARGE_DIR),
        };
        let place = DirectoryPlace { inode, block: LogicalBlock::FIRST };
        let Ok(root) = IndexBlock::check_root(&bytes, layout, place, &limits) else {
            return Ok(None);
        };
        let unsigned = image.superblock.flags().contains(SuperblockFlags::UNSIGNED_HASH);
        let version = root.hash_version().map(|version| version.with_unsigned_chars(unsigned));
        let stores_hashes = version == Some(HashVersion::SipHash);
        let Some(version) = version.filter(|_| stores_hashes == layout.stores_hashes()) else {
            return Ok(None);
        };
        let folds = layout.casefolded && !layout.encrypted;
        let mut walk = IndexWalk {
            image,
            layout,
            blocks,
            place,
            limits,
            index: Self {
                hashes: Vec::new(),
                leaves: Vec::new(),
                nodes: HashSet::from([0]),
                hasher: NameHasher::new(version, image.superblock.hash_seed()),
                casefold: if folds { image.casefold() } else { None },
                stores_hashes,
            },
        };
        walk.children(&root, 0, None, root.levels().unwrap_or(0));
        let mut index = walk.index;
        // Of two ways to a leaf the first counts.
        index.leaves.sort_by_key(|leaf| leaf.block);
        index.leaves.dedup_by_key(|leaf| leaf.block);
        Ok(Some(index))
    }

    /// Its intervals; `kept` is the old and the new hash of a name that stays.
    pub fn intervals(&mut self, kept: Option<(u32, u32)>) -> Intervals {
        Intervals::new(std::mem::take(&mut self.hashes), kept)
    }

    /// The function that its old names are hashed with.
    pub const fn hasher(&self) -> NameHasher {
        self.hasher
    }

    pub const fn stores_hashes(&self) -> bool {
        self.stores_hashes
    }

    /// Whether a block is part of the index.
    pub fn is_node(&self, block: LogicalBlock) -> bool {
        self.nodes.contains(&block.get())
    }

    /// The old hash of an entry.
    pub fn hash(&self, entry: &Entry<'_>) -> u32 {
        match (entry.hash, &self.casefold) {
            (Some(hash), _) if self.stores_hashes => hash.major & !CONTINUATION,
            (_, Some(casefold)) => self.hasher.hash(&casefold.key(entry.name)).major,
            _ => self.hasher.hash(entry.name).major,
        }
    }

    /// The interval in which the new name of an entry must be to be as right or wrong as the old one is.
    pub fn interval(&self, intervals: &Intervals, block: LogicalBlock, entry: &Entry<'_>) -> u32 {
        let hash = self.hash(entry);
        let leaf = self.leaves.binary_search_by_key(&block.get(), |leaf| leaf.block);
        match leaf.ok().map(|found| &self.leaves[found]) {
            Some(leaf) if leaf.holds(hash) => intervals.started_by(leaf.first),
            _ => intervals.of_old(hash),
        }
    }
}

impl IndexedLeaf {
    fn holds(&self, hash: u32) -> bool {
        let is_before_next = self.next.is_none_or(|next| {
            let start = next & !CONTINUATION;
            // Names of the next one's first hash may still be here.
            hash < start || hash == start && next & CONTINUATION != 0
        });
        hash >= self.first & !CONTINUATION && is_before_next
    }
}

struct IndexWalk<'a, 'd> {
    image: &'a InspectedImage<'d>,
    layout: &'a DirectoryLayout,
    blocks: &'a DirectoryBlocks,
    place: DirectoryPlace,
    limits: IndexLimits,
    index: DirectoryIndex,
}

impl IndexWalk<'_, '_> {
    /// Goes through what a node refers to: hashes from `first` to below `next`, with `levels` of nodes below it.
    fn children(&mut self, node: &IndexBlock<'_>, first: u32, next: Option<u32>, levels: u8) {
        for position in 0..node.count() {
            let Some(entry) = node.get(position) else { break };
            let first = if position == 0 { first } else { entry.hash };
            let behind = position.checked_add(1).and_then(|next| node.get(next));
            let next = behind.map(|behind| behind.hash).or(next);
            self.index.hashes.push(entry.hash);
            let block = entry.block.get();
            let Some(below) = levels.checked_sub(1) else {
                self.index.leaves.push(IndexedLeaf { block, first, next });
                continue;
            };
            let bytes = self.blocks.place(entry.block).map(|at| self.image.read_block(at));
            let (true, Some(Ok(bytes))) = (self.index.nodes.insert(block), bytes) else { continue };
            let place = DirectoryPlace { block: entry.block, ..self.place };
            match IndexBlock::check_node(&bytes, self.layout, place, &self.limits) {
                Ok(node) => self.children(&node, first, next, below),
                // Its hashes are still to be replaced.
                Err(_) => {
                    let entries = IndexBlock::trusted(&bytes, IndexKind::Node).entries();
                    let expected = IndexKind::Node.limit(bytes.len(), false);
                    self.index.hashes.extend(entries.take(expected).map(|entry| entry.hash));
                }
            }
        }
    }
}
