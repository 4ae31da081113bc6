//! Attributes, and requests about the whole file system.

use super::data::WRITTEN;
use super::{NodeAttributes, NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{Capabilities, Errno, FileSystemStatistics, FileType, SetAttributes};

/// `X_OK` of access(2).
const EXECUTE: u32 = 1;

/// The bits of a mode that permit to execute a file.
const EXECUTABLE: u16 = 0o111;

impl Operations {
    /// The attributes of an inode.
    pub fn attributes(&self, node: NodeId) -> Reply<NodeAttributes> {
        let attributes = self.file_system.attributes(self.inode(node));
        Ok(self.timed(self.done(CountedOperation::Attributes, attributes)?))
    }

    /// The attributes of an open file, which the kernel asks for before it accepts a write. `handle`
    /// identifies the open file description.
    ///
    /// # Errors
    /// Also the error of an earlier write, if the file is open for writing and the error wasn't reported yet.
    pub fn attributes_of_opened(&self, node: NodeId, handle: u64) -> Reply<NodeAttributes> {
        if handle == WRITTEN {
            self.tell_refusal(self.inode(node))?;
        }
        self.attributes(node)
    }

    /// Whether root may access an inode, as access(2) asks: always, except that a file without any execute
    /// permission can't be executed. The kernel doesn't ask where it checks permissions itself.
    pub fn access(&self, node: NodeId, mask: u32) -> Reply<()> {
        let allowed = self.file_system.attributes(self.inode(node)).and_then(|attributes| {
            let may_run = attributes.file_type == FileType::Directory
                || attributes.permissions & EXECUTABLE != 0;
            if mask & EXECUTE == 0 || may_run { Ok(()) } else { Err(Errno::EACCES.into()) }
        });
        self.done(CountedOperation::Access, allowed)
    }

    /// Changes attributes. `kill_set_id`: the change clears set-id bits (`FATTR_KILL_SUIDGID`).
    /// `by_handle`: the request names an open file (`FATTR_FH`). The kernel's time for `changed`
    /// counts, because with a write-back cache the kernel knows when a file changed.
    pub fn set_attributes(
        &self,
        request: &RequestCaller,
        node: NodeId,
        changes: &SetAttributes,
        kill_set_id: bool,
        by_handle: bool,
    ) -> Reply<NodeAttributes> {
        let mut context = self.context(request, 0);
        // For a new owner the kernel always asks to clear them, even if root may keep one.
        let is_new_owner = changes.user.is_some() || changes.group.is_some();
        let keeps_set_id = if is_new_owner { request.user == 0 } else { !kill_set_id };
        context.capabilities.set(Capabilities::SET_ID, keeps_set_id);
        // The kernel reports times of a file that was written through its cache. The writes were
        // allowed when they were made, so no rule forbids this.
        let SetAttributes { modified, changed, .. } = *changes;
        let of_content = SetAttributes { modified, changed, ..SetAttributes::default() };
        context.is_cache = by_handle && changed.is_some() && *changes == of_content;
        let inode = self.inode(node);
        let changed = self
            .set_id_at_stake(request, &mut context, node)
            .and_then(|_| self.file_system.set_attributes(&context, inode, changes));
        let changed = self.done(CountedOperation::SetAttributes, changed)?;
        if let Some(size) = changes.size {
            // The caller knows of the refusal; further writes are a new attempt.
            self.refusals.told(inode);
            self.refusals.settle(inode, size..u64::MAX);
        }
        Ok(self.timed(changed))
    }

    /// Space and inodes in use, as a node sees them.
    pub fn statistics(&self, node: NodeId) -> Reply<FileSystemStatistics> {
        let statistics = self.file_system.statistics_at(self.inode(node));
        self.done(CountedOperation::Statistics, statistics)
    }

    /// Returns when everything is durable.
    pub fn sync(&self) -> Reply<()> {
        self.done(CountedOperation::SyncFileSystem, self.file_system.sync())
    }
}
