//! `fallocate`: what it checks, and giving space.

use super::write::grow;
use super::{block_of, check_changeable, inline, is_inline, range, size_max, tail, touch};
use crate::alloc::with_space_retry;
use crate::credits;
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use crate::mapping;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FallocateMode, RequestContext};

/// Longest unwritten extent, in blocks.
const UNWRITTEN_LENGTH_MAX: u32 = 32767;

/// Changes the space behind a range of a file.
pub(crate) fn fallocate(
    fs: &Ext4,
    context: &RequestContext,
    inode: &Arc<Inode>,
    mode: FallocateMode,
    offset: u64,
    length: u64,
) -> Result<()> {
    check_changeable(fs, inode)?;
    if length == 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    let _content = inode.content.write();
    let flags = inode.flags();
    if flags.contains(InodeFlags::APPEND) && !matches!(mode, FallocateMode::Allocate { .. }) {
        return Err(Errno::EPERM.into());
    }
    if end > size_max(fs, &inode.fields()) {
        return Err(Errno::EFBIG.into());
    }
    if !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        && mode != FallocateMode::PunchHole
    {
        // Block maps can't say that a block is unwritten.
        return Err(Errno::EOPNOTSUPP.into());
    }
    if is_inline(inode) {
        inline::move_out(fs, inode)?;
    }
    match mode {
        FallocateMode::Allocate { keep_size } => {
            give_space(fs, context, inode, offset, end, keep_size)
        }
        FallocateMode::PunchHole => range::punch(fs, context, inode, offset, end),
        FallocateMode::ZeroRange { keep_size } => {
            range::zero(fs, context, inode, offset, end, keep_size)
        }
        FallocateMode::CollapseRange => range::collapse(fs, context, inode, offset, length),
        FallocateMode::InsertRange => range::insert(fs, context, inode, offset, length),
    }
}

/// Gives every block of a range space; then grows the file, unless `keep_size`. The content lock is
/// held exclusively.
pub(super) fn give_space(
    fs: &Ext4,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    let size = inode.fields().disk.size_bytes;
    let grows = !keep_size && end > size;
    if grows {
        tail::clear(fs, inode)?;
    }
    let block_size = fs.volume.block_size() as u64;
    let mut next = block_of(fs, offset);
    let blocks_end = end.div_ceil(block_size);
    while next.as_u64() < blocks_end {
        // A file has fewer than 2^32 blocks.
        let left = (blocks_end - next.as_u64()).min(u64::from(UNWRITTEN_LENGTH_MAX)) as u32;
        let mapped = mapping::map(fs, inode, next, left)?;
        let given = match mapped.physical {
            Some(_) => mapped.length,
            None => with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::WRITE)?;
                let given =
                    fill(fs, context, &mut handle, inode, next, mapped.length).and_then(|given| {
                        let reached = (next.as_u64() + u64::from(given)) * block_size;
                        record(fs, context, &mut handle, inode, grows.then_some(reached.min(end)))?;
                        Ok(given)
                    });
                fs.settle(handle, given)
            })?,
        };
        match next.checked_add(given) {
            Some(after) => next = after,
            None => break,
        }
    }
    let recorded = inode.fields().disk.size_bytes >= end || !grows;
    if recorded {
        return Ok(());
    }
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let done = record(fs, context, &mut handle, inode, Some(end));
    fs.settle(handle, done)
}

/// Fills a hole, or its beginning, with unwritten blocks. Returns how many.
fn fill(
    fs: &Ext4,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
    first: LogicalBlock,
    length: u32,
) -> Result<u32> {
    let run = mapping::allocate(fs, handle, context, inode, first, length)?;
    let length = run.length.min(length);
    let extent = Extent { logical: first, physical: run.physical, length, unwritten: true };
    if let Err(error) = mapping::insert(fs, handle, inode, extent) {
        mapping::release_unmapped(fs, handle, inode, &run)?;
        return Err(error);
    }
    Ok(length)
}

/// Stamps the inode, and grows it to `size` if that is given.
pub(super) fn record(
    fs: &Ext4,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    size: Option<u64>,
) -> Result<()> {
    if let Some(size) = size {
        grow(fs, handle, inode, size)?;
    }
    inode.note_data_change(handle);
    inode.update(fs, handle, |fields| {
        touch(fs, context, fields);
        Ok(())
    })
}
