//! Reading and changing the content of regular files, and making it durable.

use super::Operations;
use super::attributes::{drop_privileges, stamp_content};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::log::CleanerWork;
use crate::log_writer::LogWriter;
use crate::permission;
use crate::trim::trim_after_read;
use drystone_nilfs2_format::FileBlock;
use drystone_sync::Arc;
use drystone_vfs::{
    Access, Errno, ExtentFlags, FileExtent, FileFlags, FileType, InodeAttributes, InodeNumber,
    OpenFlags, RequestContext, SeekFrom, SetAttributes,
};

/// How much is written at once, between two looks at the space that is left.
const PIECE_BYTES: usize = 1 << 20;
/// A write of at most so much is done as a whole or not at all.
const PIECE_BYTES_MIN: usize = 64 << 10;

impl Operations<'_> {
    pub(crate) fn do_open(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        flags: OpenFlags,
    ) -> Result<InodeAttributes> {
        self.do_open_held(context, number, flags)?;
        let inode = self.held(number)?;
        Ok(self.attributes_of(&*self.inode(inode.number, 1)?))
    }

    pub(crate) fn do_open_held(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        flags: OpenFlags,
    ) -> Result<()> {
        let inode = self.held(number)?;
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        let executes = flags.contains(OpenFlags::EXECUTE);
        match inode.file_type {
            FileType::Symlink => return Err(Errno::ELOOP.into()),
            FileType::Directory if writes => return Err(Errno::EISDIR.into()),
            FileType::Regular => {}
            _ if executes => return Err(Errno::EACCES.into()),
            _ => {}
        }
        let mut access = Access::empty();
        access.set(Access::READ, flags.contains(OpenFlags::READ) && !executes);
        access.set(Access::EXECUTE, executes);
        access.set(Access::WRITE, writes);
        permission::check(context, &inode, access)?;
        let is_regular = inode.file_type == FileType::Regular;
        if writes && is_regular {
            self.check_writable()?;
        }
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        let inode_flags = permission::flags_of(&inode.fields.lock().record);
        if truncates && inode_flags.contains(FileFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
        if inode.file_type == FileType::Socket {
            return Err(Errno::ENXIO.into());
        }
        if truncates && is_regular {
            let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
            self.do_set_attributes(context, number, &cut)?;
        }
        Ok(())
    }

    /// A regular file.
    fn regular(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        let inode = self.held(number)?;
        match inode.file_type {
            FileType::Regular => Ok(inode),
            FileType::Directory => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(crate) fn do_read(
        &self,
        number: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let inode = self.regular(number)?;
        if i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL.into());
        }
        let content = inode.content.read();
        let left = inode.size().saturating_sub(offset);
        let length = left.min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < length {
            let (key, inside, piece) = self.piece(offset + done as u64, length - done);
            let target = &mut buffer[done..done + piece];
            match inode.block(key, self.source())? {
                Some(bytes) => target.copy_from_slice(&bytes[inside..inside + piece]),
                None => target.fill(0),
            }
            done += piece;
        }
        drop(content);
        trim_after_read(self);
        Ok(length)
    }

    /// The block of an offset, the place in it, and how much of `length` is in it.
    fn piece(&self, offset: u64, length: usize) -> (FileBlock, usize, usize) {
        let block_bytes = self.volume.block_bytes();
        let inside = (offset % block_bytes as u64) as usize;
        let key = FileBlock(offset / block_bytes as u64);
        (key, inside, length.min(block_bytes - inside))
    }

    pub(crate) fn do_write(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let mut piece_max = PIECE_BYTES;
        let mut start = None;
        let mut done = 0;
        loop {
            let piece = &data[done..data.len().min(done + piece_max)];
            let place = start.or(offset).map(|start| start + done as u64);
            match self.write_piece(context, number, place, piece) {
                Ok((at, length)) => {
                    start.get_or_insert(at);
                    done += length;
                    if done == data.len() || length < piece.len() {
                        return Ok((start.unwrap_or(at), done));
                    }
                }
                // There may be room for a part.
                Err(Error::Errno(Errno::ENOSPC)) if piece.len() > PIECE_BYTES_MIN => {
                    piece_max = piece.len() / 2;
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok((start.or(offset).unwrap_or(0), done)),
            }
        }
    }

    fn write_piece(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        // The first may be a part of a block; a record and a node change too.
        let _inside = self.enter_adding(self.volume.blocks_for(data.len() as u64) + 3)?;
        let inode = self.regular(number)?;
        let _content = inode.content.write();
        let (flags, size) = {
            let fields = inode.fields.lock();
            (permission::flags_of(&fields.record), fields.record.size_bytes)
        };
        let offset = offset.unwrap_or(size);
        let overwrites = flags.contains(FileFlags::APPEND) && offset < size;
        if flags.contains(FileFlags::IMMUTABLE) || overwrites && !context.is_cache {
            return Err(Errno::EPERM.into());
        }
        if i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL.into());
        }
        if data.is_empty() {
            return Ok((offset, 0));
        }
        let room = (i64::MAX as u64).saturating_sub(offset);
        if room == 0 {
            return Err(Errno::EFBIG.into());
        }
        let length = room.min(data.len() as u64) as usize;
        if let Err(error) = self.write_blocks(&inode, offset, &data[..length]) {
            if offset + length as u64 > size {
                // What was written past the end must not show when the file grows.
                self.discard(&inode, FileBlock(self.volume.blocks_for(size)));
                self.clear_behind(&inode, size)?;
            }
            return Err(error);
        }
        let now = self.now();
        self.change(&inode, |fields| {
            let end = offset + length as u64;
            let mode = fields.record.mode;
            drop_privileges(context, &mut fields.record);
            if end > fields.record.size_bytes {
                fields.record.size_bytes = end;
                fields.needs_checkpoint = true;
            }
            fields.needs_checkpoint |= mode != fields.record.mode;
            if context.stamps_content() {
                stamp_content(&mut fields.record, now);
            }
        });
        Ok((offset, length))
    }

    /// Replaces content with `data`, block by block.
    fn write_blocks(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let (key, inside, piece) = self.piece(offset + done as u64, data.len() - done);
            let source = &data[done..done + piece];
            if piece == self.volume.block_bytes() {
                self.replace_block(inode, key, source.into())?;
            } else {
                self.edit_block(inode, key, |bytes| {
                    bytes[inside..inside + piece].copy_from_slice(source);
                })?;
            }
            done += piece;
        }
        Ok(())
    }

    pub(crate) fn do_seek(&self, number: InodeNumber, from: SeekFrom) -> Result<u64> {
        let inode = self.held(number)?;
        if inode.file_type != FileType::Regular {
            return Err(Errno::EINVAL.into());
        }
        let _content = inode.content.read();
        let size = inode.size();
        let (offset, wants_data) = match from {
            SeekFrom::Data(offset) => (offset, true),
            SeekFrom::Hole(offset) => (offset, false),
        };
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let block_bytes = self.volume.block_bytes() as u64;
        let first = FileBlock(offset / block_bytes);
        let mut key = first;
        loop {
            // A damaged map may have any key.
            let data = inode.next_data(key, self.source())?;
            let data = data.filter(|data| data.0 < self.volume.blocks_for(size));
            if wants_data {
                let found = data.map(|data| (data.0 * block_bytes).max(offset));
                return found.filter(|found| *found < size).ok_or_else(|| Errno::ENXIO.into());
            }
            if data != Some(key) {
                return Ok((key.0 * block_bytes).max(offset).min(size));
            }
            key = FileBlock(key.0 + 1);
        }
    }

    pub(crate) fn do_extents(
        &self,
        number: InodeNumber,
        offset: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<FileExtent>> {
        let inode = self.held(number)?;
        let _content = inode.content.read();
        let block_bytes = self.volume.block_bytes() as u64;
        let end = offset.saturating_add(length).min(inode.size());
        let mut extents: Vec<FileExtent> = Vec::new();
        let mut key = FileBlock(offset / block_bytes);
        while let Some(data) = inode.next_data(key, self.source())? {
            // A damaged map may have any key.
            let logical = data.0.saturating_mul(block_bytes);
            if logical >= end {
                return Ok(extents);
            }
            let place = inode.place_of(data, self.source())?;
            let flags = match place {
                Some(_) => ExtentFlags::empty(),
                None => ExtentFlags::DELAYED | ExtentFlags::UNKNOWN,
            };
            let physical = place.map_or(0, |place| self.volume.geometry.offset_of(place));
            let is_full = extents.len() == extents_max;
            let continues = extents.last_mut().filter(|last| {
                let follows = place.is_none() || last.physical + last.length == physical;
                last.flags == flags && last.logical + last.length == logical && follows
            });
            match continues {
                Some(last) => last.length += block_bytes,
                None if is_full => return Ok(extents),
                None => {
                    extents.push(FileExtent { logical, physical, length: block_bytes, flags });
                }
            }
            key = FileBlock(data.0 + 1);
        }
        if let Some(last) = extents.last_mut() {
            last.flags |= ExtentFlags::LAST;
        }
        Ok(extents)
    }

    pub(crate) fn do_forget(&self, number: InodeNumber, count: u64) {
        // A change only if it deletes the inode; whether it does isn't known before.
        let _inside = (!self.is_read_only).then(|| self.gate.pass());
        let number = drystone_nilfs2_format::InodeNumber(number.0);
        let Some(inode) = self.inodes.release(number, count) else { return };
        if self.is_read_only {
            return;
        }
        if let Err(error) = self.delete_nameless(&inode) {
            tracing::error!(%number, %error, "an inode without names could not be freed");
        }
    }

    pub(crate) fn do_sync_inode(&self, number: InodeNumber, data_only: bool) -> Result<()> {
        let inode = self.held(number)?;
        if self.is_read_only || !inode.is_unlogged() {
            return Ok(());
        }
        let needs_checkpoint = {
            let fields = inode.fields.lock();
            fields.needs_checkpoint || !data_only
        };
        if needs_checkpoint { self.requests.checkpoint() } else { self.requests.data_log(&inode) }
    }

    pub(crate) fn do_sync(&self) -> Result<()> {
        if self.is_read_only { Ok(()) } else { self.requests.checkpoint() }
    }

    pub(crate) fn do_freeze(&self) -> Result<()> {
        self.check_writable()?;
        self.requests.check_running()?;
        // The log stays locked from the freeze to its checkpoint, so that no other log comes after this one.
        let mut log = self.log.lock();
        if !self.gate.freeze() {
            return Err(Errno::EBUSY.into());
        }
        // Changes that were under way have left the gate when the log writer has closed it.
        let frozen = LogWriter::new(self).log_checkpoint(&mut log, CleanerWork::default());
        frozen.inspect_err(|error| {
            self.gate.thaw();
            self.requests.fail(error.clone());
        })
    }

    pub(crate) fn do_thaw(&self) -> Result<()> {
        if self.gate.thaw() { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }
}
