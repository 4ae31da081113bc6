//! Adds names: creates inodes, and makes hard links.

use super::Operations;
use super::attributes::{stamp_attributes, stamp_content};
use crate::directory;
use crate::error::Result;
use crate::inode::{HashedName, Inode, Record};
use crate::permission;
use drystone_nilfs2_format::directory::first_block;
use drystone_nilfs2_format::{FileBlock, InodeNumber};
use drystone_sync::Arc;
use drystone_vfs::{
    Access, Capabilities, DeviceNumber, Entry, Errno, FileType, NewNode, PATH_LENGTH_MAX,
    RequestContext, check_name, mode,
};

/// The most names that an inode may have.
pub(super) const LINKS_MAX: u16 = 32_000;
/// Blocks that a new name makes dirty at most: the directory's, the first of a new directory or link, the
/// nodes above them and records.
pub(super) const NAME_BLOCKS: u64 = 6;

impl Operations<'_> {
    pub(crate) fn do_create(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        check_name(name)?;
        if let NewNode::Symlink(target) = node {
            check_target(target)?;
        }
        let name = HashedName::new(name);
        let _inside = self.enter_adding(NAME_BLOCKS)?;
        let directory = self.directory(parent)?;
        let _content = directory.content.write();
        let parent = directory.fields.lock().record.clone();
        permission::check_record(context, &directory, &parent, Access::EXECUTE)?;
        if directory::find(&directory, name, self.source())?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        permission::check_add(context, &directory, &parent)?;
        self.check_node(context, &node)?;
        if node == NewNode::Directory {
            check_room(&parent)?;
        }
        let record = self.plan(context, &parent, &node, permissions);
        let number = self.ifile.allocate(self.source())?;
        let inode = Inode::new(number, record, false, self.volume.block_bytes())?;
        let inode = Arc::new(inode);
        self.inodes.insert(&inode);
        self.inodes_used.add(1);
        if let Err(error) = self.fill(&directory, &inode, name, &node) {
            self.change(&inode, |fields| fields.record.links_count = 0);
            self.inodes.release(number, 1);
            self.delete_if_unused(&inode)?;
            return Err(error);
        }
        Ok(self.attributes_of(&inode))
    }

    /// Gives a new inode its content and its name.
    fn fill(
        &self,
        directory: &Arc<Inode>,
        inode: &Arc<Inode>,
        name: HashedName<'_>,
        node: &NewNode<'_>,
    ) -> Result<()> {
        let block_bytes = self.volume.block_bytes();
        let content = match node {
            NewNode::Directory => Some(first_block(block_bytes, inode.number, directory.number)),
            NewNode::Symlink(target) => {
                let mut block = target.to_vec();
                block.resize(block_bytes, 0);
                Some(block)
            }
            _ => None,
        };
        if let Some(block) = content {
            self.replace_block(inode, FileBlock(0), block.into())?;
        }
        directory::insert(self.engine, directory, name, inode.number, inode.file_type)?;
        self.change(inode, |fields| fields.needs_checkpoint = true);
        let now = self.now();
        self.change(directory, |fields| {
            fields.needs_checkpoint = true;
            fields.record.links_count += u16::from(inode.is_directory());
            stamp_content(&mut fields.record, now);
        });
        Ok(())
    }

    /// The record of a new inode.
    fn plan(
        &self,
        context: &RequestContext,
        parent: &Record,
        node: &NewNode<'_>,
        permissions: u16,
    ) -> Record {
        let file_type = node.file_type();
        let is_directory = file_type == FileType::Directory;
        let passes_group = parent.mode & mode::SET_GROUP_ID != 0;
        let group = if passes_group { parent.group } else { context.group };
        let mut bits = permissions & mode::PERMISSIONS;
        if is_directory {
            bits &= 0o777 | mode::STICKY;
            if passes_group {
                bits |= mode::SET_GROUP_ID;
            }
        } else if passes_group
            && bits & (mode::SET_GROUP_ID | 0o010) == mode::SET_GROUP_ID | 0o010
            && !context.may_set_group_id(group)
        {
            bits &= !mode::SET_GROUP_ID;
        }
        bits &= !(context.umask & 0o777);
        let mut record = Record::metadata_file();
        let size = match node {
            NewNode::Directory => self.volume.block_bytes() as u64,
            NewNode::Symlink(target) => {
                bits = 0o777;
                target.len() as u64
            }
            NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) => {
                record.map = Record::device_map(device.major, device.minor);
                0
            }
            _ => 0,
        };
        let flags = permission::inherited_flags(permission::flags_of(parent), file_type);
        stamp_content(&mut record, self.now());
        Record {
            size_bytes: size,
            user: context.user,
            group,
            mode: file_type.mode_bits() | bits,
            links_count: 1 + u16::from(is_directory),
            flags: flags.bits(),
            // Only the low half is kept.
            generation: self.next_generation() as u32,
            ..record
        }
    }

    pub(crate) fn do_link(
        &self,
        context: &RequestContext,
        number: drystone_vfs::InodeNumber,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        check_name(name)?;
        let name = HashedName::new(name);
        let _inside = self.enter_adding(NAME_BLOCKS)?;
        let directory = self.searchable(context, parent)?;
        let inode = self.held(number)?;
        let _directory_content = directory.content.write();
        if directory::find(&directory, name, self.source())?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        permission::check_add(context, &directory, &directory.fields.lock().record)?;
        if inode.is_directory() {
            return Err(Errno::EPERM.into());
        }
        let _content = inode.content.write();
        {
            let fields = inode.fields.lock();
            permission::check_link(&inode, &fields.record)?;
            if fields.record.links_count >= LINKS_MAX {
                return Err(Errno::EMLINK.into());
            }
        }
        directory::insert(self.engine, &directory, name, inode.number, inode.file_type)?;
        let now = self.now();
        self.change(&inode, |fields| {
            fields.needs_checkpoint = true;
            fields.record.links_count += 1;
            stamp_attributes(&mut fields.record, now);
        });
        self.change(&directory, |fields| {
            fields.needs_checkpoint = true;
            stamp_content(&mut fields.record, now);
        });
        let references = self.inode(InodeNumber(number.0), 1)?;
        Ok(self.attributes_of(&references))
    }

    /// Checks what a new inode is to be. A whiteout takes no capability.
    fn check_node(&self, context: &RequestContext, node: &NewNode<'_>) -> Result<()> {
        match node {
            NewNode::CharacterDevice(device) if *device == DeviceNumber::default() => Ok(()),
            NewNode::CharacterDevice(_) | NewNode::BlockDevice(_)
                if !context.has(Capabilities::MAKE_NODE) =>
            {
                Err(Errno::EPERM.into())
            }
            NewNode::CharacterDevice(device) | NewNode::BlockDevice(device)
                if !device.is_valid() =>
            {
                Err(Errno::EINVAL.into())
            }
            NewNode::Symlink(target) if target.len() >= self.volume.block_bytes() => {
                Err(Errno::ENAMETOOLONG.into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a directory can have one more subdirectory.
pub(super) fn check_room(directory: &Record) -> Result<()> {
    if directory.links_count >= LINKS_MAX { Err(Errno::EMLINK.into()) } else { Ok(()) }
}

/// Checks the target of a new symbolic link.
fn check_target(target: &[u8]) -> Result<()> {
    match target {
        [] => Err(Errno::ENOENT.into()),
        _ if target.len() > PATH_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ if target.contains(&0) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}
