//! Reading and changing the content of regular files.

use drystone_vfs::{
    Access, Errno, FallocateMode, FileFlags, FileType, InodeAttributes, InodeNumber, OpenFlags,
    RequestContext, Result, SeekFrom,
};

use super::content::SparseContent;
use super::permission;
use super::state::ModelState;

impl ModelState {
    pub(super) fn open(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        let node = self.node(inode)?;
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        let executes = flags.contains(OpenFlags::EXECUTE);
        match node.file_type() {
            FileType::Symlink => return Err(Errno::ELOOP.into()),
            FileType::Directory if writes => return Err(Errno::EISDIR.into()),
            FileType::Regular => {}
            _ if executes => return Err(Errno::EACCES.into()),
            _ => {}
        }
        let mut access = Access::empty();
        access.set(Access::READ, flags.contains(OpenFlags::READ) && !executes);
        access.set(Access::WRITE, writes);
        access.set(Access::EXECUTE, executes);
        permission::check(node, context, access)?;
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        if truncates && node.attributes.flags.contains(FileFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
        if node.file_type() == FileType::Socket {
            return Err(Errno::ENXIO.into());
        }
        if truncates && node.file_type() == FileType::Regular {
            self.resize(context, inode, 0)?;
        }
        self.entry(inode)
    }

    pub(super) fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let content = self.node(inode)?.content()?;
        if i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL.into());
        }
        Ok(content.read(offset, buffer))
    }

    pub(super) fn write(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let node = self.node(inode)?;
        let content = node.content()?;
        let flags = node.attributes.flags;
        let overwrites = flags.contains(FileFlags::APPEND) && offset < content.size();
        if flags.contains(FileFlags::IMMUTABLE) || overwrites && !context.is_cache {
            return Err(Errno::EPERM.into());
        }
        if i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= self.configuration.file_size_max {
            return Err(Errno::EFBIG.into());
        }
        let below_size_max = self.configuration.file_size_max - offset;
        let length = below_size_max.min(data.len() as u64) as usize;
        let length = self.fitting(content, offset, length);
        if length == 0 {
            return Err(Errno::ENOSPC.into());
        }
        self.change_content(inode, |content| content.write(offset, &data[..length]))?;
        permission::drop_privileges(self.node_mut(inode)?, context);
        if context.stamps_content() {
            self.touch_content(inode)?;
        }
        Ok(length)
    }

    /// How many bytes of a write there is space for.
    fn fitting(&self, content: &SparseContent, offset: u64, length: usize) -> usize {
        let left = self.blocks_left();
        let block_size = u64::from(self.configuration.block_size);
        let end = offset + length as u64;
        if content.blocks_missing(offset, end) <= left {
            return length;
        }
        let fits = |end: &u64| content.blocks_missing(offset, *end) <= left;
        let mut boundary = offset;
        loop {
            let next = (boundary / block_size + 1) * block_size;
            if !fits(&next) {
                return (boundary - offset) as usize;
            }
            boundary = next;
        }
    }

    pub(super) fn append(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let offset = self.node(inode)?.content()?.size();
        Ok((offset, self.write(context, inode, offset, data)?))
    }

    /// Changes content and keeps count of the space.
    pub(super) fn change_content(
        &mut self,
        inode: InodeNumber,
        change: impl FnOnce(&mut SparseContent),
    ) -> Result<()> {
        let content = self.node_mut(inode)?.content_mut()?;
        let before = content.blocks_used();
        change(content);
        let after = content.blocks_used();
        self.blocks_used = self.blocks_used - before + after;
        Ok(())
    }

    pub(super) fn fallocate(
        &mut self,
        context: &RequestContext,
        inode: InodeNumber,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let node = self.node(inode)?;
        if length == 0 || i64::try_from(offset).is_err() || i64::try_from(length).is_err() {
            return Err(Errno::EINVAL.into());
        }
        let flags = node.attributes.flags;
        let allocates = matches!(mode, FallocateMode::Allocate { .. });
        if flags.contains(FileFlags::IMMUTABLE) || flags.contains(FileFlags::APPEND) && !allocates {
            return Err(Errno::EPERM.into());
        }
        let content = node.content()?;
        let size_max = self.configuration.file_size_max;
        if offset + length > size_max {
            return Err(Errno::EFBIG.into());
        }
        if !self.configuration.extents && mode != FallocateMode::PunchHole {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let cluster = u64::from(self.configuration.cluster_size);
        let unaligned = !offset.is_multiple_of(cluster) || !length.is_multiple_of(cluster);
        let size = content.size();
        match mode {
            FallocateMode::CollapseRange if unaligned || offset + length >= size => {
                return Err(Errno::EINVAL.into());
            }
            FallocateMode::InsertRange if unaligned => return Err(Errno::EINVAL.into()),
            FallocateMode::InsertRange if length > size_max - size => {
                return Err(Errno::EFBIG.into());
            }
            FallocateMode::InsertRange if offset >= size => return Err(Errno::EINVAL.into()),
            // Space past the end moves, too.
            FallocateMode::InsertRange if content.space_end() + length > size_max => {
                return Err(Errno::EFBIG.into());
            }
            FallocateMode::Allocate { .. } | FallocateMode::ZeroRange { .. }
                if content.blocks_missing(offset, offset + length) > self.blocks_left() =>
            {
                return Err(Errno::ENOSPC.into());
            }
            _ => {}
        }
        self.change_content(inode, |content| match mode {
            FallocateMode::Allocate { keep_size } => content.allocate(offset, length, keep_size),
            FallocateMode::PunchHole if offset >= size => {}
            FallocateMode::PunchHole => content.punch(offset, length),
            FallocateMode::ZeroRange { keep_size } => content.zero(offset, length, keep_size),
            FallocateMode::CollapseRange => content.collapse(offset, length),
            FallocateMode::InsertRange => content.insert(offset, length),
        })?;
        permission::drop_privileges(self.node_mut(inode)?, context);
        if context.stamps_content() {
            self.touch_content(inode)?;
        }
        Ok(())
    }

    pub(super) fn seek(&self, inode: InodeNumber, from: SeekFrom) -> Result<u64> {
        // Only regular files have holes that can be asked for.
        let content = self.node(inode)?.content().map_err(|_| Errno::EINVAL)?;
        match from {
            SeekFrom::Data(offset) => content.seek_data(offset),
            SeekFrom::Hole(offset) => content.seek_hole(offset),
        }
    }
}
