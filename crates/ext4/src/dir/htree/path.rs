//! Paths down the index, and along its leaves.

use super::super::block::{Directory, IndexNode};
use crate::content::SoughtName;
use crate::directory_index_cache::{CachedLeaf, DirectoryIndexCache, IndexMiss};
use crate::directory_index_lock::DirectoryIndexLock;
use crate::error::{Error, Result};
use drystone_ext4_format::error::IndexProblem;
use drystone_ext4_format::htree::{IndexBlock, IndexEntry, LEVELS_MAX_LARGE};
use drystone_ext4_format::{Corrupt, LogicalBlock};

/// The leaf for one name: all that a look-up needs.
pub(crate) struct HtreeLeaf {
    /// The leaf where names of the hash start.
    pub leaf: LogicalBlock,
    /// The name's hash.
    pub hash: u32,
    /// Whether names of the hash go on in the next leaf.
    pub continues: bool,
}

impl HtreeLeaf {
    /// Finds the leaf for a name. Leaves may be split meanwhile.
    pub fn to(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<HtreeLeaf> {
        let Some(index) = directory.inode.index_cache() else {
            return HtreeLeaf::in_blocks(directory, sought);
        };
        let hash_of = |version| sought.hash(super::hasher_named(directory, Some(version))).major;
        let miss = match index.find(hash_of) {
            Ok(CachedLeaf { leaf, hash, bound }) => {
                return Ok(HtreeLeaf { leaf, hash, continues: is_continued(bound, hash) });
            }
            Err(miss) => miss,
        };
        let found = HtreeLeaf::in_blocks(directory, sought)?;
        if miss == IndexMiss::Unknown
            && index.wants_blocks()
            && let Some(_index) =
                directory.inode.index_lock().and_then(DirectoryIndexLock::try_write)
            && cache_path(directory, index, found.hash).is_err()
        {
            // The search has succeeded all the same.
            index.pause();
        }
        Ok(found)
    }

    fn in_blocks(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<HtreeLeaf> {
        let mut node = directory.root()?;
        let around = |view: &IndexBlock<'_>, hash| {
            let position = view.search(hash);
            (view.get(position), position.checked_add(1).and_then(|next| view.get(next)))
        };
        let (levels, hash, (mut entry, mut next)) = node.look(|view| {
            let hasher = super::hasher_named(directory, view.hash_version());
            let hash = sought.hash(hasher).major;
            (view.levels(), hash, around(view, hash))
        });
        let mut levels = check_levels(directory, levels)?;
        let mut bound = None;
        loop {
            let leaf = entry.ok_or_else(|| empty(directory, node.block))?.block;
            // The bound of the lowest level is the closest.
            bound = next.or(bound);
            if levels == 0 {
                return Ok(HtreeLeaf { leaf, hash, continues: is_continued(bound, hash) });
            }
            levels -= 1;
            node = directory.node(leaf)?;
            (entry, next) = node.look(|view| around(view, hash));
        }
    }
}

/// Whether names of the hash of a leaf go on behind the entry that bounds it.
fn is_continued(bound: Option<IndexEntry>, hash: u32) -> bool {
    bound.is_some_and(|next| next.continues() && next.hash_value() == hash)
}

/// Caches the index blocks on the path to a hash. The index is locked exclusively.
fn cache_path(directory: &Directory<'_>, index: &DirectoryIndexCache, hash: u32) -> Result<()> {
    let path = HtreePath::to(directory, hash)?;
    match &path.steps[..] {
        [root] => root.node.look(|view| index.add_root(view)),
        [root, node] => {
            root.node.look(|view| index.add_root(view));
            node.node.look(|view| index.add_node(root.position, view));
        }
        _ => index.turn_off(),
    }
    Ok(())
}

/// The index levels below a root, bounded even if the block has changed since its check.
fn check_levels(directory: &Directory<'_>, levels: Option<u8>) -> Result<u8> {
    let levels = levels.unwrap_or(0);
    let limit = directory.levels_max();
    if levels > limit {
        let (inode, block) = (directory.inode.number, LogicalBlock::FIRST);
        let problem = IndexProblem::Levels { found: levels, limit };
        return Err(Corrupt::DirectoryIndex { inode, block, problem }.into());
    }
    Ok(levels)
}

/// The error for an index block without entries.
fn empty(directory: &Directory<'_>, block: LogicalBlock) -> Error {
    let inode = directory.inode.number;
    let problem = IndexProblem::Count { count: 0, limit: 0 };
    Corrupt::DirectoryIndex { inode, block, problem }.into()
}

/// An index block on the path, and the entry that the path follows.
#[derive(Clone)]
pub(crate) struct HtreeStep {
    pub node: IndexNode,
    pub position: u16,
}

/// The index blocks from the root to one leaf. Valid as long as the index does not change: the content lock is
/// held exclusively, or the lock of the index.
pub(crate) struct HtreePath {
    /// From the root down; never empty.
    pub steps: Vec<HtreeStep>,
    /// Index blocks on a complete path.
    height: usize,
    /// How many more leaves a walk may visit. A sound directory has fewer leaves than blocks; a
    /// damaged one may share index blocks, and so have any number of leaves.
    leaves_left: u32,
}

impl HtreePath {
    /// The path to the leaf where names of a hash start.
    pub fn to(directory: &Directory<'_>, hash: u32) -> Result<HtreePath> {
        HtreePath::descend(directory, Some(hash))
    }

    /// The path to the first leaf.
    pub fn first(directory: &Directory<'_>) -> Result<HtreePath> {
        HtreePath::descend(directory, None)
    }

    fn descend(directory: &Directory<'_>, hash: Option<u32>) -> Result<HtreePath> {
        let root = directory.root()?;
        let levels = check_levels(directory, root.look(|view| view.levels()))?;
        let steps = Vec::with_capacity(1 + usize::from(LEVELS_MAX_LARGE));
        let height = 1 + usize::from(levels);
        let mut path =
            HtreePath { steps, height, leaves_left: directory.limits().directory_blocks };
        path.push(root, hash);
        path.complete(directory, hash)?;
        Ok(path)
    }

    fn push(&mut self, node: IndexNode, hash: Option<u32>) {
        self.steps.push(match hash {
            Some(hash) => HtreeStep::to(node, hash),
            None => HtreeStep { node, position: 0 },
        });
    }

    /// The position that a path follows in the root, if there are nodes below that.
    pub fn above(&self) -> Option<u16> {
        (self.steps.len() > 1).then(|| self.steps[0].position)
    }

    /// Goes down to the lowest index block.
    fn complete(&mut self, directory: &Directory<'_>, hash: Option<u32>) -> Result<()> {
        while self.steps.len() < self.height {
            let node = directory.node(self.leaf(directory)?)?;
            self.push(node, hash);
        }
        Ok(())
    }

    /// The block to which the lowest entry points: on a complete path, the leaf.
    pub fn leaf(&self, directory: &Directory<'_>) -> Result<LogicalBlock> {
        let entry = self.steps.last().and_then(HtreeStep::entry);
        entry.map(|entry| entry.block).ok_or_else(|| {
            let block = self.steps.last().map_or(LogicalBlock::FIRST, |step| step.node.block);
            empty(directory, block)
        })
    }

    /// The lowest hash that the index allows in this leaf, without the continuation bit.
    pub fn lower_bound(&self) -> u32 {
        // An entry that is not the first of its block bounds the leaves below it; the bound of the
        // lowest level is the closest.
        let bound =
            self.steps.iter().rev().find(|step| step.position > 0).and_then(HtreeStep::entry);
        bound.map_or(0, |entry| entry.hash_value())
    }

    /// The index entry that is the upper bound of this leaf; `None` at the last leaf.
    pub fn peek(&self) -> Option<IndexEntry> {
        self.steps.iter().rev().find_map(HtreeStep::next)
    }

    /// Goes on to the next leaf and returns the entry that is its lower bound; `None` at the end.
    pub fn next(&mut self, directory: &Directory<'_>) -> Result<Option<IndexEntry>> {
        let Some(depth) = self.steps.iter().rposition(|step| step.next().is_some()) else {
            return Ok(None);
        };
        self.leaves_left = self.leaves_left.checked_sub(1).ok_or_else(|| {
            let (inode, block) = (directory.inode.number, LogicalBlock::FIRST);
            let problem = IndexProblem::Leaves { blocks: directory.limits().directory_blocks };
            Error::Corrupt(Corrupt::DirectoryIndex { inode, block, problem })
        })?;
        self.steps.truncate(depth + 1);
        let entry = self.steps.last_mut().and_then(|step| {
            step.position += 1;
            step.entry()
        });
        self.complete(directory, None)?;
        Ok(entry)
    }
}

impl HtreeStep {
    /// The step towards a hash.
    pub fn to(node: IndexNode, hash: u32) -> HtreeStep {
        let position = node.look(|view| view.search(hash));
        HtreeStep { node, position }
    }

    pub fn entry(&self) -> Option<IndexEntry> {
        self.node.look(|view| view.get(self.position))
    }

    fn next(&self) -> Option<IndexEntry> {
        self.node.look(|view| view.get(self.position.checked_add(1)?))
    }

    pub fn is_full(&self) -> bool {
        self.node.look(|view| view.is_full())
    }

    /// Whether so many more entries fit.
    pub fn has_room(&self, count: u32) -> bool {
        self.node.look(|view| u32::from(view.count()) + count <= u32::from(view.limit()))
    }
}
