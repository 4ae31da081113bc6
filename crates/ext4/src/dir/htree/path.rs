//! A way down the index, and along its leaves.

use super::super::block::{Directory, IndexNode};
use crate::error::Result;
use drystone_ext4_format::htree::{IndexEntry, IndexProblem, LEVELS_MAX_LARGE};
use drystone_ext4_format::{Corrupt, LogicalBlock};

/// An index block on the way, and the entry taken.
#[derive(Clone)]
pub(crate) struct Step {
    pub node: IndexNode,
    pub position: u16,
}

/// The index blocks from the root to one leaf. Good as long as the index does not change.
pub(crate) struct Path {
    /// From the root down; never empty.
    pub steps: Vec<Step>,
    /// Index blocks on every way.
    height: usize,
}

impl Path {
    /// The way to the leaf where names of a hash start.
    pub fn to(directory: &Directory<'_>, hash: u32) -> Result<Path> {
        Path::descend(directory, Some(hash))
    }

    /// The way to the first leaf.
    pub fn first(directory: &Directory<'_>) -> Result<Path> {
        Path::descend(directory, None)
    }

    fn descend(directory: &Directory<'_>, hash: Option<u32>) -> Result<Path> {
        let root = directory.root()?;
        let levels = root.look(|view| view.levels()).unwrap_or(0);
        let limit = directory.limits().levels_max();
        if levels > limit {
            let (inode, block) = (directory.inode.number, root.block);
            let problem = IndexProblem::Levels { found: levels, limit };
            return Err(Corrupt::DirectoryIndex { inode, block, problem }.into());
        }
        let steps = Vec::with_capacity(1 + usize::from(LEVELS_MAX_LARGE));
        let mut path = Path { steps, height: 1 + usize::from(levels) };
        path.push(root, hash);
        path.complete(directory, hash)?;
        Ok(path)
    }

    fn push(&mut self, node: IndexNode, hash: Option<u32>) {
        let position = hash.map_or(0, |hash| node.look(|view| view.search(hash)));
        self.steps.push(Step { node, position });
    }

    /// Goes down to the lowest index block.
    fn complete(&mut self, directory: &Directory<'_>, hash: Option<u32>) -> Result<()> {
        while self.steps.len() < self.height {
            let node = directory.node(self.leaf(directory)?)?;
            self.push(node, hash);
        }
        Ok(())
    }

    /// What the lowest entry taken points at: on a complete way, the leaf.
    pub fn leaf(&self, directory: &Directory<'_>) -> Result<LogicalBlock> {
        let entry = self.steps.last().and_then(Step::entry);
        entry.map(|entry| entry.block).ok_or_else(|| {
            let inode = directory.inode.number;
            let block = self.steps.last().map_or(LogicalBlock::FIRST, |step| step.node.block);
            let problem = IndexProblem::Count { count: 0, limit: 0 };
            Corrupt::DirectoryIndex { inode, block, problem }.into()
        })
    }

    /// The least hash that the index allows in this leaf, without the continuation bit.
    pub fn lower_bound(&self) -> u32 {
        // An entry that is not the first of its block bounds what is below it; the lowest such is
        // the closest bound.
        let bound = self.steps.iter().rev().find(|step| step.position > 0).and_then(Step::entry);
        bound.map_or(0, |entry| entry.hash_value())
    }

    /// The index entry that bounds this leaf above, nothing at the last leaf.
    pub fn peek(&self) -> Option<IndexEntry> {
        self.steps.iter().rev().find_map(Step::next)
    }

    /// Goes on to the next leaf and returns the entry that bounds it below; nothing at the end.
    pub fn next(&mut self, directory: &Directory<'_>) -> Result<Option<IndexEntry>> {
        let Some(depth) = self.steps.iter().rposition(|step| step.next().is_some()) else {
            return Ok(None);
        };
        self.steps.truncate(depth + 1);
        let entry = self.steps.last_mut().and_then(|step| {
            step.position += 1;
            step.entry()
        });
        self.complete(directory, None)?;
        Ok(entry)
    }
}

impl Step {
    fn entry(&self) -> Option<IndexEntry> {
        self.node.look(|view| view.get(self.position))
    }

    fn next(&self) -> Option<IndexEntry> {
        self.node.look(|view| view.get(self.position.checked_add(1)?))
    }

    pub fn is_full(&self) -> bool {
        self.node.look(|view| view.is_full())
    }
}
