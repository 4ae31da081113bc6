//! Nodes in plain memory, for tests of the algorithms.

use super::store::{Nodes, NodesMut};
use crate::error::{Error, Result};
use drystone_ext4_format::features::Features;
use drystone_ext4_format::layout::{Geometry, Layout};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use std::collections::BTreeMap;

/// The first block for nodes; the blocks that tests map lie below.
pub(super) const FIRST_NODE: u64 = 1 << 31;
const BLOCKS: u64 = 1 << 32;

/// An inode's root and the blocks of its nodes.
pub(super) struct Memory {
    pub root: [u8; 60],
    pub blocks: BTreeMap<PhysicalBlock, Vec<u8>>,
    layout: Layout,
    /// Nodes that may still be allocated.
    pub free: usize,
    /// Allows a damaged mapping to release blocks that were never allocated.
    pub lenient: bool,
    taken: BTreeMap<PhysicalBlock, bool>,
    next: u64,
}

impl Memory {
    /// An image with blocks of 1 KiB, so that trees get deep.
    pub fn new() -> Memory {
        let geometry = Geometry {
            features: Features::NONE
                .apply(&Features::parse("extent,64bit,meta_bg,sparse_super").expect("known names")),
            uuid: [7; 16],
            checksum_seed: 0,
            log_block_size: 0,
            log_cluster_size: 0,
            blocks_count: BLOCKS,
            clusters_per_group: 8192,
            inodes_per_group: 8,
            inode_size: 256,
            first_inode: 11,
            descriptor_size: 64,
            reserved_descriptor_blocks: 0,
            first_meta_group: 0,
            log_groups_per_flex: 0,
            backup_groups: [0; 2],
            extra_inode_size: 32,
        };
        Memory {
            root: [0; 60],
            blocks: BTreeMap::new(),
            layout: Layout::new(&geometry).expect("a sound geometry"),
            free: usize::MAX,
            lenient: false,
            taken: BTreeMap::new(),
            next: FIRST_NODE,
        }
    }

    /// Blocks that were allocated and not released.
    pub fn taken(&self) -> Vec<PhysicalBlock> {
        self.taken.keys().copied().collect()
    }
}

impl Nodes for Memory {
    type Node = PhysicalBlock;

    fn inode(&self) -> InodeNumber {
        InodeNumber::FIRST_ORDINARY
    }

    fn root<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.root)
    }

    fn load(
        &self,
        block: PhysicalBlock,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<PhysicalBlock> {
        match self.blocks.get(&block) {
            Some(bytes) => verify(bytes)?,
            None => verify(&[0; 1024])?,
        }
        Ok(block)
    }

    fn look<R>(&self, node: &PhysicalBlock, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.blocks.get(node).map_or(&[0; 1024], |bytes| bytes))
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl NodesMut for Memory {
    fn change_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        Ok(change(&mut self.root))
    }

    fn change<R>(
        &mut self,
        node: &PhysicalBlock,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(change(self.blocks.entry(*node).or_insert_with(|| vec![0; 1024])))
    }

    fn allocate(&mut self, _goal: PhysicalBlock) -> Result<PhysicalBlock> {
        self.free = self.free.checked_sub(1).ok_or(Error::NoSpace)?;
        let block = PhysicalBlock::new(self.next);
        self.next += 1;
        self.taken.insert(block, false);
        Ok(block)
    }

    fn create(&mut self, block: PhysicalBlock, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        assert_eq!(self.taken.insert(block, true), Some(false), "{block:?} was created before");
        let mut bytes = vec![0; self.layout.block_size()];
        fill(&mut bytes);
        self.blocks.insert(block, bytes);
        Ok(())
    }

    fn release(&mut self, block: PhysicalBlock) -> Result<()> {
        let taken = self.taken.remove(&block).is_some();
        assert!(taken || self.lenient, "{block:?} was released before");
        self.blocks.remove(&block);
        self.free = self.free.saturating_add(1);
        Ok(())
    }
}
