//! Replays the changes of inodes: deletes, creates and changes them.

use super::plan::RecordedImage;
use super::{NumberState, Replay, wrong};
use crate::error::Result;
use crate::inode::{self, Inode};
use crate::{credits, dir, file, mapping, quota, xattr};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::error::FastCommitProblem;
use drystone_ext4_format::inode::{Inode as DiskInode, InodeFlags};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::FileType;

/// Flags that say how content is stored. For a directory the replay derives them from its content.
const SHAPE: InodeFlags =
    InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA).union(InodeFlags::INDEX);

impl Replay<'_> {
    /// Deletes the inodes whose numbers belong to other inodes now.
    pub(super) fn delete_replaced(&self) -> Result<()> {
        for (number, state) in &self.number_states {
            if *state == NumberState::Replaced {
                self.delete(&self.fs.orphan_inode(*number)?)?;
            }
        }
        Ok(())
    }

    /// Deletes an inode whose names are removed or about to be.
    pub(super) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        let fs = self.fs;
        if inode.is_directory()
            && self.number_state(inode.number) == NumberState::Kept
            && !dir::is_empty(fs, inode)?
        {
            return Err(wrong(inode.number, FastCommitProblem::NotEmpty));
        }
        self.step(credits::UNLINK, |handle| {
            inode.update(fs, handle, |fields| {
                fields.disk.links_count = 0;
                if inode.is_directory() {
                    fields.disk.size_bytes = 0;
                }
                Ok(())
            })
        })?;
        fs.delete(inode)
    }

    /// Creates the new inodes, and updates the others from their records.
    pub(super) fn make_and_change(&self) -> Result<()> {
        for number in self.number_states.keys().copied().filter(|number| self.exists(*number)) {
            let image = self.said.get(&number).and_then(|said| said.image.as_ref());
            match (self.number_state(number), image) {
                (NumberState::Kept, Some(image)) => {
                    self.change(&self.fs.orphan_inode(number)?, image)?;
                }
                (NumberState::Kept, None) => {}
                (NumberState::Replaced | NumberState::Absent, Some(image)) => {
                    self.make(number, image)?
                }
                (NumberState::Replaced | NumberState::Absent, None) => {
                    return Err(wrong(number, FastCommitProblem::Absent));
                }
            }
        }
        Ok(())
    }

    fn make(&self, number: InodeNumber, image: &RecordedImage) -> Result<()> {
        let fs = self.fs;
        let file_type = inode::time::file_type(image.disk.file_type()?);
        let is_directory = file_type == FileType::Directory;
        if image.disk.attribute_block.is_some() {
            return Err(wrong(number, FastCommitProblem::Attributes));
        }
        let names = self.names.gained(number);
        let links = u16::try_from(if is_directory { names + 1 } else { names });
        let links = links.map_err(|_| wrong(number, FastCommitProblem::Links))?;
        if is_directory && names > 1 {
            return Err(wrong(number, FastCommitProblem::DirectoryNames));
        }
        let mut disk =
            DiskInode { links_count: links, sectors: 0, deletion_time: 0, ..image.disk.clone() };
        if is_directory {
            disk.flags -= SHAPE;
            disk.size_bytes = 0;
            mapping::initialise(fs, &mut disk, file_type);
        } else if disk.has_block_mapping() {
            self.initialise_root(&mut disk)?;
        }
        fs.prepare_quota([disk.user, disk.group, disk.project.unwrap_or(0)])?;
        let table_blocks = fs.volume.layout().inode_table_blocks();
        let credits = credits::CREATE.saturating_add(table_blocks);
        let inode = self.step(credits.min(fs.volume.journal.max_credits()), |handle| {
            if !fs.allocator.inodes.claim_named(handle, number, is_directory)? {
                return Err(wrong(number, FastCommitProblem::Number));
            }
            file::ensure_large(fs, handle, disk.size_bytes)?;
            let inode = fs.write_new(handle, disk.clone())?;
            fs.quotas.inode_allocated(fs, handle, &inode)?;
            if inode.flags().contains(InodeFlags::INLINE_DATA) {
                self.set_inline(handle, &inode, image)?;
            }
            Ok(inode)
        })?;
        if let Some(parent) = self.names.parent(number).filter(|_| is_directory) {
            let _content = inode.content().write();
            self.step(credits::CREATE, |handle| {
                dir::initialise(fs, &self.context, handle, &inode, parent)
            })?;
        }
        Ok(())
    }

    /// Updates a kept inode from its record, except for names, blocks and the content of
    /// directories, which the replay handles elsewhere.
    fn change(&self, inode: &Arc<Inode>, image: &RecordedImage) -> Result<()> {
        let fs = self.fs;
        if inode::time::file_type(image.disk.file_type()?) != inode.file_type() {
            return Err(wrong(inode.number, FastCommitProblem::Type));
        }
        let new = &image.disk;
        let project = new.project.unwrap_or(quota::owners(inode)[2]);
        let owners = [new.user, new.group, project];
        fs.prepare_quota(owners)?;
        let _content = inode.content().write();
        let _xattrs = inode.xattrs.write();
        self.step(credits::SET_ATTRIBUTES, |handle| {
            fs.quotas
                .owners_changed(fs, handle, inode, owners, || xattr::value_inodes(fs, inode))?;
            if !inode.is_directory() {
                file::ensure_large(fs, handle, new.size_bytes)?;
                self.change_shape(handle, inode, image)?;
            }
            inode.update(fs, handle, |fields| {
                let disk = &mut fields.disk;
                let shape = disk.flags & SHAPE;
                disk.flags = (new.flags - SHAPE) | shape;
                disk.mode = new.mode;
                disk.user = new.user;
                disk.group = new.group;
                if disk.project.is_some() {
                    disk.project = Some(project);
                }
                if !inode.is_directory() {
                    disk.size_bytes = new.size_bytes;
                }
                disk.access_time = new.access_time;
                disk.change_time = new.change_time;
                disk.modification_time = new.modification_time;
                if disk.creation_time.is_some() && new.creation_time.is_some() {
                    disk.creation_time = new.creation_time;
                }
                disk.version = new.version;
                Ok(())
            })
        })
    }

    /// Makes a kept file store its content as its record says: in the inode, or in blocks.
    fn change_shape(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        image: &RecordedImage,
    ) -> Result<()> {
        let was = inode.fields().disk.clone();
        if image.disk.flags.contains(InodeFlags::INLINE_DATA) {
            if was.has_block_mapping() && !mapping::is_empty_root(&was) {
                return Err(wrong(inode.number, FastCommitProblem::Mapping));
            }
            return self.set_inline(handle, inode, image);
        }
        let was_inline = was.flags.contains(InodeFlags::INLINE_DATA);
        let mut disk = image.disk.clone();
        if disk.has_block_mapping() {
            let is_same = was.flags & SHAPE == disk.flags & SHAPE && was.has_block_mapping();
            if is_same {
                return Ok(());
            }
            if !was_inline && !mapping::is_empty_root(&was) {
                return Err(wrong(inode.number, FastCommitProblem::Mapping));
            }
            self.initialise_root(&mut disk)?;
        }
        inode.update(self.fs, handle, |fields| {
            if was_inline {
                inode::inline::set_rest(fields, None)?;
            }
            fields.disk.flags = (fields.disk.flags - SHAPE) | (disk.flags & SHAPE);
            fields.disk.block_area = disk.block_area;
            Ok(())
        })
    }

    /// Initialises the root of a mapping, of the kind that the inode's flags give.
    fn initialise_root(&self, disk: &mut DiskInode) -> Result<()> {
        let has_extents = disk.flags.contains(InodeFlags::EXTENTS);
        mapping::initialise_root(self.fs, disk);
        if !has_extents && disk.flags.contains(InodeFlags::EXTENTS) {
            disk.flags -= InodeFlags::EXTENTS;
            disk.block_area.fill(0);
        }
        if has_extents == disk.flags.contains(InodeFlags::EXTENTS) {
            Ok(())
        } else {
            Err(wrong(disk.number, FastCommitProblem::Mapping))
        }
    }

    /// Sets the inline data of an inode, and the attributes beside it, from its record.
    fn set_inline(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        image: &RecordedImage,
    ) -> Result<()> {
        inode.update(self.fs, handle, |fields| {
            let rest = image.rest.as_ref().filter(|rest| rest.len() == fields.xattr_area.len());
            let Some(rest) = rest else {
                return Err(wrong(inode.number, FastCommitProblem::Mapping));
            };
            fields.xattr_area.copy_from_slice(rest);
            fields.disk.flags = (fields.disk.flags - SHAPE) | InodeFlags::INLINE_DATA;
            fields.disk.block_area = image.disk.block_area;
            fields.disk.size_bytes = image.disk.size_bytes;
            // Refuses content that could not be read again.
            inode::inline::content(fields).map(drop)
        })
    }
}
