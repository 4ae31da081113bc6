//! Making an inode: number, owner, mode, inherited flags.

use super::Engine;
use crate::alloc::InodeRequest;
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use crate::mapping;
use crate::xattr::acl;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{Inode as DiskInode, InodeDevice, InodeFlags};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{FileType, NewNode, RequestContext, mode};

/// Flags that a new inode takes from its directory.
const INHERITED: InodeFlags = InodeFlags::SECURE_DELETE
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NO_DUMP)
    .union(InodeFlags::NO_ACCESS_TIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NO_TAIL)
    .union(InodeFlags::DIRECTORY_SYNC)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);

/// What is decided about a new inode before a handle is started.
pub(crate) struct NewInode {
    file_type: FileType,
    permissions: u16,
    user: u32,
    group: u32,
    project: u32,
    flags: InodeFlags,
    device: Option<drystone_vfs::DeviceNumber>,
    acls: acl::InheritedAcls,
    directory: InodeNumber,
    top_level: bool,
}

impl NewInode {
    /// Decides owner, mode and flags of a new inode in `directory`, whose content lock is held.
    pub fn plan(
        fs: &Engine,
        context: &RequestContext,
        directory: &Inode,
        parent: &InodeSummary,
        node: &NewNode<'_>,
        permissions: u16,
    ) -> Result<NewInode> {
        let file_type = node.file_type();
        let is_directory = file_type == FileType::Directory;
        let passes_group = parent.mode & mode::SET_GROUP_ID != 0;
        let group = if passes_group { parent.group } else { context.group };
        let mut permissions = permissions;
        if is_directory {
            // As mkdir(2): a new directory gets its set-group-id bit only from its parent.
            permissions &= !(mode::SET_USER_ID | mode::SET_GROUP_ID);
        } else if passes_group
            && permissions & (mode::SET_GROUP_ID | 0o010) == mode::SET_GROUP_ID | 0o010
            && !context.may_set_group_id(group)
        {
            // Checked before an access list or the umask removes the right to execute, as Linux does
            // since 6.0: the file could be given that right later.
            permissions &= !mode::SET_GROUP_ID;
        }
        let acls = acl::inherited(fs, context, directory, parent, file_type, permissions)?;
        let mut permissions = acls.permissions;
        if is_directory && passes_group {
            permissions |= mode::SET_GROUP_ID;
        }
        let inherits_project = parent.flags.contains(InodeFlags::PROJECT_INHERIT);
        let plan = NewInode {
            file_type,
            permissions,
            user: context.user,
            group,
            project: if inherits_project { parent.project.unwrap_or(0) } else { 0 },
            flags: inherited_flags(parent.flags, file_type),
            device: match node {
                NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) => Some(*device),
                _ => None,
            },
            acls,
            directory: directory.number,
            top_level: directory.number == InodeNumber::ROOT
                || parent.flags.contains(InodeFlags::TOP_DIRECTORY),
        };
        let owners = [plan.user, plan.group, plan.project];
        fs.quotas.check_inode(fs, context, owners)?;
        fs.prepare_quota(owners)?;
        Ok(plan)
    }

    /// Makes the inode, with a count of `links` names, which the caller is about to give it. It is in
    /// the table afterwards, without a reference. A caller that fails then must hand the inode to
    /// [`Orphans::abandon`](crate::orphan::Orphans::abandon).
    pub fn make(&self, fs: &Engine, handle: &mut Handle<'_>, links: u16) -> Result<Arc<Inode>> {
        let request = InodeRequest {
            parent: self.directory,
            directory: self.file_type == FileType::Directory,
            top_level: self.top_level,
            goal: None,
        };
        let number = fs.allocator.inodes.allocate(handle, &request)?;
        let mode = self.file_type.mode_bits() | self.permissions;
        let mut disk = DiskInode::new(number, mode, fs.now(), fs.volume.layout());
        disk.user = self.user;
        disk.group = self.group;
        if disk.project.is_some() {
            disk.project = Some(self.project);
        }
        disk.flags = self.flags;
        disk.links_count = links;
        disk.generation = fs.volume.new_generation();
        if let Some(device) = self.device {
            disk.block_area = InodeDevice { major: device.major, minor: device.minor }.encode();
        }
        mapping::initialise(fs, &mut disk, self.file_type);
        let inode = fs.write_new(handle, disk)?;
        fs.quotas.inode_allocated(fs, handle, &inode)?;
        Ok(inode)
    }

    /// Gives the inode the access control lists that it inherits, before it gets any content.
    pub fn apply_acls(&self, fs: &Engine, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.acls.apply(fs, handle, inode)
    }
}

fn inherited_flags(parent: InodeFlags, file_type: FileType) -> InodeFlags {
    let flags = parent & INHERITED;
    match file_type {
        FileType::Directory => flags,
        FileType::Regular => {
            flags - InodeFlags::DIRECTORY_SYNC - InodeFlags::CASEFOLD - InodeFlags::PROJECT_INHERIT
        }
        _ => flags & (InodeFlags::NO_DUMP | InodeFlags::NO_ACCESS_TIME),
    }
}
