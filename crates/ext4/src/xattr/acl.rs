//! Access control lists: two attributes with a meaning, kept in line with the permission bits.
//!
//! An access list that says no more than the permission bits is not stored. Lists are never put into an
//! inode of their own, so that operations which store one along the way (making an inode, `chmod`) know
//! how many credits it takes.
//!
//! # Reference
//! acl(5); "Extended Attributes" in the kernel's ext4 documentation.

use super::change::{self, AttributeRequest};
use super::garbage::ValueGarbage;
use super::stored::StoredAttributes;
use super::{get, get_locked};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use drystone_ext4_format::Corrupt;
use drystone_ext4_format::acl::Acl;
use drystone_ext4_format::xattr::AttributeName;
use drystone_jbd2::Handle;
use drystone_vfs::{FileType, RequestContext, mode};

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// Permissions for the inode.
    Access,
    /// The list that new inodes in the directory get.
    Default,
}

impl AclKind {
    /// The list that an attribute's full name stands for.
    pub fn parse(name: &[u8]) -> Option<AclKind> {
        match name {
            b"system.posix_acl_access" => Some(AclKind::Access),
            b"system.posix_acl_default" => Some(AclKind::Default),
            _ => None,
        }
    }

    fn name(self) -> AttributeName {
        let index = match self {
            AclKind::Access => AttributeName::ACL_ACCESS,
            AclKind::Default => AttributeName::ACL_DEFAULT,
        };
        AttributeName { index, suffix: Vec::new() }
    }
}

/// A list of an inode. Takes the `xattrs` lock if there are attributes.
pub(crate) fn load(fs: &ContentStore, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
    decode(inode, get(fs, inode, &kind.name())?)
}

fn decode(inode: &Inode, value: Option<Vec<u8>>) -> Result<Option<Acl>> {
    let Some(value) = value else { return Ok(None) };
    match Acl::from_packed(&value) {
        Ok(acl) => Ok(Some(acl)),
        Err(problem) => Err(Corrupt::Acl { inode: inode.number, problem }.into()),
    }
}

/// Stores a list, or removes it, as part of a handle.
pub(crate) fn store(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    kind: AclKind,
    acl: Option<&Acl>,
    garbage: &mut ValueGarbage,
) -> Result<()> {
    let before = StoredAttributes::load(fs, inode)?;
    let name = kind.name();
    let value = acl.map(Acl::to_packed);
    let wish =
        AttributeRequest { context, name: &name, value: value.as_deref(), may_use_inode: false };
    change::store(fs, handle, inode, &before, &wish, garbage)
}

/// What a new inode gets from its directory's default list, or from the umask.
pub(crate) struct InheritedAcls {
    /// The permission bits.
    pub permissions: u16,
    access: Option<Acl>,
    default: Option<Acl>,
    /// The caller that makes the inode, if there are lists.
    context: Option<RequestContext>,
}

/// Decides the permission bits and lists of a new inode in `directory`.
pub(crate) fn inherited(
    fs: &ContentStore,
    context: &RequestContext,
    directory: &Inode,
    summary: &InodeSummary,
    file_type: FileType,
    permissions: u16,
) -> Result<InheritedAcls> {
    let plain =
        |permissions| InheritedAcls { permissions, access: None, default: None, context: None };
    if file_type == FileType::Symlink {
        return Ok(plain(0o777));
    }
    let permissions = permissions & mode::PERMISSIONS;
    let inherited = match summary.has_attributes {
        true => load(fs, directory, AclKind::Default)?,
        false => None,
    };
    let Some(default) = inherited else {
        return Ok(plain(permissions & !(context.umask & 0o777)));
    };
    let (access, bits) = default.inherit(permissions);
    Ok(InheritedAcls {
        permissions: permissions & !0o777 | bits,
        access,
        default: (file_type == FileType::Directory).then_some(default),
        context: Some(RequestContext { groups: Vec::new(), ..context.clone() }),
    })
}

impl InheritedAcls {
    /// Stores the lists of the new inode, which no other thread can reach yet.
    pub fn apply(&self, fs: &ContentStore, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let Some(context) = &self.context else { return Ok(()) };
        // A new inode has no values in other inodes to lose.
        let mut garbage = ValueGarbage::default();
        for (kind, acl) in [(AclKind::Access, &self.access), (AclKind::Default, &self.default)] {
            if let Some(acl) = acl {
                store(fs, context, handle, inode, kind, Some(acl), &mut garbage)?;
            }
        }
        Ok(())
    }
}

/// Brings the access list in line with new permission bits. The `xattrs` lock is held exclusively.
pub(crate) fn change_mode(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    permissions: u16,
    garbage: &mut ValueGarbage,
) -> Result<()> {
    if !inode.fields().has_xattrs() {
        return Ok(());
    }
    let value = get_locked(fs, inode, &AclKind::Access.name())?;
    let Some(acl) = decode(inode, value)? else { return Ok(()) };
    let changed = acl.with_mode(permissions);
    store(fs, context, handle, inode, AclKind::Access, Some(&changed), garbage)
}
