//! The attribute calls, with the rules of each name space.
//!
//! `user.` follows the permissions of the file. `trusted.`, and writing `security.`, need an
//! administrator; writing access control lists needs the owner. Other names don't exist for callers.

use super::{Engine, acl};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::permission;
use crate::xattr;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{AttributeName, VALUE_LENGTH_MAX};
use drystone_sync::Arc;
use drystone_vfs::{Access, Capabilities, Errno, FileType, RequestContext, XattrMode, mode};

/// The longest full name of an attribute.
const NAME_LENGTH_MAX: usize = 255;

/// The value of an attribute.
pub(crate) fn get(
    fs: &Engine,
    context: &RequestContext,
    inode: &Inode,
    name: &[u8],
) -> Result<Vec<u8>> {
    check_length(name)?;
    if let Some(kind) = xattr::acl::AclKind::parse(name) {
        return acl::get_attribute(fs, inode, kind);
    }
    check_permission(fs, context, inode, name, Access::READ)?;
    xattr::get(fs, inode, &parse(name)?)?.ok_or(Error::Errno(Errno::ENODATA))
}

/// Stores an attribute.
pub(crate) fn set(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
    fs.volume.check_writable()?;
    check_length(name)?;
    if value.len() > VALUE_LENGTH_MAX {
        return Err(Errno::E2BIG.into());
    }
    check_permission(fs, context, inode, name, Access::WRITE)?;
    if let Some(kind) = xattr::acl::AclKind::parse(name) {
        return acl::set_attribute(fs, context, inode, kind, value);
    }
    let name = parse(name)?;
    xattr::change_one(fs, context, inode, &name, Some(value), mode)
}

/// Removes an attribute.
pub(crate) fn remove(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    fs.volume.check_writable()?;
    check_length(name)?;
    check_permission(fs, context, inode, name, Access::WRITE)?;
    if let Some(kind) = xattr::acl::AclKind::parse(name) {
        return acl::remove_attribute(fs, context, inode, kind);
    }
    let name = parse(name)?;
    xattr::change_one(fs, context, inode, &name, None, XattrMode::Replace)
}

/// The names of all attributes that the caller may see, sorted.
pub(crate) fn list(fs: &Engine, context: &RequestContext, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    if !inode.has_xattrs() {
        return Ok(Vec::new());
    }
    let sees_trusted = context.has(Capabilities::ADMINISTER);
    let mut names = Vec::new();
    let _xattrs = inode.xattrs.read();
    xattr::look(fs, inode, |attributes| -> Option<()> {
        for entry in attributes.iter() {
            let shown = match entry.index {
                AttributeName::TRUSTED => sees_trusted,
                AttributeName::USER
                | AttributeName::SECURITY
                | AttributeName::ACL_ACCESS
                | AttributeName::ACL_DEFAULT => true,
                _ => false,
            };
            if shown {
                names.extend(entry.full_name());
            }
        }
        None
    })?;
    names.sort_unstable();
    Ok(names)
}

fn check_length(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return Err(Errno::ERANGE.into());
    }
    Ok(())
}

/// The stored form of a name that callers may use.
fn parse(name: &[u8]) -> Result<AttributeName> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        None => Err(Errno::EOPNOTSUPP.into()),
        Some(b"") => Err(Errno::EINVAL.into()),
        Some(_) => AttributeName::parse(name).ok_or(Error::Errno(Errno::EOPNOTSUPP)),
    }
}

fn check_permission(
    fs: &Engine,
    context: &RequestContext,
    inode: &Inode,
    name: &[u8],
    access: Access,
) -> Result<()> {
    let writes = access.contains(Access::WRITE);
    let refusal = if writes { Errno::EPERM } else { Errno::ENODATA };
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if writes && inode.flags().intersects(fixed) {
        return Err(Errno::EPERM.into());
    }
    if name.starts_with(b"system.") {
        return Ok(());
    }
    if name.starts_with(b"security.") {
        let allowed = !writes || context.has(Capabilities::ADMINISTER);
        return if allowed { Ok(()) } else { Err(Errno::EPERM.into()) };
    }
    if name.starts_with(b"trusted.") {
        let allowed = context.has(Capabilities::ADMINISTER);
        return if allowed { Ok(()) } else { Err(refusal.into()) };
    }
    if name.starts_with(b"user.") {
        let is_directory = inode.is_directory();
        if !is_directory && inode.file_type() != FileType::Regular {
            return Err(refusal.into());
        }
        let sticky = is_directory && inode.fields().disk.mode & mode::STICKY != 0;
        if writes && sticky && !permission::acts_as_owner(context, inode) {
            return Err(Errno::EPERM.into());
        }
    }
    permission::check(fs, context, inode, access)
}
