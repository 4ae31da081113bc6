//! Extended attributes by name space.

use drystone_vfs::{
    Access, Capabilities, Errno, FileFlags, FileType, InodeNumber, RequestContext, Result,
    XattrMode, mode,
};

use super::acl::ModelAcl;
use super::node::Node;
use super::permission;
use super::state::ModelState;

const NAME_LENGTH_MAX: usize = 255;
const VALUE_LENGTH_MAX: usize = 65_536;
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Checks that the name space exists and the rest of the name isn't empty.
fn check_prefix(name: &[u8]) -> Result<()> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some(b"") => Err(Errno::EINVAL.into()),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP.into()),
    }
}

fn check_name_length(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return Err(Errno::ERANGE.into());
    }
    Ok(())
}

/// Checks that the context may use an attribute so.
fn check_permission(
    node: &Node,
    context: &RequestContext,
    name: &[u8],
    access: Access,
) -> Result<()> {
    let writes = access.contains(Access::WRITE);
    let refusal = if writes { Errno::EPERM } else { Errno::ENODATA };
    let fixed = FileFlags::IMMUTABLE | FileFlags::APPEND;
    if writes && node.attributes.flags.intersects(fixed) {
        return Err(Errno::EPERM.into());
    }
    if name.starts_with(b"security.") {
        let allowed = !writes || context.has(Capabilities::ADMINISTER);
        return if allowed { Ok(()) } else { Err(Errno::EPERM.into()) };
    }
    if name.starts_with(b"system.") {
        return Ok(());
    }
    if name.starts_with(b"trusted.") {
        let allowed = context.has(Capabilities::ADMINISTER);
        return if allowed { Ok(()) } else { Err(refusal.into()) };
    }
    if name.starts_with(b"user.") {
        let is_directory = node.is_directory();
        if !is_directory && node.file_type() != FileType::Regular {
            return Err(refusal.into());
        }
        let sticky = is_directory && node.attributes.permissions & mode::STICKY != 0;
        if writes && sticky && !permission::acts_as_owner(node, context) {
            return Err(Errno::EPERM.into());
        }
    }
    permission::check(node, context, access)
}

impl ModelState {
    pub(super) fn xattr(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let node = self.node(inode)?;
        check_name_length(name)?;
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            if node.file_type() == FileType::Symlink {
                return Err(Errno::EOPNOTSUPP.into());
            }
            let acl = if name == ACCESS_ACL { &node.access_acl } else { &node.default_acl };
            return acl.as_ref().map(ModelAcl::to_bytes).ok_or(Errno::ENODATA.into());
        }
        check_permission(node, context, name, Access::READ)?;
        check_prefix(name)?;
        node.xattrs.get(name).cloned().ok_or(Errno::ENODATA.into())
    }

    pub(super) fn set_xattr(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let node = self.node(inode)?;
        check_name_length(name)?;
        if value.len() > VALUE_LENGTH_MAX {
            return Err(Errno::E2BIG.into());
        }
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            let acl = ModelAcl::parse(value)?;
            return self.set_acl(context, inode, name, acl);
        }
        check_permission(node, context, name, Access::WRITE)?;
        check_prefix(name)?;
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Errno::EEXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        if value.len() > self.configuration.xattr_value_max {
            return Err(Errno::ENOSPC.into());
        }
        self.node_mut(inode)?.xattrs.insert(name.to_vec(), value.to_vec());
        self.touch_attributes(inode)
    }

    pub(super) fn remove_xattr(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let node = self.node(inode)?;
        check_name_length(name)?;
        if name == ACCESS_ACL || name == DEFAULT_ACL {
            return self.set_acl(context, inode, name, None);
        }
        check_permission(node, context, name, Access::WRITE)?;
        check_prefix(name)?;
        self.node_mut(inode)?.xattrs.remove(name).ok_or(Errno::ENODATA)?;
        self.touch_attributes(inode)
    }

    /// Sets or removes a list; the permission bits follow the access list.
    fn set_acl(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        name: &[u8],
        acl: Option<ModelAcl>,
    ) -> Result<()> {
        let node = self.node(inode)?;
        check_permission(node, context, name, Access::WRITE)?;
        if node.file_type() == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if name == DEFAULT_ACL && !node.is_directory() {
            return if acl.is_some() { Err(Errno::EACCES.into()) } else { Ok(()) };
        }
        if !permission::acts_as_owner(node, context) {
            return Err(Errno::EPERM.into());
        }
        if let Some(acl) = &acl {
            acl.validate()?;
        }
        let node = self.node_mut(inode)?;
        if name == DEFAULT_ACL {
            node.default_acl = acl;
        } else if let Some(acl) = acl {
            let (bits, says_all) = acl.mode();
            let mut permissions = (node.attributes.permissions & !0o777) | bits;
            if !permission::keeps_group_id(context, node.attributes.group) {
                permissions &= !mode::SET_GROUP_ID;
            }
            node.attributes.permissions = permissions;
            node.access_acl = (!says_all).then_some(acl);
        } else {
            node.access_acl = None;
        }
        self.touch_attributes(inode)
    }

    pub(super) fn list_xattrs(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
    ) -> Result<Vec<Vec<u8>>> {
        let node = self.node(inode)?;
        let sees_trusted = context.has(Capabilities::ADMINISTER);
        let mut names: Vec<Vec<u8>> = node
            .xattrs
            .keys()
            .filter(|name| sees_trusted || !name.starts_with(b"trusted."))
            .cloned()
            .collect();
        if node.access_acl.is_some() {
            names.push(ACCESS_ACL.to_vec());
        }
        if node.default_acl.is_some() {
            names.push(DEFAULT_ACL.to_vec());
        }
        names.sort();
        Ok(names)
    }
}
