//! The metadata that a copy keeps.

use drystone_ext4_format::acl::{permissions_without_list, with_other_ids};
use drystone_vfs::{
    DeviceNumber, Errno, FileSystem, FileType, InodeAttributes, InodeNumber, NewNode, OwnerMap,
    RequestContext, Timestamp, mode,
};
use std::borrow::Cow;

/// What the source knows of an inode.
#[derive(Clone, Debug)]
pub(crate) struct InodeFacts {
    pub file_type: FileType,
    pub permissions: u16,
    pub user: u32,
    pub group: u32,
    pub size: u64,
    /// There may be holes.
    pub is_sparse: bool,
    pub device: DeviceNumber,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub links: u64,
    /// Device and inode number: tells hard links and loops.
    pub identity: (u64, u64),
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

impl InodeFacts {
    pub fn of_attributes(attributes: &InodeAttributes, target: Vec<u8>) -> InodeFacts {
        InodeFacts {
            file_type: attributes.file_type,
            permissions: attributes.permissions,
            user: attributes.user,
            group: attributes.group,
            size: attributes.size,
            // The space that an inode claims proves nothing.
            is_sparse: attributes.size > 0,
            device: attributes.device,
            accessed: attributes.accessed,
            modified: attributes.modified,
            links: attributes.links.into(),
            identity: (0, attributes.inode.0),
            target,
        }
    }

    /// The same with the owners that a copy gives it.
    pub fn owned_by(self, map: &OwnerMap) -> InodeFacts {
        let (user, group) = map.owners(self.user, self.group);
        InodeFacts { user, group, ..self }
    }

    /// The same for a copy that doesn't get these attributes.
    pub fn without_xattrs(&self, xattrs: &Xattrs) -> Cow<'_, InodeFacts> {
        let permissions = permissions_without_acl(self.permissions, xattrs);
        match permissions == self.permissions {
            true => Cow::Borrowed(self),
            false => Cow::Owned(InodeFacts { permissions, ..self.clone() }),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub fn is_regular(&self) -> bool {
        self.file_type == FileType::Regular
    }

    /// True for what may have blocks of its own.
    pub fn may_have_places(&self) -> bool {
        let types = [FileType::Regular, FileType::Directory, FileType::Symlink];
        self.size > 0 && types.contains(&self.file_type)
    }

    /// What makes such an inode in an image.
    pub fn new_node(&self) -> NewNode<'_> {
        match self.file_type {
            FileType::Regular => NewNode::Regular,
            FileType::Directory => NewNode::Directory,
            FileType::Symlink => NewNode::Symlink(&self.target),
            FileType::CharacterDevice => NewNode::CharacterDevice(self.device),
            FileType::BlockDevice => NewNode::BlockDevice(self.device),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
        }
    }
}

/// The permissions of a copy that belongs to somebody else than what is copied: a set-id bit of a file would lend the
/// rights of the wrong user or group. Owners are users and groups.
pub(crate) fn permissions_of_other_owner(
    file_type: FileType,
    permissions: u16,
    (user, group): (u32, u32),
    (new_user, new_group): (u32, u32),
) -> u16 {
    let mut permissions = permissions;
    if file_type == FileType::Directory {
        return permissions;
    }
    if user != new_user {
        permissions &= !mode::SET_USER_ID;
    }
    if group != new_group {
        permissions &= !mode::SET_GROUP_ID;
    }
    permissions
}

/// The permissions of what doesn't get the ACL among these attributes: with it, the group's bits stand for more
/// than the owning group may do.
pub(crate) fn permissions_without_acl(permissions: u16, xattrs: &Xattrs) -> u16 {
    let acl = xattrs.iter().find(|(name, _)| name == ACCESS_ACL);
    acl.map_or(permissions, |(_, acl)| permissions_without_list(permissions, acl))
}

/// Extended attributes: full names and values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes with the users and groups that a copy puts into ACLs.
pub(crate) fn with_mapped_ids(mut xattrs: Xattrs, map: &OwnerMap) -> Xattrs {
    if map.is_empty() {
        return xattrs;
    }
    for (name, value) in &mut xattrs {
        if let Some(mapped) = with_other_ids(name, value, |id| map.user(id), |id| map.group(id)) {
            *value = mapped;
        }
    }
    xattrs
}

/// The attribute that holds a file's ACL.
pub(crate) const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the ACL of a directory's future entries.
pub(crate) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Takes the ACLs that a new inode of an image has from its directory away, but for those that `xattrs` will
/// replace.
pub(crate) fn remove_inherited_acls(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    inode: InodeNumber,
    file_type: FileType,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> drystone_vfs::Result<()> {
    let inheritable: &[&[u8]] = match file_type {
        FileType::Symlink => &[],
        FileType::Directory => &[ACCESS_ACL, DEFAULT_ACL],
        _ => &[ACCESS_ACL],
    };
    for acl in inheritable.iter().filter(|acl| !xattrs.iter().any(|(name, _)| name == *acl)) {
        match file_system.remove_xattr(context, inode, acl) {
            Err(error) if !matches!(error.errno, Errno::ENODATA | Errno::EOPNOTSUPP) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// True for the attributes that are copied: of the `system` ones only ACLs are stored as such.
pub(crate) fn is_copied_xattr(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || name == ACCESS_ACL || name == DEFAULT_ACL
}
