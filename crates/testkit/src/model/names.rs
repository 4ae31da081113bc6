//! Making and removing names: create, link, unlink, remove directory.

use drystone_vfs::{
    Capabilities, DeviceNumber, Entry, Errno, FileFlags, FileType, InodeNumber, NewNode,
    PATH_LENGTH_MAX, RequestContext, Result, mode,
};

use super::acl::ModelAcl;
use super::content::SparseContent;
use super::node::{Directory, ModelNodeKind, Node};
use super::permission;
use super::state::ModelState;

/// Flags that a directory passes on to all new inodes in it.
const INHERITED_BY_ALL: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ACCESS_TIME);
/// Flags that it passes on to files and directories.
const INHERITED_BY_FILES: FileFlags = INHERITED_BY_ALL
    .union(FileFlags::SECURE_REMOVE)
    .union(FileFlags::UNDELETE)
    .union(FileFlags::COMPRESS)
    .union(FileFlags::SYNC)
    .union(FileFlags::JOURNAL_DATA)
    .union(FileFlags::NO_TAIL);
/// Flags that it passes on to directories.
const INHERITED_BY_DIRECTORIES: FileFlags =
    INHERITED_BY_FILES.union(FileFlags::DIRECTORY_SYNC).union(FileFlags::PROJECT_INHERIT);

impl ModelState {
    pub(super) fn create(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        if let NewNode::Symlink(target) = node {
            check_target(target)?;
        }
        self.check_new_name(context, parent, name)?;
        let is_device = matches!(node, NewNode::CharacterDevice(_) | NewNode::BlockDevice(_));
        let is_whiteout = node == NewNode::CharacterDevice(DeviceNumber::default());
        if is_device && !is_whiteout && !context.has(Capabilities::MAKE_NODE) {
            return Err(Errno::EPERM.into());
        }
        if let NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) = node
            && !device.is_valid()
        {
            return Err(Errno::EINVAL.into());
        }
        if let NewNode::Symlink(target) = node
            && target.len() >= self.configuration.block_size as usize
        {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if node == NewNode::Directory && self.is_full_of_directories(parent)? {
            return Err(Errno::EMLINK.into());
        }
        let mut new = self.inherit(context, parent, node, permissions)?;
        let inode = new.attributes.inode;
        new.attributes.links = if new.is_directory() { 2 } else { 1 };
        if new.is_directory() {
            self.count_subdirectory(parent)?;
        }
        self.nodes.insert(inode, new);
        self.set_link(parent, name, inode)?;
        self.entry(inode)
    }

    /// Checks that `name` is free and may be made in `parent`.
    fn check_new_name(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.searched(context, parent)?;
        if matches!(name, b"." | b"..") || self.find(context, parent, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        permission::check_may_create(self.node(parent)?, context)
    }

    pub(super) fn create_unnamed(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
        permissions: u16,
    ) -> Result<Entry> {
        let directory = self.node(parent)?;
        directory.directory()?;
        permission::check_may_create(directory, context)?;
        let mut new = self.inherit(context, parent, NewNode::Regular, permissions)?;
        new.nameable = true;
        let inode = new.attributes.inode;
        self.nodes.insert(inode, new);
        self.entry(inode)
    }

    /// A new inode with owner, permissions, lists and flags as its directory prescribes.
    pub(super) fn inherit(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Node> {
        let kind = match node {
            NewNode::Regular => {
                ModelNodeKind::Regular(SparseContent::new(self.configuration.block_size))
            }
            NewNode::Directory => ModelNodeKind::Directory(Directory {
                parent,
                entries: Default::default(),
                removed: false,
            }),
            NewNode::Symlink(target) => ModelNodeKind::Symlink(target.to_vec()),
            _ => ModelNodeKind::Special,
        };
        let mut new = self.new_node(node.file_type(), kind);
        let directory = self.node(parent)?;
        let passes_group = directory.attributes.permissions & mode::SET_GROUP_ID != 0;
        let group = if passes_group { directory.attributes.group } else { context.group };
        let mut bits = permissions & mode::PERMISSIONS;
        if new.is_directory() {
            bits &= 0o777 | mode::STICKY;
            if passes_group {
                bits |= mode::SET_GROUP_ID;
            }
        } else if passes_group
            && bits & (mode::SET_GROUP_ID | 0o010) == mode::SET_GROUP_ID | 0o010
            && !permission::keeps_group_id(context, group)
        {
            bits &= !mode::SET_GROUP_ID;
        }
        if new.file_type() == FileType::Symlink {
            bits = 0o777;
        } else if let Some(default) = &directory.default_acl {
            let mut access: ModelAcl = default.clone();
            bits = access.restrict(bits);
            let says_all = access.mode().1;
            new.access_acl = (!says_all).then_some(access);
            new.default_acl = new.is_directory().then(|| default.clone());
        } else {
            bits &= !(context.umask & 0o777);
        }
        new.attributes.permissions = bits;
        new.attributes.user = context.user;
        new.attributes.group = group;
        let inherited = match new.file_type() {
            FileType::Directory => INHERITED_BY_DIRECTORIES,
            FileType::Regular => INHERITED_BY_FILES,
            _ => INHERITED_BY_ALL,
        };
        new.attributes.flags = directory.attributes.flags & inherited;
        if directory.attributes.flags.contains(FileFlags::PROJECT_INHERIT) {
            new.attributes.project = directory.attributes.project;
        }
        if let NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) = node {
            new.attributes.device = device;
        }
        Ok(new)
    }

    pub(super) fn link(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        self.node(inode)?;
        self.check_new_name(context, parent, name)?;
        let node = self.node(inode)?;
        let fixed = FileFlags::APPEND | FileFlags::IMMUTABLE;
        if node.attributes.flags.intersects(fixed) || node.is_directory() {
            return Err(Errno::EPERM.into());
        }
        if node.attributes.links == 0 && !node.nameable {
            return Err(Errno::ENOENT.into());
        }
        if node.attributes.links >= self.configuration.links_max {
            return Err(Errno::EMLINK.into());
        }
        self.check_project(parent, inode)?;
        self.set_link(parent, name, inode)?;
        self.touch_attributes(inode)?;
        let node = self.node_mut(inode)?;
        node.attributes.links += 1;
        node.nameable = false;
        self.entry(inode)
    }

    /// A directory whose project is inherited accepts only inodes of that project.
    pub(super) fn check_project(&self, parent: InodeNumber, inode: InodeNumber) -> Result<()> {
        let directory = &self.node(parent)?.attributes;
        let inherits = directory.flags.contains(FileFlags::PROJECT_INHERIT);
        if inherits && directory.project != self.node(inode)?.attributes.project {
            return Err(Errno::EXDEV.into());
        }
        Ok(())
    }

    pub(super) fn unlink(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.searched(context, parent)?;
        if matches!(name, b"." | b"..") {
            return Err(Errno::EISDIR.into());
        }
        let inode = self.find_existing(context, parent, name)?;
        permission::check_may_delete(self.node(parent)?, self.node(inode)?, context, false)?;
        self.remove_link(parent, name)?;
        self.drop_name(inode)
    }

    pub(super) fn remove_directory(
        &mut self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        self.searched(context, parent)?;
        match name {
            b"." => return Err(Errno::EINVAL.into()),
            b".." => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        let inode = self.find_existing(context, parent, name)?;
        permission::check_may_delete(self.node(parent)?, self.node(inode)?, context, true)?;
        if !self.node(inode)?.directory()?.entries.is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        self.remove_link(parent, name)?;
        self.uncount_subdirectory(parent)?;
        self.drop_name(inode)
    }
}

/// Checks the target of a new symbolic link.
fn check_target(target: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if target.len() > PATH_LENGTH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if target.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}
