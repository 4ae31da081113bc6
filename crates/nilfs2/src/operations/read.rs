//! Operations that change nothing: look-ups, listings, targets of links, free space.

use super::Operations;
use crate::directory;
use crate::error::{Error, Result};
use crate::inode::{HashedName, Inode};
use crate::permission;
use crate::trim::trim_after_read;
use crate::volume::BlockBytes;
use drystone_nilfs2_format::directory::{entries, mode_of_code};
use drystone_nilfs2_format::error::DirectoryProblem;
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber};
use drystone_sync::{Arc, CallersLocks};
use drystone_vfs::{
    Access, DirectoryEntry, DirectoryVisitor, Entry, Errno, FileSystemStatistics, FileType,
    NAME_LENGTH_MAX, RequestContext,
};

/// A directory whose `..` leads nowhere, or below itself.
pub(super) fn loop_at(inode: InodeNumber) -> Error {
    let problem = DirectoryProblem::Dots;
    Corrupt::Directory { inode, block: FileBlock(0), offset: 0, problem }.into()
}

impl Operations<'_> {
    pub(crate) fn do_lookup(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        let directory = self.searchable(context, parent)?;
        if name == b"." {
            return Ok(self.attributes_of(&*self.inode(directory.number, 1)?));
        }
        if name.len() > NAME_LENGTH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let _content = directory.content.read();
        if directory.fields.lock().record.links_count == 0 {
            return Err(Errno::ENOENT.into());
        }
        let found = directory::find(&directory, HashedName::new(name), self.source())?
            .ok_or(Errno::ENOENT)?;
        let inode = self.inode(found.inode, 1)?;
        Ok(self.attributes_of(&inode))
    }

    /// The inode of a number that may be out of date.
    pub(crate) fn do_find_inode(&self, number: drystone_vfs::InodeNumber) -> Result<Entry> {
        let found = self.inode_if(InodeNumber(number.0), 1, |record| match record.links_count {
            // It is free or will be: it must not be deleted once more.
            0 => Err(Errno::ESTALE.into()),
            _ => Ok(()),
        });
        let inode = match found {
            // The record of an inode that is free may hold anything.
            Err(Error::Corrupt(Corrupt::Inode { .. })) => return Err(Errno::ESTALE.into()),
            found => found?,
        };
        if inode.fields.lock().record.links_count == 0 {
            self.do_forget(number, 1);
            return Err(Errno::ESTALE.into());
        }
        Ok(self.attributes_of(&inode))
    }

    /// A directory that a name in it is to be looked up in.
    pub(super) fn searchable(
        &self,
        context: &RequestContext,
        number: drystone_vfs::InodeNumber,
    ) -> Result<Arc<Inode>> {
        let directory = self.directory(number)?;
        permission::check(context, &directory, Access::EXECUTE)?;
        Ok(directory)
    }

    /// A directory that a caller holds a reference to.
    pub(super) fn directory(&self, number: drystone_vfs::InodeNumber) -> Result<Arc<Inode>> {
        let directory = self.held(number)?;
        if directory.is_directory() { Ok(directory) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// What a name stands for now.
    pub(super) fn find_in(&self, directory: &Inode, name: HashedName<'_>) -> Result<Arc<Inode>> {
        let _content = directory.content.read();
        let found = directory::find(directory, name, self.source())?.ok_or(Errno::ENOENT)?;
        self.inode(found.inode, 0)
    }

    pub(crate) fn do_read_directory(
        &self,
        context: &RequestContext,
        number: drystone_vfs::InodeNumber,
        first: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        let callers_locks = CallersLocks::now();
        let directory = self.directory(number)?;
        if first == 0 {
            permission::check(context, &directory, Access::READ)?;
        }
        let block_bytes = self.volume.block_bytes() as u64;
        let mut block = FileBlock(first / block_bytes);
        let mut is_first = true;
        while let Some(bytes) = self.listed_block(&directory, block, is_first)? {
            // The visitor may call the file system.
            callers_locks.assert_no_more();
            for entry in entries(&bytes, directory.number, block) {
                let entry = entry?;
                // Entries stay where they are, so the place of the next one is where to go on.
                let start = block.0 * block_bytes + entry.offset as u64;
                if entry.inode.0 == 0 || start < first {
                    continue;
                }
                let shown = DirectoryEntry {
                    inode: drystone_vfs::InodeNumber(entry.inode.0),
                    file_type: mode_of_code(entry.file_type).and_then(FileType::from_mode),
                    cookie: start + 1,
                    name: entry.name,
                };
                if !visit(&shown) {
                    return Ok(());
                }
            }
            block.0 += 1;
            is_first = false;
            trim_after_read(self);
        }
        Ok(())
    }

    /// A block of a directory as it is now; none past its end.
    fn listed_block(
        &self,
        directory: &Inode,
        block: FileBlock,
        is_first: bool,
    ) -> Result<Option<BlockBytes>> {
        let _content = directory.content.read();
        if directory.fields.lock().record.links_count == 0 {
            // If the listing has begun, the directory was emptied and removed since.
            return if is_first { Err(Errno::ENOENT.into()) } else { Ok(None) };
        }
        if block.0 >= self.volume.blocks_for(directory.size()) {
            return Ok(None);
        }
        let bytes = directory.block(block, self.source())?;
        let (inode, problem) = (directory.number, DirectoryProblem::Hole);
        let hole = Corrupt::Directory { inode, block, offset: 0, problem };
        Ok(Some(bytes.ok_or(hole)?))
    }

    pub(crate) fn do_read_link(&self, number: drystone_vfs::InodeNumber) -> Result<Vec<u8>> {
        let inode = self.held(number)?;
        if inode.file_type != FileType::Symlink {
            return Err(Errno::EINVAL.into());
        }
        let _content = inode.content.read();
        let block = inode.block(FileBlock(0), self.source())?;
        let Some(block) = block else { return Err(Errno::EIO.into()) };
        let length = inode.size().min(block.len() as u64) as usize;
        Ok(block[..length].to_vec())
    }

    pub(crate) fn do_statistics(&self) -> FileSystemStatistics {
        let geometry = &self.volume.geometry;
        let per_segment = geometry.blocks_per_segment();
        let free = self.space.clean_segments() * per_segment;
        let reserved = self.space.reserved_segments() * per_segment;
        let used = self.inodes_used.sum().max(0).cast_unsigned();
        let inodes_free = free * self.ifile.layout.entries_per_block();
        let blocks = geometry.segments() * per_segment - geometry.first_data_block().0;
        let (low, high) = self.identity;
        FileSystemStatistics {
            block_size: self.volume.block_bytes() as u32,
            blocks: blocks.saturating_sub(reserved),
            blocks_free: free.saturating_sub(reserved),
            blocks_available: free.saturating_sub(reserved),
            inodes: used + inodes_free,
            inodes_free,
            name_length_max: NAME_LENGTH_MAX as u32,
            identifier: low ^ high,
        }
    }
}
