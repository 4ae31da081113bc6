//! The map of one inode in memory: six pointers, or a B-tree whose nodes are loaded on need.
//!
//! # State
//! A node that has changed since it was last logged is *dirty*, and so are all nodes above it: the log
//! writer gives each a new place, which changes its parent. Pointers of nodes that have left the tree
//! are kept in `released` until the log writer ends them.
//!
//! Only the log writer changes a map, when it builds a log. Until then, changes of files are in their pages.
//!
//! # Locking
//! None of its own: a map is behind the lock of its inode or metadata file. Nodes are loaded under a
//! shared borrow.

mod change;
mod remove;

use crate::error::Result;
use crate::volume::BlockSource;
use drystone_nilfs2_format::inode::MAP_BYTES;
use drystone_nilfs2_format::map::{
    DIRECT_POINTERS, LEVEL_OF_LEAVES, MapEntry, MapNode, MapRoot, node_entries_max,
    node_entries_min,
};
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_sync::OnceLock;

/// An entry of a node: a key, what it leads to, and the node if it is one and in memory.
#[derive(Debug, Default)]
struct Slot {
    key: u64,
    /// 0 for a node that has never been logged.
    pointer: u64,
    child: OnceLock<Box<TreeNode>>,
}

#[derive(Debug)]
struct TreeNode {
    level: u8,
    slots: Vec<Slot>,
    is_dirty: bool,
}

#[derive(Debug)]
enum Root {
    Direct([u64; DIRECT_POINTERS]),
    Tree(TreeNode),
}

/// A node to be logged.
#[derive(Debug)]
pub(crate) struct DirtyNode {
    pub(crate) pointer: u64,
    pub(crate) key: FileBlock,
    pub(crate) node: MapNode,
}

/// The map of one inode.
#[derive(Debug)]
pub(crate) struct BlockMap {
    inode: InodeNumber,
    root: Root,
    entries_max: usize,
    entries_min: usize,
    /// Pointers of nodes that have left the tree.
    released: Vec<u64>,
    /// Blocks gained or lost since the count was last taken: data and nodes.
    blocks_change: i64,
}

impl BlockMap {
    /// The map of an empty file.
    pub(crate) fn empty(inode: InodeNumber, block_bytes: usize) -> Self {
        Self::with_root(inode, Root::Direct([0; DIRECT_POINTERS]), block_bytes)
    }

    /// The map whose root is in an inode.
    pub(crate) fn load(
        inode: InodeNumber,
        map: &[u8; MAP_BYTES],
        block_bytes: usize,
    ) -> Result<Self> {
        let root = match MapRoot::check(map, inode)? {
            MapRoot::Direct(pointers) => Root::Direct(pointers),
            MapRoot::Tree { level, entries } => Root::Tree(TreeNode::new(level, &entries)),
        };
        Ok(Self::with_root(inode, root, block_bytes))
    }

    fn with_root(inode: InodeNumber, root: Root, block_bytes: usize) -> Self {
        Self {
            inode,
            root,
            entries_max: node_entries_max(block_bytes),
            entries_min: node_entries_min(block_bytes),
            released: Vec::new(),
            blocks_change: 0,
        }
    }

    /// The root as an inode stores it.
    pub(crate) fn encode_root(&self) -> [u8; MAP_BYTES] {
        match &self.root {
            Root::Direct(pointers) => MapRoot::Direct(*pointers).encode(),
            Root::Tree(root) => {
                MapRoot::Tree { level: root.level, entries: root.entries() }.encode()
            }
        }
    }

    /// What a key leads to; 0 for a hole.
    pub(crate) fn get(&self, key: FileBlock, source: &dyn BlockSource) -> Result<u64> {
        let mut node = match &self.root {
            Root::Direct(pointers) => {
                let pointer = usize::try_from(key.0).ok().and_then(|index| pointers.get(index));
                return Ok(pointer.copied().unwrap_or(0));
            }
            Root::Tree(root) => root,
        };
        let mut limit = None;
        loop {
            let Some(index) = node.index_of(key.0) else { return Ok(0) };
            let slot = &node.slots[index];
            if node.level == LEVEL_OF_LEAVES {
                return Ok(if slot.key == key.0 { slot.pointer } else { 0 });
            }
            limit = node.slots.get(index + 1).map(|next| next.key).or(limit);
            node = slot.child(node.level - 1, limit, self.inode, source)?;
        }
    }

    /// The first key from `from` on that leads somewhere.
    pub(crate) fn next(
        &self,
        from: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<Option<MapEntry>> {
        match &self.root {
            Root::Direct(pointers) => Ok((0..)
                .zip(pointers)
                .skip_while(|(key, pointer)| *key < from.0 || **pointer == 0)
                .map(|(key, pointer)| MapEntry { key, pointer: *pointer })
                .next()),
            Root::Tree(root) => root.next(from.0, None, self.inode, source),
        }
    }

    /// What leads to the node of a level that starts with a key; 0 if there is none.
    pub(crate) fn node_pointer(
        &self,
        level: u8,
        key: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<u64> {
        let Root::Tree(root) = &self.root else { return Ok(0) };
        let (mut node, mut limit) = (root, None);
        loop {
            let Some(index) = node.index_of(key.0) else { return Ok(0) };
            let slot = &node.slots[index];
            if node.level <= level.saturating_add(1) {
                let is_it = node.level == level.saturating_add(1) && slot.key == key.0;
                return Ok(if is_it { slot.pointer } else { 0 });
            }
            limit = node.slots.get(index + 1).map(|next| next.key).or(limit);
            node = slot.child(node.level - 1, limit, self.inode, source)?;
        }
    }

    /// The last key that leads somewhere.
    pub(crate) fn last(&self, source: &dyn BlockSource) -> Result<Option<MapEntry>> {
        let mut node = match &self.root {
            Root::Direct(pointers) => {
                return Ok((0..)
                    .zip(pointers)
                    .filter(|(_, pointer)| **pointer != 0)
                    .map(|(key, pointer)| MapEntry { key, pointer: *pointer })
                    .last());
            }
            Root::Tree(root) => root,
        };
        loop {
            let Some(slot) = node.slots.last() else { return Ok(None) };
            if node.level == LEVEL_OF_LEAVES {
                return Ok(Some(MapEntry { key: slot.key, pointer: slot.pointer }));
            }
            node = slot.child(node.level - 1, None, self.inode, source)?;
        }
    }

    /// Loads the nodes that a truncation from `from` on needs: those with keys from there on, and the one before them
    /// on each level, which may be merged with what is left. Shows what the keys lead to.
    pub(crate) fn warm_from(
        &self,
        from: FileBlock,
        source: &dyn BlockSource,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        match &self.root {
            Root::Direct(pointers) => (0..)
                .zip(pointers)
                .filter(|(key, pointer)| *key >= from.0 && **pointer != 0)
                .try_for_each(|(_, pointer)| visit(*pointer)),
            Root::Tree(root) => root.warm_from(from.0, None, self.inode, source, visit),
        }
    }

    /// Gives every dirty node a new pointer, the lowest level first, each in the order of keys.
    /// `renew` gets the old pointer, 0 for a node that never had one.
    pub(crate) fn renew_nodes(&mut self, renew: &mut dyn FnMut(u64) -> Result<u64>) -> Result<()> {
        let Root::Tree(root) = &mut self.root else { return Ok(()) };
        for level in LEVEL_OF_LEAVES..root.level {
            root.renew_level(level, renew)?;
        }
        Ok(())
    }

    /// All dirty nodes, the lowest level first, each in the order of keys.
    pub(crate) fn dirty_nodes(&self) -> Vec<DirtyNode> {
        let mut nodes = Vec::new();
        if let Root::Tree(root) = &self.root {
            for level in LEVEL_OF_LEAVES..root.level {
                root.collect_level(level, &mut nodes);
            }
        }
        nodes
    }

    /// Whether there is nothing to log.
    pub(crate) fn is_clean(&self) -> bool {
        let has_dirty_nodes = matches!(&self.root, Root::Tree(root) if root.is_dirty);
        !has_dirty_nodes && self.released.is_empty()
    }

    /// Forgets which nodes are dirty: they have been logged.
    pub(crate) fn mark_clean(&mut self) {
        if let Root::Tree(root) = &mut self.root {
            root.mark_clean();
        }
    }

    /// Pointers of nodes that have left the tree since this was last asked.
    pub(crate) fn take_released(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.released)
    }

    /// Blocks gained or lost since this was last asked.
    pub(crate) fn take_blocks_change(&mut self) -> i64 {
        std::mem::take(&mut self.blocks_change)
    }
}

impl TreeNode {
    fn new(level: u8, entries: &[MapEntry]) -> Self {
        let slots = entries
            .iter()
            .map(|entry| Slot { key: entry.key, pointer: entry.pointer, child: OnceLock::new() })
            .collect();
        Self { level, slots, is_dirty: false }
    }

    fn entries(&self) -> Vec<MapEntry> {
        self.slots.iter().map(|slot| MapEntry { key: slot.key, pointer: slot.pointer }).collect()
    }

    /// The slot that has a key, or below which it is.
    fn index_of(&self, key: u64) -> Option<usize> {
        self.slots.partition_point(|slot| slot.key <= key).checked_sub(1)
    }

    fn next(
        &self,
        from: u64,
        limit: Option<u64>,
        inode: InodeNumber,
        source: &dyn BlockSource,
    ) -> Result<Option<MapEntry>> {
        if self.level == LEVEL_OF_LEAVES {
            let index = self.slots.partition_point(|slot| slot.key < from);
            let slot = self.slots.get(index);
            return Ok(slot.map(|slot| MapEntry { key: slot.key, pointer: slot.pointer }));
        }
        for index in self.index_of(from).unwrap_or(0)..self.slots.len() {
            let limit = self.slots.get(index + 1).map(|next| next.key).or(limit);
            let child = self.slots[index].child(self.level - 1, limit, inode, source)?;
            if let Some(entry) = child.next(from, limit, inode, source)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn warm_from(
        &self,
        from: u64,
        limit: Option<u64>,
        inode: InodeNumber,
        source: &dyn BlockSource,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if self.level == LEVEL_OF_LEAVES {
            let slots = self.slots.iter().filter(|slot| slot.key >= from);
            return slots.map(|slot| slot.pointer).try_for_each(visit);
        }
        let first = self.index_of(from).unwrap_or(0);
        for index in first.saturating_sub(1)..self.slots.len() {
            let limit = self.slots.get(index + 1).map(|next| next.key).or(limit);
            let child = self.slots[index].child(self.level - 1, limit, inode, source)?;
            // Nothing in the child before the first is at or after `from`: only its last nodes are loaded.
            child.warm_from(from, limit, inode, source, visit)?;
        }
        Ok(())
    }

    fn renew_level(&mut self, level: u8, renew: &mut dyn FnMut(u64) -> Result<u64>) -> Result<()> {
        for slot in &mut self.slots {
            let Some(child) = slot.child.get_mut().filter(|child| child.is_dirty) else { continue };
            if child.level == level {
                slot.pointer = renew(slot.pointer)?;
            } else {
                child.renew_level(level, renew)?;
            }
        }
        Ok(())
    }

    fn collect_level(&self, level: u8, nodes: &mut Vec<DirtyNode>) {
        for slot in &self.slots {
            let Some(child) = slot.child.get().filter(|child| child.is_dirty) else { continue };
            if child.level == level {
                let node = MapNode { level, entries: child.entries() };
                nodes.push(DirtyNode { pointer: slot.pointer, key: FileBlock(slot.key), node });
            } else {
                child.collect_level(level, nodes);
            }
        }
    }

    fn mark_clean(&mut self) {
        self.is_dirty = false;
        for slot in &mut self.slots {
            if let Some(child) = slot.child.get_mut().filter(|child| child.is_dirty) {
                child.mark_clean();
            }
        }
    }
}

impl Slot {
    /// The node that the slot leads to, loaded if it isn't in memory.
    fn child(
        &self,
        level: u8,
        limit: Option<u64>,
        inode: InodeNumber,
        source: &dyn BlockSource,
    ) -> Result<&TreeNode> {
        if let Some(child) = self.child.get() {
            return Ok(child);
        }
        let block = source.read(self.pointer)?;
        let node = MapNode::check(&block, inode, self.pointer, level, self.key, limit)?;
        Ok(self.child.get_or_init(|| Box::new(TreeNode::new(level, &node.entries))))
    }

    /// The same for a change.
    fn child_mut(
        &mut self,
        level: u8,
        limit: Option<u64>,
        inode: InodeNumber,
        source: &dyn BlockSource,
    ) -> Result<&mut TreeNode> {
        self.child(level, limit, inode, source)?;
        match self.child.get_mut() {
            Some(child) => Ok(child),
            None => unreachable!("it was loaded just now"),
        }
    }
}

#[cfg(test)]
mod tests;
