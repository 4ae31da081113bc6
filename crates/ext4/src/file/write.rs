//! Writes to files.

use super::blocks::write_padded;
use super::record::grow;
use super::size::finish_cut_below;
use super::{
    block_of, check_changeable, flush, inline, is_inline, rights_lost, size_max, tail, touch,
    write_back,
};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use crate::xattr;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext};

/// The most blocks that one handle maps. Bounds how long the handle stays open while data is
/// written.
const RUN_BLOCKS_MAX: u32 = 2048;

/// Writes `data` at `offset`. Returns the number of bytes written, which is smaller than asked if a
/// later part fails.
pub(crate) fn write(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    data: &[u8],
) -> Result<usize> {
    check_changeable(fs, inode)?;
    if !context.is_cache {
        // For data from the page cache this was done when it was written; a capability set since
        // then stays.
        xattr::drop_capability(fs, inode)?;
    }
    let _content = inode.content().write();
    let overwrites = offset < inode.size_bytes();
    // The page cache writes whole pages. Where it is kept, they are compared with what is stored.
    if overwrites && inode.flags().contains(InodeFlags::APPEND) && !context.is_cache {
        return Err(Errno::EPERM.into());
    }
    write_locked(fs, context, inode, offset, data)
}

/// Writes `data` at the end. Returns the offset, and the number of bytes written.
pub(crate) fn append(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    data: &[u8],
) -> Result<(u64, usize)> {
    check_changeable(fs, inode)?;
    xattr::drop_capability(fs, inode)?;
    let _content =
        (!drystone_sync::planted!("append-without-lock")).then(|| inode.content().write());
    let offset = inode.size_bytes();
    Ok((offset, write_locked(fs, context, inode, offset, data)?))
}

fn write_locked(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    data: &[u8],
) -> Result<usize> {
    let room = size_max(fs, inode).saturating_sub(offset);
    if data.is_empty() {
        return Ok(0);
    }
    if room == 0 {
        return Err(Errno::EFBIG.into());
    }
    let data = &data[..room.min(data.len() as u64) as usize];
    finish_cut_below(fs, inode, offset + data.len() as u64)?;
    if inline::may_hold(fs, inode)? && inline::write(fs, context, inode, offset, data)? {
        return Ok(data.len());
    }
    if is_inline(inode) {
        inline::move_out(fs, inode)?;
    }
    if offset > inode.size_bytes() {
        tail::clear(fs, inode, offset)?;
    }
    let may_wait = write_back::may_wait(fs, context, inode, data.len());
    let mut writer = FileWriter { fs, context, inode, offset, data, may_wait };
    match writer.run() {
        // The bytes written before the error count.
        Err(_) if writer.data.len() < data.len() => Ok(data.len() - writer.data.len()),
        Err(error) => Err(error),
        Ok(()) => Ok(data.len()),
    }
}

/// The rest of a write.
struct FileWriter<'a> {
    fs: &'a ContentStore,
    context: &'a RequestContext,
    inode: &'a Arc<Inode>,
    offset: u64,
    data: &'a [u8],
    /// Data for holes may be delayed.
    may_wait: bool,
}

impl FileWriter<'_> {
    fn run(&mut self) -> Result<()> {
        while !self.data.is_empty() {
            let written = self.step()?;
            self.offset += written as u64;
            self.data = &self.data[written..];
        }
        Ok(())
    }

    /// Writes to the next run of blocks of one kind. Returns the number of bytes.
    fn step(&self) -> Result<usize> {
        let block_size = self.fs.volume.block_size() as u64;
        let within = self.offset % block_size;
        let blocks = (within + self.data.len() as u64).div_ceil(block_size);
        let blocks_max = blocks.min(u64::from(RUN_BLOCKS_MAX)) as u32;
        let mapped = mapping::map(self.fs, self.inode, block_of(self.fs, self.offset), blocks_max)?;
        if mapped.delayed || self.may_wait && mapped.physical.is_none() {
            let piece = self.piece(mapped.length);
            let (fs, context, inode) = (self.fs, self.context, self.inode);
            if write_back::delay(fs, context, inode, self.offset, piece, mapped.delayed)? {
                return Ok(piece.len());
            }
        }
        let in_place = mapped.physical.is_some() && !mapped.unwritten;
        if self.inode.delayed.is_any() && !in_place {
            // No block may be mapped on disk after the size on disk.
            flush(self.fs, self.inode)?;
        }
        match mapped.physical {
            Some(physical) if !mapped.unwritten => self.overwrite(physical, mapped.length),
            Some(physical) => self.fill_unwritten(physical, mapped.length),
            None => self.fill_hole(mapped.length),
        }
    }

    /// The bytes of the write that go to a run of `blocks`.
    fn piece(&self, blocks: u32) -> &[u8] {
        let block_size = self.fs.volume.block_size() as u64;
        let bytes = u64::from(blocks) * block_size - self.offset % block_size;
        &self.data[..bytes.min(self.data.len() as u64) as usize]
    }

    fn overwrite(&self, physical: PhysicalBlock, blocks: u32) -> Result<usize> {
        let block_size = self.fs.volume.block_size() as u64;
        let piece = self.piece(blocks);
        let place = physical.get() * block_size + self.offset % block_size;
        let device = &self.fs.volume.device;
        self.fs.volume.without_handle(|| Ok(device.write_at(place, piece)?))?;
        self.inode.note_overwrite(device.mark());
        if self.needs_record(piece.len()) {
            let mut handle = self.fs.volume.start(credits::WRITE_RECORD)?;
            let recorded = self.record(&mut handle, piece.len());
            self.fs.settle(handle, recorded)?;
        }
        Ok(piece.len())
    }

    fn fill_unwritten(&self, physical: PhysicalBlock, blocks: u32) -> Result<usize> {
        let piece = self.piece(blocks);
        let blocks = self.blocks_touched(piece.len());
        self.fs.volume.without_handle(|| self.write_new(physical, piece))?;
        let first = block_of(self.fs, self.offset);
        with_space_retry(&self.fs.volume, || {
            let mut handle = self.fs.volume.start(credits::WRITE)?;
            // What isn't converted is written again in the next step.
            let converted =
                mapping::convert(self.fs, &mut handle, self.inode, first, blocks, false).and_then(
                    |blocks| {
                        let written = self.piece(blocks).len();
                        self.record(&mut handle, written).map(|()| written)
                    },
                );
            self.fs.settle(handle, converted)
        })
    }

    fn fill_hole(&self, blocks: u32) -> Result<usize> {
        with_space_retry(&self.fs.volume, || {
            let mut handle = self.fs.volume.start(credits::WRITE)?;
            let filled = self.allocate_and_fill(&mut handle, blocks);
            self.fs.settle(handle, filled)
        })
    }

    fn allocate_and_fill(&self, handle: &mut Handle<'_>, blocks: u32) -> Result<usize> {
        let first = block_of(self.fs, self.offset);
        let run = mapping::allocate(self.fs, handle, self.context, self.inode, first, blocks)?;
        let piece = self.piece(run.length.min(blocks));
        let length = self.blocks_touched(piece.len());
        let extent = Extent { logical: first, physical: run.physical, length, unwritten: false };
        let mapped = self
            .write_new(run.physical, piece)
            .and_then(|()| mapping::insert(self.fs, handle, self.inode, extent));
        if let Err(error) = mapped {
            mapping::release_unmapped(self.fs, handle, self.inode, &run)?;
            return Err(error);
        }
        self.record(handle, piece.len())?;
        Ok(piece.len())
    }

    /// The number of blocks that `length` bytes from the offset on touch.
    fn blocks_touched(&self, length: usize) -> u32 {
        let block_size = self.fs.volume.block_size() as u64;
        (self.offset % block_size + length as u64).div_ceil(block_size) as u32
    }

    /// Writes `piece` to new blocks, and zeros around it.
    fn write_new(&self, physical: PhysicalBlock, piece: &[u8]) -> Result<()> {
        let before = (self.offset % self.fs.volume.block_size() as u64) as usize;
        write_padded(self.fs, physical, before, piece)
    }

    /// Whether a write in place changes the inode: its size, or a time that has moved on.
    fn needs_record(&self, length: usize) -> bool {
        let fields = self.inode.fields();
        let now = self.fs.now();
        let times = [fields.disk.modification_time, fields.disk.change_time];
        self.offset + length as u64 > fields.disk.size_bytes
            || self.context.stamps_content() && times != [now, now]
            || rights_lost(self.context, &fields) != 0
    }

    /// Records in the inode that `length` bytes were written.
    fn record(&self, handle: &mut Handle<'_>, length: usize) -> Result<()> {
        let end = self.offset + length as u64;
        grow(self.fs, handle, self.inode, end)?;
        self.inode.update(self.fs, handle, |fields| {
            touch(self.fs, self.context, fields);
            Ok(())
        })
    }
}
