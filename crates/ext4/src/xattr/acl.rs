//! Access control lists: two attributes with a meaning, kept in line with the permission bits.
//!
//! An access list that says no more than the permission bits is not stored. Lists are never put
//! into an inode of their own, so that what stores one in passing (making an inode, `chmod`) knows
//! what it takes.
//!
//! # Reference
//! acl(5); "Extended Attributes" in the kernel's ext4 documentation.

use super::change::{self, Wish};
use super::checked::lock_content;
use super::release::Garbage;
use super::stored::Stored;
use super::{get, get_locked};
use crate::alloc::with_space_retry;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{Inode, Standing};
use crate::permission;
use drystone_ext4_format::Corrupt;
use drystone_ext4_format::acl::{ATTRIBUTE_VERSION, Acl, AclProblem};
use drystone_ext4_format::xattr::AttributeName;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext, mode};

/// Bytes in front of the entries of a list.
const HEAD_LENGTH: usize = 4;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Who may do what with the inode.
    Access,
    /// What new inodes in the directory get.
    Default,
}

impl Kind {
    /// The list that an attribute's full name stands for.
    pub fn parse(name: &[u8]) -> Option<Kind> {
        match name {
            b"system.posix_acl_access" => Some(Kind::Access),
            b"system.posix_acl_default" => Some(Kind::Default),
            _ => None,
        }
    }

    fn name(self) -> AttributeName {
        let index = match self {
            Kind::Access => AttributeName::ACL_ACCESS,
            Kind::Default => AttributeName::ACL_DEFAULT,
        };
        AttributeName { index, suffix: Vec::new() }
    }
}

/// A list of an inode. Takes the `xattrs` lock if there are attributes.
pub(crate) fn load(fs: &Engine, inode: &Inode, kind: Kind) -> Result<Option<Acl>> {
    decode(inode, get(fs, inode, &kind.name())?)
}

fn decode(inode: &Inode, value: Option<Vec<u8>>) -> Result<Option<Acl>> {
    let Some(value) = value else { return Ok(None) };
    match Acl::from_packed(&value) {
        Ok(acl) => Ok(Some(acl)),
        Err(problem) => Err(Corrupt::Acl { inode: inode.number, problem }.into()),
    }
}

/// A list in the form of its attribute.
pub(super) fn get_attribute(fs: &Engine, inode: &Inode, kind: Kind) -> Result<Vec<u8>> {
    if inode.file_type() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let acl = load(fs, inode, kind)?.ok_or(Errno::ENODATA)?;
    Ok(acl.to_attribute())
}

/// Stores a list given in the form of its attribute. The permission bits follow an access list.
pub(super) fn set_attribute(
    fs: &Engine,
    context: &RequestContext,
    inode: &Arc<Inode>,
    kind: Kind,
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
    kind: Kind,
) -> Result<()> {
    if !may_change(context, inode, kind, false)? {
        return Ok(());
    }
    change_list(fs, context, inode, kind, None)
}

/// Whether there is anything to do, if it is allowed.
fn may_change(context: &RequestContext, inode: &Inode, kind: Kind, stores: bool) -> Result<bool> {
    if inode.file_type() == FileType::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if kind == Kind::Default && !inode.is_directory() {
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
    kind: Kind,
    acl: Option<&Acl>,
) -> Result<()> {
    let bits = acl.filter(|_| kind == Kind::Access).map(Acl::mode);
    let stored = acl.filter(|acl| kind == Kind::Default || acl.equivalent_mode().is_none());
    let mut garbage = Garbage::default();
    let changed = {
        let _content = lock_content(fs, inode);
        let _xattrs = inode.xattrs.write();
        let before = Stored::load(fs, inode)?;
        let credits = change::credits(&fs.volume, 0, before.value_inodes().len());
        with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits)?;
            let changed = store(fs, context, &mut handle, inode, kind, stored, &mut garbage)
                .and_then(|()| match bits {
                    Some(bits) => change_bits(fs, context, &mut handle, inode, bits),
                    None => Ok(()),
                });
            fs.settle(handle, changed)
        })
    };
    garbage.dispose(fs)?;
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
        if !permission::keeps_group_id(context, disk.group) {
            disk.mode &= !mode::SET_GROUP_ID;
        }
        Ok(())
    })
}

/// Stores a list, or removes it, as part of a handle.
fn store(
    fs: &Engine,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    kind: Kind,
    acl: Option<&Acl>,
    garbage: &mut Garbage,
) -> Result<()> {
    let before = Stored::load(fs, inode)?;
    let name = kind.name();
    let value = acl.map(Acl::to_packed);
    let wish = Wish { context, name: &name, value: value.as_deref(), may_use_inode: false };
    change::store(fs, handle, inode, &before, &wish, garbage)
}

/// What a new inode gets from its directory's default list, or from the umask.
pub(crate) struct Inherited {
    /// The permission bits.
    pub permissions: u16,
    access: Option<Acl>,
    default: Option<Acl>,
    /// Whose they are, if there are any.
    context: Option<RequestContext>,
}

/// Decides the permission bits and lists of a new inode in `directory`.
pub(crate) fn inherited(
    fs: &Engine,
    context: &RequestContext,
    directory: &Inode,
    standing: &Standing,
    file_type: FileType,
    permissions: u16,
) -> Result<Inherited> {
    let plain = |permissions| Inherited { permissions, access: None, default: None, context: None };
    if file_type == FileType::Symlink {
        return Ok(plain(0o777));
    }
    let permissions = permissions & mode::PERMISSIONS;
    let inherited = match standing.has_attributes {
        true => load(fs, directory, Kind::Default)?,
        false => None,
    };
    let Some(default) = inherited else {
        return Ok(plain(permissions & !(context.umask & 0o777)));
    };
    let (access, bits) = default.inherit(permissions);
    Ok(Inherited {
        permissions: permissions & !0o777 | bits,
        access,
        default: (file_type == FileType::Directory).then_some(default),
        context: Some(RequestContext { groups: Vec::new(), ..context.clone() }),
    })
}

impl Inherited {
    /// Stores the lists of the new inode, which nobody knows yet.
    pub fn apply(&self, fs: &Engine, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let Some(context) = &self.context else { return Ok(()) };
        // A new inode has no values in inodes that it could lose.
        let mut garbage = Garbage::default();
        for (kind, acl) in [(Kind::Access, &self.access), (Kind::Default, &self.default)] {
            if let Some(acl) = acl {
                store(fs, context, handle, inode, kind, Some(acl), &mut garbage)?;
            }
        }
        Ok(())
    }
}

/// Brings the access list in line with new permission bits. The `xattrs` lock is held exclusively.
pub(crate) fn change_mode(
    fs: &Engine,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    permissions: u16,
    garbage: &mut Garbage,
) -> Result<()> {
    if !super::has_any(&inode.fields()) {
        return Ok(());
    }
    let value = get_locked(fs, inode, &Kind::Access.name())?;
    let Some(acl) = decode(inode, value)? else { return Ok(()) };
    let changed = acl.with_mode(permissions);
    store(fs, context, handle, inode, Kind::Access, Some(&changed), garbage)
}
