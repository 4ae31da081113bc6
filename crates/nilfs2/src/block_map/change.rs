//! Sets the block that a key maps to.

use super::{BlockMap, DIRECT_POINTERS, LEVEL_OF_LEAVES, Root, Slot, TreeNode};
use crate::error::Result;
use crate::volume::BlockSource;
use drystone_nilfs2_format::map::ROOT_ENTRIES;
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_sync::OnceLock;

/// What a change of the tree needs to know, and what it changes beside.
pub(super) struct TreeChange<'a> {
    pub(super) inode: InodeNumber,
    pub(super) source: &'a dyn BlockSource,
    pub(super) entries_max: usize,
    pub(super) entries_min: usize,
    pub(super) released: &'a mut Vec<u64>,
    pub(super) blocks_change: &'a mut i64,
}

impl BlockMap {
    /// Sets what a key leads to, and returns what it led to before, 0 for a hole.
    ///
    /// # Errors
    /// If a node can't be read. The map must not be used afterwards.
    pub(crate) fn set(
        &mut self,
        key: FileBlock,
        pointer: u64,
        source: &dyn BlockSource,
    ) -> Result<u64> {
        if let Root::Direct(pointers) = &mut self.root {
            if let Some(place) =
                usize::try_from(key.0).ok().and_then(|index| pointers.get_mut(index))
            {
                let old = std::mem::replace(place, pointer);
                self.blocks_change += i64::from(old == 0);
                return Ok(old);
            }
            self.root = Root::Tree(tree_of(pointers));
        }
        let Root::Tree(root) = &mut self.root else { unreachable!("it was made a tree just now") };
        let mut change = TreeChange {
            inode: self.inode,
            source,
            entries_max: self.entries_max,
            entries_min: self.entries_min,
            released: &mut self.released,
            blocks_change: &mut self.blocks_change,
        };
        let old = root.set(key.0, pointer, None, &mut change)?;
        if root.slots.len() > ROOT_ENTRIES {
            root.push_down();
            self.blocks_change += 1;
        }
        Ok(old)
    }
}

/// Nodes that are to be logged though nothing in them changes.
impl BlockMap {
    /// Has the node of a level that has a key logged again.
    pub(crate) fn mark_dirty(
        &mut self,
        level: u8,
        key: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<()> {
        let Root::Tree(root) = &mut self.root else { return Ok(()) };
        let mut node = root;
        let mut limit = None;
        node.is_dirty = true;
        while node.level > level.max(LEVEL_OF_LEAVES) {
            let index = node.index_of(key.0).unwrap_or(0);
            limit = node.slots.get(index + 1).map(|next| next.key).or(limit);
            let below = node.level - 1;
            node = node.slots[index].child_mut(below, limit, self.inode, source)?;
            node.is_dirty = true;
        }
        Ok(())
    }
}

/// A root that holds what direct pointers lead to.
fn tree_of(pointers: &[u64; DIRECT_POINTERS]) -> TreeNode {
    let slots: Vec<Slot> = (0..)
        .zip(pointers)
        .filter(|(_, pointer)| **pointer != 0)
        .map(|(key, pointer)| Slot { key, pointer: *pointer, child: OnceLock::new() })
        .collect();
    TreeNode { level: LEVEL_OF_LEAVES, slots, is_dirty: true }
}

impl TreeNode {
    fn set(
        &mut self,
        key: u64,
        pointer: u64,
        limit: Option<u64>,
        change: &mut TreeChange<'_>,
    ) -> Result<u64> {
        self.is_dirty = true;
        let index = self.index_of(key);
        if self.level == LEVEL_OF_LEAVES {
            if let Some(slot) = index.map(|index| &mut self.slots[index])
                && slot.key == key
            {
                return Ok(std::mem::replace(&mut slot.pointer, pointer));
            }
            let place = index.map_or(0, |index| index + 1);
            self.slots.insert(place, Slot { key, pointer, child: OnceLock::new() });
            *change.blocks_change += 1;
            return Ok(0);
        }
        let index = index.unwrap_or(0);
        let child = self.child_at(index, limit, change)?;
        let below = child.slots_limit(limit);
        let old = child.node.set(key, pointer, below, change)?;
        let (first, length) = (child.node.slots[0].key, child.node.slots.len());
        self.slots[index].key = first;
        if length > change.entries_max {
            self.relieve(index, limit, change)?;
        }
        Ok(old)
    }

    /// Makes room in a child that has one entry too many: gives some to its left sibling, or splits it.
    fn relieve(
        &mut self,
        index: usize,
        limit: Option<u64>,
        change: &mut TreeChange<'_>,
    ) -> Result<()> {
        if index > 0 {
            // The change was admitted without it: if it can't be read, the child is split.
            let left = self.child_at(index - 1, limit, change).ok();
            let room =
                left.map_or(0, |left| change.entries_max.saturating_sub(left.node.slots.len()));
            if room > 0 {
                let child = self.child_at(index, limit, change)?.node;
                let count = room.min(child.slots.len() - change.entries_min);
                let moved: Vec<Slot> = child.slots.drain(..count).collect();
                self.slots[index].key = child_key(&self.slots[index]);
                let left = self.child_at(index - 1, limit, change)?.node;
                left.is_dirty = true;
                left.slots.extend(moved);
                return Ok(());
            }
        }
        let child = self.child_at(index, limit, change)?.node;
        let half = child.slots.len().div_ceil(2);
        let slots = child.slots.split_off(half);
        let right = TreeNode { level: child.level, slots, is_dirty: true };
        self.slots.insert(index + 1, Slot::of_new(right));
        *change.blocks_change += 1;
        Ok(())
    }

    /// Puts the entries of a root into a new node below it.
    fn push_down(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let child = TreeNode { level: self.level, slots, is_dirty: true };
        self.level += 1;
        self.slots.push(Slot::of_new(child));
    }

    /// A child for a change, loaded if need be.
    pub(super) fn child_at(
        &mut self,
        index: usize,
        limit: Option<u64>,
        change: &TreeChange<'_>,
    ) -> Result<Child<'_>> {
        let next = self.slots.get(index + 1).map(|slot| slot.key);
        let level = self.level - 1;
        let limit = next.or(limit);
        let node = self.slots[index].child_mut(level, limit, change.inode, change.source)?;
        Ok(Child { node, limit: next })
    }
}

/// A child, and its parent's next key.
pub(super) struct Child<'a> {
    pub(super) node: &'a mut TreeNode,
    limit: Option<u64>,
}

impl Child<'_> {
    pub(super) fn slots_limit(&self, limit: Option<u64>) -> Option<u64> {
        self.limit.or(limit)
    }
}

impl Slot {
    /// The slot of a node that has never been logged.
    fn of_new(node: TreeNode) -> Self {
        let key = node.slots[0].key;
        Self { key, pointer: 0, child: OnceLock::from(Box::new(node)) }
    }
}

/// The first key of a slot's child, which is in memory and not empty.
pub(super) fn child_key(slot: &Slot) -> u64 {
    slot.child.get().and_then(|child| child.slots.first()).map_or(slot.key, |first| first.key)
}
