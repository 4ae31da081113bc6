//! Access to mapping nodes: the interface below the mapping algorithms.
//!
//! The algorithms of extent trees and block maps use only the bytes of nodes and the operations
//! below, so the same code runs over the engine's buffers and, in tests, over plain memory.

use crate::error::Result;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Reads nodes.
pub(super) trait Nodes {
    /// A node that is held in memory. Cloning is cheap.
    type Node: Clone;

    /// The inode whose mapping this is, for errors.
    fn inode(&self) -> InodeNumber;

    /// The geometry, for checks of block numbers.
    fn layout(&self) -> &Layout;

    /// Looks at the root: the block area of the inode.
    fn root<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R;

    /// Looks at the root after `verify` has accepted it. `verify` runs at least once each time that
    /// the inode is read from the device.
    fn checked_root<R>(
        &self,
        verify: impl FnOnce(&[u8]) -> Result<()>,
        look: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.root(|bytes| {
            verify(bytes)?;
            look(bytes)
        })
    }

    /// Checks that blocks may be mapped: that none of them holds fixed metadata.
    fn check_mapped(&self, _start: PhysicalBlock, _length: u32) -> Result<()> {
        Ok(())
    }

    /// Loads the node at `block` after `verify` has accepted its content. `verify` runs once each
    /// time that the block is read from the device.
    fn load(
        &self,
        block: PhysicalBlock,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<Self::Node>;

    /// Looks at a node.
    fn look<R>(&self, node: &Self::Node, look: impl FnOnce(&[u8]) -> R) -> R;
}

/// Changes nodes as part of one transaction.
pub(super) trait NodesMut: Nodes {
    /// Changes the root.
    fn change_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> Result<R>;

    /// Changes a node.
    fn change<R>(&mut self, node: &Self::Node, change: impl FnOnce(&mut [u8]) -> R) -> Result<R>;

    /// Allocates a block for a node, near `goal`, and charges it to the inode.
    fn allocate(&mut self, goal: PhysicalBlock) -> Result<PhysicalBlock>;

    /// Writes a node to a block from [`allocate`](Self::allocate). `fill` gets zeros.
    fn create(&mut self, block: PhysicalBlock, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Frees a node's block.
    fn release(&mut self, block: PhysicalBlock) -> Result<()>;
}
