//! The blocks of one inode that are in memory.
//!
//! # State
//! A block that isn't here is where the map says, unless its key is at or after the *cut*: a file that
//! has been shortened keeps its map until the log writer applies the cut.

use crate::volume::BlockBytes;
use drystone_nilfs2_format::FileBlock;
use drystone_sync::Arc;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A block in memory.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: BlockBytes,
    /// Changed since the log writer last took it.
    pub(crate) is_dirty: bool,
    /// The log writer has it, as it is or as it was.
    pub(crate) in_flight: bool,
    /// There was a hole when it was made, so that it will take space.
    pub(crate) is_new: bool,
}

impl Page {
    /// Makes the page dirty. Says how many blocks that adds: itself, and the node above it unless that is counted.
    fn make_dirty(&mut self, has_node: bool) -> usize {
        if std::mem::replace(&mut self.is_dirty, true) { 0 } else { 1 + usize::from(!has_node) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) blocks: BTreeMap<FileBlock, Page>,
    cut: Option<FileBlock>,
    /// The cut that the log writer is applying.
    cut_in_flight: Option<FileBlock>,
    /// Dirty blocks, with a node of the map for each run of them.
    dirty: usize,
    new: usize,
}

/// The dirty part of an inode's content.
#[derive(Debug, Default)]
pub(crate) struct FrozenPages {
    pub(crate) cut: Option<FileBlock>,
    pub(crate) blocks: Vec<(FileBlock, BlockBytes)>,
    /// What they were counted as, with nodes.
    pub(crate) counted: usize,
}

impl Pages {
    /// Everything from here on has been cut off, as far as the map is concerned.
    pub(crate) fn cut(&self) -> Option<FileBlock> {
        [self.cut, self.cut_in_flight].into_iter().flatten().min()
    }

    /// Whether a block that isn't in memory has been cut off.
    pub(crate) fn is_cut(&self, key: FileBlock) -> bool {
        self.cut().is_some_and(|cut| key >= cut)
    }

    /// Whether the whole map has been cut off.
    pub(crate) fn is_all_cut(&self) -> bool {
        self.is_cut(FileBlock(0))
    }

    fn is_dirty(&self, key: FileBlock) -> bool {
        self.blocks.get(&key).is_some_and(|page| page.is_dirty)
    }

    /// Keeps a block that was read, unless it is in memory by now.
    pub(crate) fn keep(&mut self, key: FileBlock, bytes: impl FnOnce() -> BlockBytes) {
        self.blocks.entry(key).or_insert_with(|| Page {
            bytes: bytes(),
            is_dirty: false,
            in_flight: false,
            is_new: false,
        });
    }

    /// Whether the node above a block is counted: the block before it is dirty, or it is the first, which needs none.
    fn has_node_before(&self, key: FileBlock) -> bool {
        let before = key.0.checked_sub(1).map(FileBlock);
        before.is_none_or(|before| self.is_dirty(before))
    }

    /// A block to change; if it isn't in memory there was a hole. Also says by how much the number of
    /// dirty blocks grows.
    pub(crate) fn edit(&mut self, key: FileBlock, block_bytes: usize) -> (&mut [u8], usize) {
        let has_node = self.has_node_before(key);
        let page = match self.blocks.entry(key) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(place) => {
                self.new += 1;
                let bytes = vec![0; block_bytes].into();
                place.insert(Page { bytes, is_dirty: false, in_flight: false, is_new: true })
            }
        };
        let weight = page.make_dirty(has_node);
        self.dirty += weight;
        (Arc::make_mut(&mut page.bytes), weight)
    }

    /// Replaces a whole block. Says by how much the number of dirty blocks grows.
    pub(crate) fn replace(&mut self, key: FileBlock, bytes: BlockBytes, is_new: bool) -> usize {
        let has_node = self.has_node_before(key);
        let page = match self.blocks.entry(key) {
            Entry::Occupied(page) => {
                let page = page.into_mut();
                page.bytes = bytes;
                page
            }
            Entry::Vacant(place) => {
                self.new += usize::from(is_new);
                place.insert(Page { bytes, is_dirty: false, in_flight: false, is_new })
            }
        };
        let weight = page.make_dirty(has_node);
        self.dirty += weight;
        weight
    }

    /// Cuts everything from `from` on off. Says by how much the number of dirty blocks shrinks.
    pub(crate) fn cut_off(&mut self, from: FileBlock) -> usize {
        self.cut = Some(self.cut.map_or(from, |cut| cut.min(from)));
        self.discard(from)
    }

    /// Drops everything from `from` on, also what is dirty; the map counts again. Says by how much the number of dirty
    /// blocks shrinks.
    pub(crate) fn discard(&mut self, from: FileBlock) -> usize {
        let gone = self.blocks.split_off(&from);
        // Nodes of runs stay counted unless all is gone.
        let dirty = if self.blocks.is_empty() {
            self.dirty
        } else {
            gone.values().filter(|page| page.is_dirty).count()
        };
        self.dirty -= dirty;
        self.new -= gone.values().filter(|page| page.is_new).count();
        dirty
    }

    /// Blocks that will take space and have none yet.
    pub(crate) fn new_blocks(&self) -> u64 {
        self.new as u64
    }

    /// Takes what is dirty for the log writer.
    pub(crate) fn freeze(&mut self) -> FrozenPages {
        let mut blocks = Vec::with_capacity(self.dirty);
        if self.dirty > 0 {
            for (key, page) in &mut self.blocks {
                if std::mem::replace(&mut page.is_dirty, false) {
                    page.in_flight = true;
                    blocks.push((*key, Arc::clone(&page.bytes)));
                }
            }
        }
        let counted = std::mem::take(&mut self.dirty);
        self.cut_in_flight = self.cut.take();
        FrozenPages { cut: self.cut_in_flight, blocks, counted }
    }

    /// What the log writer took is in the log and in the map.
    pub(crate) fn settle(&mut self, frozen: &[FileBlock]) {
        self.cut_in_flight = None;
        for key in frozen {
            let page = self.blocks.get_mut(key);
            // One that was cut off and made anew meanwhile isn't in the log.
            if let Some(page) = page.filter(|page| page.in_flight) {
                page.in_flight = false;
                if std::mem::replace(&mut page.is_new, false) {
                    self.new -= 1;
                }
            }
        }
    }

    /// Drops what can be read again, and says how many blocks these were.
    pub(crate) fn trim(&mut self) -> usize {
        let before = self.blocks.len();
        self.blocks.retain(|_, page| page.is_dirty || page.in_flight);
        before - self.blocks.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_made_anew_during_a_log_takes_space_later() {
        let mut pages = Pages::default();
        let block = || BlockBytes::from(vec![1; 1024]);
        pages.replace(FileBlock(0), block(), true);
        pages.replace(FileBlock(1), block(), true);
        pages.freeze();
        pages.cut_off(FileBlock(1));
        pages.replace(FileBlock(1), block(), true);
        pages.settle(&[FileBlock(0), FileBlock(1)]);
        assert_eq!(pages.new_blocks(), 1);
        pages.freeze();
        pages.settle(&[FileBlock(1)]);
        assert_eq!(pages.new_blocks(), 0);
    }
}
