//! What is copied of an inode besides its content.

use drystone_vfs::{Attributes, DeviceNumber, FileType, NewNode, Timestamp};

/// What the source knows of an inode.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub file_type: FileType,
    pub permissions: u16,
    pub user: u32,
    pub group: u32,
    pub size: u64,
    /// It has less space than its size: there may be holes.
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

impl Facts {
    pub fn of_attributes(attributes: &Attributes, target: Vec<u8>) -> Facts {
        Facts {
            file_type: attributes.file_type,
            permissions: attributes.permissions,
            user: attributes.user,
            group: attributes.group,
            size: attributes.size,
            is_sparse: attributes.sectors.saturating_mul(512) < attributes.size,
            device: attributes.device,
            accessed: attributes.accessed,
            modified: attributes.modified,
            links: attributes.links.into(),
            identity: (0, attributes.inode.0),
            target,
        }
    }

    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub fn is_regular(&self) -> bool {
        self.file_type == FileType::Regular
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

/// Extended attributes: full names and values.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attribute that holds a file's ACL.
pub(super) const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the ACL of a directory's future entries.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// True for the attributes that are copied: of the `system` ones only ACLs are stored as such.
pub(super) fn is_copied_xattr(name: &[u8]) -> bool {
    !name.starts_with(b"system.") || name == ACCESS_ACL || name == DEFAULT_ACL
}
