//! The attribute calls, with the rules of each name space.
//!
//! `user.` follows the permissions of the file, `trusted.` and writing `security.` need an
//! administrator, access control lists their owner. Other names don't exist for callers.

use super::change::{self, Wish};
use super::release::Garbage;
use super::stored::Stored;
use super::{acl, get};
use crate::alloc::with_space_retry;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::permission;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::xattr::{AttributeName, VALUE_LENGTH_MAX};
use drystone_sync::Arc;
use drystone_vfs::{Access, Capabilities, Errno, FileType, RequestContext, XattrMode, mode};

/// Longest full name of an attribute.
const NAME_LENGTH_MAX: usize = 255;

/// The value of an attribute.
pub(crate) fn get_checked(
    fs: &Engine,
    context: &RequestContext,
    inode: &Inode,
    name: &[u8],
) -> Result<Vec<u8>> {
    check_length(name)?;
    if let Some(kind) = acl::Kind::parse(name) {
        return acl::get_attribute(fs, inode, kind);
    }
    check_permission(fs, context, inode, name, Access::READ)?;
    get(fs, inode, &parse(name)?)?.ok_or(Error::Errno(Errno::ENODATA))
}

/// Stores an attribute.
pub(crate) fn set_checked(
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
    if let Some(kind) = acl::Kind::parse(name) {
        return acl::set_attribute(fs, context, inode, kind, value);
    }
    let name = parse(name)?;
    change_one(fs, context, inode, &name, Some(value), mode)
}

/// Removes an attribute.
pub(crate) fn remove_checked(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    fs.volume.check_writable()?;
    check_length(name)?;
    check_permission(fs, context, inode, name, Access::WRITE)?;
    if let Some(kind) = acl::Kind::parse(name) {
        return acl::remove_attribute(fs, context, inode, kind);
    }
    let name = parse(name)?;
    change_one(fs, context, inode, &name, None, XattrMode::Replace)
}

/// Takes a file's capabilities away: its content or its owner is about to change, and what it was
/// trusted with was the old content. Called without locks.
pub(crate) fn drop_capability(fs: &Engine, inode: &Arc<Inode>) -> Result<()> {
    if inode.is_directory() || !inode.has_xattrs() {
        return Ok(());
    }
    let name = AttributeName { index: AttributeName::SECURITY, suffix: b"capability".to_vec() };
    if get(fs, inode, &name)?.is_none() {
        return Ok(());
    }
    let context = RequestContext::superuser();
    match change_one(fs, &context, inode, &name, None, XattrMode::Replace) {
        // Another writer was first.
        Err(Error::Errno(Errno::ENODATA)) => Ok(()),
        done => done,
    }
}

/// The names of all attributes that the caller may see, sorted.
pub(crate) fn list_checked(
    fs: &Engine,
    context: &RequestContext,
    inode: &Inode,
) -> Result<Vec<Vec<u8>>> {
    if !inode.has_xattrs() {
        return Ok(Vec::new());
    }
    let sees_trusted = context.has(Capabilities::ADMINISTER);
    let mut names = Vec::new();
    let _xattrs = inode.xattrs.read();
    super::look(fs, inode, |attributes| -> Option<()> {
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

/// Changes one attribute in a handle of its own.
fn change_one(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    name: &AttributeName,
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<()> {
    let mut garbage = Garbage::default();
    let changed = {
        let _content = lock_content(fs, inode);
        let _xattrs = inode.xattrs.write();
        let before = Stored::load(fs, inode)?;
        let exists = before.area.get(name).is_some() || before.in_block.get(name).is_some();
        match (mode, exists) {
            (XattrMode::Create, true) => return Err(Errno::EEXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        let wish = Wish { context, name, value, may_use_inode: true };
        let length = value.map_or(0, <[u8]>::len);
        let credits = change::credits(&fs.volume, length, before.value_inodes().len());
        with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits)?;
            let changed = change::store(fs, &mut handle, inode, &before, &wish, &mut garbage);
            fs.settle(handle, changed)
        })
    };
    garbage.dispose(fs)?;
    changed
}

/// Keeps the content from moving into or within the inode's record, if it could.
pub(super) fn lock_content<'a>(
    fs: &Engine,
    inode: &'a Inode,
) -> Option<drystone_sync::RwLockReadGuard<'a, ()>> {
    let may_move = fs.volume.features.incompat.contains(Incompat::INLINE_DATA);
    may_move.then(|| inode.content.read())
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
