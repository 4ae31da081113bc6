//! Access control lists as callers get and set them: as attributes. An access list and the permission
//! bits follow each other.
//!
//! # Reference
//! acl(5)

use super::Engine;
use crate::alloc::with_space_retry;
use crate::error::Result;
use crate::inode::Inode;
use crate::permission;
use crate::xattr::{self, ValueGarbage, acl, lock_content};
use drystone_ext4_format::acl::{ATTRIBUTE_VERSION, Acl};
use drystone_ext4_format::error::AclProblem;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext, mode};

/// Bytes in front of the entries of a list.
const HEAD_LENGTH: usize = 4;

/// A list in the form of its attribute.
pub(super) fn get_attribute(fs: &Engine, inode: &Inode, kind: acl::AclKind) -> Result<Vec<u8>> {
    if inode.file_type() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let list = acl::load(fs, inode, kind)?.ok_or(Errno::ENODATA)?;
    Ok(list.to_attribute())
}

/// Stores a list given in the form of its attribute. The permission bits follow an access list.
pub(super) fn set_attribute(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    kind: acl::AclKind,
    value: &[u8],
) -> Result<()> {
    // A list without entries is none.
    if value == ATTRIBUTE_VERSION.to_le_bytes() {
        return remove_attribute(fs, context, inode, kind);
    }
    let acl = Acl::from_attribute(value);
    if let Err(AclProblem::Version { .. }) = acl
        && value.len() >= HEAD_LENGTH
    {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if !may_change(context, inode, kind, true)? {
        return Ok(());
    }
    let acl = acl.map_err(|_| Errno::EINVAL)?;
    change_list(fs, context, inode, kind, Some(&acl))
}

/// Removes a list; the permission bits stay.
pub(super) fn remove_attribute(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    kind: acl::AclKind,
) -> Result<()> {
    if !may_change(context, inode, kind, false)? {
        return Ok(());
    }
    change_list(fs, context, inode, kind, None)
}

/// Whether there is anything to do. Fails if the change is not allowed.
fn may_change(
    context: &RequestContext,
    inode: &Inode,
    kind: acl::AclKind,
    stores: bool,
) -> Result<bool> {
    if inode.file_type() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if kind == acl::AclKind::Default && !inode.is_directory() {
        return if stores { Err(Errno::EACCES.into()) } else { Ok(false) };
    }
    if !permission::acts_as_owner(context, inode) {
        return Err(Errno::EPERM.into());
    }
    Ok(true)
}

fn change_list(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    kind: acl::AclKind,
    acl: Option<&Acl>,
) -> Result<()> {
    let bits = acl.filter(|_| kind == acl::AclKind::Access).map(Acl::mode);
    let stored = acl.filter(|acl| kind == acl::AclKind::Default || acl.equivalent_mode().is_none());
    let mut garbage = ValueGarbage::default();
    let changed = {
        let _content = lock_content(fs, inode);
        let _xattrs = inode.xattrs.write();
        let credits = xattr::change_credits(fs, inode, 0)?;
        with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits)?;
            let changed = acl::store(fs, context, &mut handle, inode, kind, stored, &mut garbage)
                .and_then(|()| match bits {
                    Some(bits) => change_bits(fs, context, &mut handle, inode, bits),
                    None => Ok(()),
                });
            fs.settle(handle, changed)
        })
    };
    garbage.dispose(fs);
    changed
}

/// Sets the permission bits that an access list stands for.
fn change_bits(
    fs: &Engine,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    bits: u16,
) -> Result<()> {
    inode.update(fs, handle, |fields| {
        let disk = &mut fields.disk;
        disk.mode = disk.mode & !0o777 | bits;
        if !context.may_set_group_id(disk.group) {
            disk.mode &= !mode::SET_GROUP_ID;
        }
        Ok(())
    })
}
