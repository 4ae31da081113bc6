//! Mapping nodes in the engine: the root in the inode's fields, the others in metadata buffers.

use super::charge::{Charge, charge_blocks};
use super::has_extents;
use super::store::{Nodes, NodesMut};
use crate::alloc::{BlockKind, BlockRequest, Reach};
use crate::block_use;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_cache::{Buffer, Seal};
use drystone_ext4_format::extent::check_checksum;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;

/// Reads an inode's nodes.
pub(super) struct NodeBuffers<'a> {
    fs: &'a ContentStore,
    inode: &'a Inode,
    is_tree: bool,
}

impl<'a> NodeBuffers<'a> {
    pub fn new(fs: &'a ContentStore, inode: &'a Inode) -> Self {
        NodeBuffers { fs, inode, is_tree: has_extents(inode) }
    }

    /// Whether the nodes are those of an extent tree rather than of a block map.
    pub fn is_tree(&self) -> bool {
        self.is_tree
    }
}

impl Nodes for NodeBuffers<'_> {
    type Node = Arc<Buffer>;

    fn inode(&self) -> InodeNumber {
        self.inode.number
    }

    fn layout(&self) -> &Layout {
        self.fs.volume.layout()
    }

    fn root<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.inode.fields().disk.block_area)
    }

    fn checked_root<R>(
        &self,
        verify: impl FnOnce(&[u8]) -> Result<()>,
        look: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        let fields = self.inode.fields();
        let root = &fields.disk.block_area;
        if !self.inode.is_mapping_checked() {
            verify(root)?;
            self.inode.note_mapping_checked();
        }
        look(root)
    }

    fn check_mapped(&self, start: PhysicalBlock, length: u32) -> Result<()> {
        self.fs.allocator.groups.check_mapped(self.inode.number, start, length)
    }

    fn load(
        &self,
        block: PhysicalBlock,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<Arc<Buffer>> {
        self.check_mapped(block, 1)?;
        let buffer = self.fs.volume.read(block)?;
        buffer.check_once(block_use::mapping(self.inode.number), |bytes| {
            if self.is_tree {
                check_checksum(bytes, self.inode.number, block, self.inode.seed())?;
            }
            verify(bytes)
        })?;
        Ok(buffer)
    }

    fn look<R>(&self, node: &Arc<Buffer>, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&node.read())
    }
}

/// Changes an inode's nodes in a transaction.
pub(super) struct NodeChanges<'a, 'handle> {
    nodes: NodeBuffers<'a>,
    pub handle: &'a mut Handle<'handle>,
    charge: Charge,
}

impl<'a, 'handle> NodeChanges<'a, 'handle> {
    pub fn new(fs: &'a ContentStore, handle: &'a mut Handle<'handle>, inode: &'a Inode) -> Self {
        NodeChanges { nodes: NodeBuffers::new(fs, inode), handle, charge: Charge::default() }
    }

    /// Whether the nodes are those of an extent tree rather than of a block map.
    pub fn is_tree(&self) -> bool {
        self.nodes.is_tree
    }

    /// Charges `blocks` to the inode, plus the nodes that were allocated, less those freed.
    pub fn charge(self, blocks: i64) -> Result<()> {
        let NodeBuffers { fs, inode, .. } = self.nodes;
        charge_blocks(fs, self.handle, inode, self.charge.blocks() + blocks)
    }

    fn seal(&self) -> Option<&'a Arc<dyn Seal>> {
        let inode = self.nodes.inode;
        if self.nodes.is_tree { inode.extent_seal() } else { None }
    }
}

impl Nodes for NodeChanges<'_, '_> {
    type Node = Arc<Buffer>;

    fn inode(&self) -> InodeNumber {
        self.nodes.inode()
    }

    fn layout(&self) -> &Layout {
        self.nodes.layout()
    }

    fn root<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        self.nodes.root(look)
    }

    fn checked_root<R>(
        &self,
        verify: impl FnOnce(&[u8]) -> Result<()>,
        look: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.nodes.checked_root(verify, look)
    }

    fn check_mapped(&self, start: PhysicalBlock, length: u32) -> Result<()> {
        self.nodes.check_mapped(start, length)
    }

    fn load(
        &self,
        block: PhysicalBlock,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<Arc<Buffer>> {
        self.nodes.load(block, verify)
    }

    fn look<R>(&self, node: &Arc<Buffer>, look: impl FnOnce(&[u8]) -> R) -> R {
        self.nodes.look(node, look)
    }
}

impl NodesMut for NodeChanges<'_, '_> {
    fn change_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.nodes
            .inode
            .update(self.nodes.fs, self.handle, |fields| Ok(change(&mut fields.disk.block_area)))
    }

    fn change<R>(&mut self, node: &Arc<Buffer>, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let seal = self.seal();
        Ok(change(&mut self.handle.write(node, seal)?))
    }

    fn allocate(&mut self, goal: PhysicalBlock) -> Result<PhysicalBlock> {
        let inode = self.nodes.inode;
        let is_promised = inode.delayed.take_node();
        let request = BlockRequest {
            goal,
            length: 1,
            kind: BlockKind::Metadata,
            below_32_bits: !self.nodes.is_tree,
            // Unwritten extents must stay writable when the image is full.
            reach: Reach::All,
            is_promised,
            file: None,
        };
        let run = self
            .nodes
            .fs
            .allocator
            .blocks
            .allocate(self.handle, &request)
            .inspect_err(|_| inode.delayed.add_nodes(u32::from(is_promised)))?;
        self.charge.node_made(self.nodes.layout());
        Ok(run.start)
    }

    fn create(&mut self, block: PhysicalBlock, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let buffer = self.nodes.fs.volume.zeroed(block)?;
        let seal = self.seal();
        fill(&mut self.handle.create(&buffer, seal)?);
        buffer.note_use(block_use::mapping(self.nodes.inode.number));
        Ok(())
    }

    fn release(&mut self, block: PhysicalBlock) -> Result<()> {
        self.nodes.fs.allocator.blocks.free(self.handle, block, 1, BlockKind::Metadata)?;
        self.charge.node_freed(self.nodes.layout());
        Ok(())
    }
}
