//! Permission checks: permission bits, access control lists, capabilities.

use drystone_vfs::{
    Access, Capabilities, Errno, FileFlags, FileType, RequestContext, Result, mode,
};

use super::node::Node;

/// Checks an access to an inode.
pub(super) fn check(node: &Node, context: &RequestContext, access: Access) -> Result<()> {
    if access.contains(Access::WRITE) && node.attributes.flags.contains(FileFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    if !context.check_permissions || granted(node, context, access) {
        return Ok(());
    }
    let is_directory = node.is_directory();
    let reads_only =
        if is_directory { !access.contains(Access::WRITE) } else { access == Access::READ };
    if reads_only && context.has(Capabilities::READ_SEARCH) {
        return Ok(());
    }
    let overridable = is_directory
        || !access.contains(Access::EXECUTE)
        || node.attributes.permissions & 0o111 != 0;
    if overridable && context.has(Capabilities::OVERRIDE) {
        return Ok(());
    }
    Err(Errno::EACCES.into())
}

fn granted(node: &Node, context: &RequestContext, access: Access) -> bool {
    let attributes = &node.attributes;
    let bits = if context.user == attributes.user {
        attributes.permissions >> 6
    } else if let Some(acl) = &node.access_acl
        && attributes.permissions & 0o070 != 0
    {
        return acl.check(context, attributes.group, access).is_ok();
    } else if context.in_group(attributes.group) {
        attributes.permissions >> 3
    } else {
        attributes.permissions
    };
    u16::from(access.bits()) & !bits & 7 == 0
}

/// True for the owner and for callers that may act as the owner.
pub(super) fn acts_as_owner(node: &Node, context: &RequestContext) -> bool {
    context.user == node.attributes.user || context.has(Capabilities::OWNER)
}

/// True if the context may keep the set-group-id bit of an inode of `group`.
pub(super) fn keeps_group_id(context: &RequestContext, group: u32) -> bool {
    context.in_group(group) || context.has(Capabilities::SET_ID)
}

/// The set-id bits that a change of content or owner clears, whatever user makes it.
pub(super) fn set_id_bits_to_drop(node: &Node, context: &RequestContext) -> u16 {
    let permissions = node.attributes.permissions;
    let mut dropped = permissions & mode::SET_USER_ID;
    let runs_with_group = permissions & 0o010 != 0;
    if runs_with_group || !keeps_group_id(context, node.attributes.group) {
        dropped |= permissions & mode::SET_GROUP_ID;
    }
    dropped
}

/// Clears what a change of content invalidates: set-id bits and file capabilities.
pub(super) fn drop_privileges(node: &mut Node, context: &RequestContext) {
    if node.file_type() == FileType::Regular && !context.has(Capabilities::SET_ID) {
        node.attributes.permissions &= !set_id_bits_to_drop(node, context);
    }
    node.xattrs.remove(b"security.capability".as_slice());
}

/// Checks that a new entry may be made in a directory.
pub(super) fn check_may_create(directory: &Node, context: &RequestContext) -> Result<()> {
    if directory.directory()?.removed {
        return Err(Errno::ENOENT.into());
    }
    check(directory, context, Access::WRITE | Access::EXECUTE)
}

/// Checks that an entry may be removed from a directory, by a call for directories (`as_directory`)
/// or for other inodes.
pub(super) fn check_may_delete(
    directory: &Node,
    victim: &Node,
    context: &RequestContext,
    as_directory: bool,
) -> Result<()> {
    check(directory, context, Access::WRITE | Access::EXECUTE)?;
    let fixed = FileFlags::APPEND | FileFlags::IMMUTABLE;
    let sticky = directory.attributes.permissions & mode::STICKY != 0
        && context.user != victim.attributes.user
        && context.user != directory.attributes.user
        && !context.has(Capabilities::OWNER);
    if directory.attributes.flags.contains(FileFlags::APPEND)
        || sticky
        || victim.attributes.flags.intersects(fixed)
    {
        return Err(Errno::EPERM.into());
    }
    match (as_directory, victim.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        _ if directory.directory()?.removed => Err(Errno::ENOENT.into()),
        _ => Ok(()),
    }
}
