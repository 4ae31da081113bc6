//! Attributes, and what concerns the whole file system.

use super::{NodeAttributes, NodeId, Operations, Reply, Request};
use crate::Operation;
use drystone_vfs::{Capabilities, FileSystemStatistics, SetAttributes};

impl Operations {
    /// The attributes of an inode.
    pub fn attributes(&self, node: NodeId) -> Reply<NodeAttributes> {
        let attributes = self.file_system.attributes(self.inode(node));
        Ok(self.timed(self.done(Operation::Attributes, attributes)?))
    }

    /// Changes attributes. `kill_set_id`: the change is one that takes set-id bits away
    /// (`FATTR_KILL_SUIDGID`). Times that the kernel gives for `changed` count: with a write-back
    /// cache it is the kernel that knows when a file changed.
    pub fn set_attributes(
        &self,
        request: &Request,
        node: NodeId,
        changes: &SetAttributes,
        kill_set_id: bool,
    ) -> Reply<NodeAttributes> {
        let mut context = self.context(request, 0);
        // With a new owner the kernel always says that they go, also where root may keep one.
        let is_new_owner = changes.user.is_some() || changes.group.is_some();
        let keeps_set_id = if is_new_owner { request.user == 0 } else { !kill_set_id };
        context.capabilities.set(Capabilities::SET_ID, keeps_set_id);
        let inode = self.inode(node);
        let changed = self.file_system.set_attributes(&context, inode, changes);
        Ok(self.timed(self.done(Operation::SetAttributes, changed)?))
    }

    /// Space and inodes in use.
    pub fn statistics(&self) -> Reply<FileSystemStatistics> {
        self.done(Operation::Statistics, self.file_system.statistics())
    }

    /// Returns when everything is durable.
    pub fn sync(&self) -> Reply<()> {
        self.done(Operation::SyncFileSystem, self.file_system.sync())
    }
}
