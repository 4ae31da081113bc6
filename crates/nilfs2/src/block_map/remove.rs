//! Makes holes: removes keys from a map.

use super::change::{TreeChange, child_key};
use super::{BlockMap, DIRECT_POINTERS, LEVEL_OF_LEAVES, Root, TreeNode};
use crate::error::Result;
use crate::volume::BlockSource;
use drystone_nilfs2_format::FileBlock;
use drystone_nilfs2_format::map::ROOT_ENTRIES;

/// A tree goes back into direct pointers when all its keys are below this.
const DIRECT_AGAIN_BELOW: u64 = 3;

impl BlockMap {
    /// Makes a hole where a key was, and returns what it led to, 0 if there was a hole.
    ///
    /// # Errors
    /// If a node can't be read. The map must not be used afterwards.
    pub(crate) fn remove(&mut self, key: FileBlock, source: &dyn BlockSource) -> Result<u64> {
        if self.get(key, source)? == 0 {
            return Ok(0);
        }
        self.blocks_change -= 1;
        let root = match &mut self.root {
            // The key leads somewhere, so it is one of these.
            Root::Direct(pointers) => return Ok(std::mem::take(&mut pointers[key.0 as usize])),
            Root::Tree(root) => root,
        };
        let mut change = TreeChange {
            inode: self.inode,
            source,
            entries_max: self.entries_max,
            entries_min: self.entries_min,
            released: &mut self.released,
            blocks_change: &mut self.blocks_change,
        };
        let old = root.remove(key.0, None, &mut change)?;
        while root.level > LEVEL_OF_LEAVES && root.slots.len() == 1 {
            let child = root.child_at(0, None, &change)?.node;
            if child.slots.len() > ROOT_ENTRIES {
                break;
            }
            let slots = std::mem::take(&mut child.slots);
            change.release(root.slots[0].pointer);
            root.level -= 1;
            root.slots = slots;
        }
        let fits = root.slots.iter().all(|slot| slot.key < DIRECT_AGAIN_BELOW);
        if fits && (root.level == LEVEL_OF_LEAVES || root.slots.is_empty()) {
            let mut pointers = [0; DIRECT_POINTERS];
            for slot in &root.slots {
                pointers[slot.key as usize] = slot.pointer;
            }
            self.root = Root::Direct(pointers);
        }
        Ok(old)
    }

    /// Makes holes of all keys from `from` on, and returns what they led to.
    ///
    /// # Errors
    /// If a node can't be read. The map must not be used afterwards.
    pub(crate) fn truncate(
        &mut self,
        from: FileBlock,
        source: &dyn BlockSource,
    ) -> Result<Vec<u64>> {
        let mut removed = Vec::new();
        while let Some(last) = self.last(source)?.filter(|last| last.key >= from.0) {
            removed.push(self.remove(FileBlock(last.key), source)?);
        }
        Ok(removed)
    }
}

impl TreeChange<'_> {
    /// Notes that a node has left the tree.
    fn release(&mut self, pointer: u64) {
        *self.blocks_change -= 1;
        if pointer != 0 {
            self.released.push(pointer);
        }
    }
}

impl TreeNode {
    /// Removes a key that is there.
    fn remove(&mut self, key: u64, limit: Option<u64>, change: &mut TreeChange<'_>) -> Result<u64> {
        self.is_dirty = true;
        let Some(index) = self.index_of(key) else { unreachable!("the key was found before") };
        if self.level == LEVEL_OF_LEAVES {
            return Ok(self.slots.remove(index).pointer);
        }
        let child = self.child_at(index, limit, change)?;
        let below = child.slots_limit(limit);
        let old = child.node.remove(key, below, change)?;
        let length = child.node.slots.len();
        if length == 0 {
            change.release(self.slots[index].pointer);
            self.slots.remove(index);
            return Ok(old);
        }
        self.slots[index].key = child_key(&self.slots[index]);
        if length < change.entries_min && self.slots.len() > 1 {
            self.balance(index.saturating_sub(1), limit, change)?;
        }
        Ok(old)
    }

    /// Merges a child and the one after it, or shares their entries out.
    fn balance(
        &mut self,
        left: usize,
        limit: Option<u64>,
        change: &mut TreeChange<'_>,
    ) -> Result<()> {
        let right = self.child_at(left + 1, limit, change)?.node;
        right.is_dirty = true;
        let mut moved = std::mem::take(&mut right.slots);
        let node = self.child_at(left, limit, change)?.node;
        node.is_dirty = true;
        node.slots.append(&mut moved);
        let total = node.slots.len();
        if total <= change.entries_max {
            change.release(self.slots[left + 1].pointer);
            self.slots.remove(left + 1);
            return Ok(());
        }
        let upper = node.slots.split_off(total.div_ceil(2));
        // Its slots are empty: the check against the parent's keys was made when it was loaded.
        self.child_at(left + 1, limit, change)?.node.slots = upper;
        self.slots[left + 1].key = child_key(&self.slots[left + 1]);
        Ok(())
    }
}
