//! Where mapping nodes live: what the tree algorithms need from the world.
//!
//! The algorithms over extent trees and block maps see bytes of nodes and the few operations
//! below, so that the same code runs over the engine's buffers and, in tests, over plain memory.

use crate::error::Result;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// Reads nodes.
pub(super) trait Nodes {
    /// A node that is held in memory. Cloning is cheap.
    type Node: Clone;

    /// The inode whose mapping this is, for errors.
    fn inode(&self) -> InodeNumber;

    /// The geometry, to check numbers against.
    fn layout(&self) -> &Layout;

    /// Looks at the root: the block area of the inode.
    fn root<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R;

    /// Looks at the root, which `verify` has accepted; it runs at least once for each time that the
    /// inode comes from the device.
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

    /// Checks that blocks may be mapped: that they hold no metadata of the file system.
    fn check_mapped(&self, _start: PhysicalBlock, _length: u32) -> Result<()> {
        Ok(())
    }

    /// Loads the node at `block`, whose content `verify` accepts; it runs once for each time that
    /// the block comes from the device.
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

    /// Takes a block for a node, near `goal`, and charges it to the inode.
    fn allocate(&mut self, goal: PhysicalBlock) -> Result<PhysicalBlock>;

    /// Writes a node to a block from [`allocate`](Self::allocate). `fill` gets zeros.
    fn create(&mut self, block: PhysicalBlock, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Gives a node's block back.
    fn release(&mut self, block: PhysicalBlock) -> Result<()>;
}
