//! Extended attributes, and access control lists, which are some of them.

use super::{NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{Capabilities, Errno, RequestContext, XattrMode};

/// Bits of `setxattr`'s flags.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

impl Operations {
    /// The value of an attribute. (The transport answers `ERANGE` if the caller's buffer is too
    /// small; a size of 0 asks only for the length.)
    pub fn xattr(&self, request: &RequestCaller, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        let context = self.xattr_context(request, name);
        let value = self.file_system.xattr(&context, self.inode(node), name);
        // A kernel that checks permissions asks for these before each create, and accepts only this
        // answer as "none".
        let is_list = name.starts_with(b"system.posix_acl_");
        let value = value.map_err(|error| match error.errno {
            Errno::EOPNOTSUPP if is_list => Errno::ENODATA.into(),
            _ => error,
        });
        self.done(CountedOperation::Xattr, value)
    }

    /// Sets an attribute; `flags` are those of `setxattr`. `kill_set_group_id`: the caller
    /// that sets an access list may not keep the bit (`FUSE_SETXATTR_ACL_KILL_SGID`).
    pub fn set_xattr(
        &self,
        request: &RequestCaller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Reply<()> {
        let mut context = self.xattr_context(request, name);
        context.capabilities.set(Capabilities::SET_ID, !kill_set_group_id);
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => Ok(XattrMode::Set),
            XATTR_CREATE => Ok(XattrMode::Create),
            XATTR_REPLACE => Ok(XattrMode::Replace),
            _ => Err(Errno::EINVAL.into()),
        };
        let set = mode.and_then(|mode| {
            self.file_system.set_xattr(&context, self.inode(node), name, value, mode)
        });
        // An access list sets the mode too. The kernel knows that where it checks permissions.
        if set.is_ok() && !self.options.kernel_checks_permissions {
            self.notices.outdate_attributes(node);
        }
        self.done(CountedOperation::SetXattr, set)
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, request: &RequestCaller, node: NodeId, name: &[u8]) -> Reply<()> {
        let context = self.xattr_context(request, name);
        let removed = self.file_system.remove_xattr(&context, self.inode(node), name);
        self.done(CountedOperation::RemoveXattr, removed)
    }

    /// The context for an attribute. The kernel always checks permissions for `security.` and `trusted.`
    /// itself. It also removes a file's capabilities in the name of a writer that may not do so.
    fn xattr_context(&self, request: &RequestCaller, name: &[u8]) -> RequestContext {
        let mut context = self.context(request, 0);
        if [&b"security."[..], b"trusted."].iter().any(|space| name.starts_with(space)) {
            context.capabilities.insert(Capabilities::ADMINISTER);
        }
        context
    }

    /// The names of all attributes, each followed by a NUL.
    pub fn list_xattrs(&self, request: &RequestCaller, node: NodeId) -> Reply<Vec<u8>> {
        let context = self.context(request, 0);
        let names = self.file_system.list_xattrs(&context, self.inode(node)).map(|names| {
            names.into_iter().fold(Vec::new(), |mut list, name| {
                list.extend_from_slice(&name);
                list.push(0);
                list
            })
        });
        self.done(CountedOperation::ListXattrs, names)
    }
}
