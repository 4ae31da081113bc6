//! Holes punched, ranges zeroed, taken out and put in.
//!
//! # Crash
//! A long range is done in several transactions. Each leaves a valid file: the part of the range that
//! was done is as asked, the rest as before.

use super::blocks::zero as zero_run;
use super::record::{grow, record};
use super::space::give_space;
use super::{block_of, offset_of, size_max, tail};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::{self, StepProgress};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::UNWRITTEN_BLOCKS_MAX;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext};

/// Makes `[offset, end)` a hole. The size stays.
pub(super) fn punch(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
) -> Result<()> {
    let size = inode.size_bytes();
    let block_size = fs.volume.block_size() as u64;
    // As Linux: a hole that reaches behind the size takes the whole last block, and leaves what is
    // reserved behind it.
    let end = if end > size { size.next_multiple_of(block_size) } else { end };
    let end = end.min(mapping::END.saturating_mul(block_size));
    if offset >= end {
        return stamp(fs, context, inode);
    }
    zero_edges(fs, inode, offset, end)?;
    let first = offset.div_ceil(block_size);
    let last = end / block_size;
    if first < last {
        remove(fs, inode, LogicalBlock::new(first as u32), last)?;
    }
    stamp(fs, context, inode)
}

/// Makes `[offset, end)` read as zeros, with space behind it.
pub(super) fn zero(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    let block_size = fs.volume.block_size() as u64;
    give_space(fs, context, inode, offset, end, keep_size)?;
    zero_edges(fs, inode, offset, end)?;
    let mut next = offset.div_ceil(block_size);
    let last = end / block_size;
    while next < last {
        let left = u32::try_from(last - next).unwrap_or(u32::MAX);
        let first = LogicalBlock::new(next as u32);
        let mapped = mapping::map(fs, inode, first, left)?;
        let length = mapped.length.min(UNWRITTEN_BLOCKS_MAX);
        if mapped.physical.is_some() && !mapped.unwritten {
            with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::WRITE)?;
                let converted = mapping::convert(fs, &mut handle, inode, first, length, true);
                fs.settle(handle, converted)
            })?;
        }
        next += u64::from(length);
    }
    stamp(fs, context, inode)
}

/// Takes `[offset, offset + length)` out; what follows moves down.
pub(super) fn collapse(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<()> {
    check_aligned(fs, offset, length)?;
    let size = inode.size_bytes();
    if offset.saturating_add(length) >= size {
        return Err(Errno::EINVAL.into());
    }
    let first = block_of(fs, offset);
    let behind = block_of(fs, offset + length);
    remove(fs, inode, first, behind.as_u64())?;
    let delta = -(i64::from(behind.get()) - i64::from(first.get()));
    mapping::shift(fs, inode, behind, delta)?;
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let done = inode
        .update(fs, &mut handle, |fields| {
            fields.disk.size_bytes = size - length;
            Ok(())
        })
        .and_then(|()| record(fs, context, &mut handle, inode, None));
    fs.settle(handle, done)
}

/// Puts a hole of `length` bytes in at `offset`; what follows moves up.
pub(super) fn insert(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<()> {
    check_aligned(fs, offset, length)?;
    let size = inode.size_bytes();
    if length > size_max(fs, inode).saturating_sub(size) {
        return Err(Errno::EFBIG.into());
    }
    if offset >= size {
        return Err(Errno::EINVAL.into());
    }
    tail::clear(fs, inode)?;
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let grown = grow(fs, &mut handle, inode, size + length)
        .and_then(|()| record(fs, context, &mut handle, inode, None));
    fs.settle(handle, grown)?;
    let first = block_of(fs, offset);
    mapping::split_at(fs, inode, first)?;
    mapping::shift(fs, inode, first, i64::from(block_of(fs, length).get()))
}

/// Ranges that move other blocks are whole clusters.
fn check_aligned(fs: &ContentStore, offset: u64, length: u64) -> Result<()> {
    let unit = fs.volume.block_size() as u64 * u64::from(fs.volume.layout.blocks_per_cluster());
    if !offset.is_multiple_of(unit) || !length.is_multiple_of(unit) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// Frees the blocks from `from` to `end`.
fn remove(fs: &ContentStore, inode: &Arc<Inode>, from: LogicalBlock, end: u64) -> Result<()> {
    let mut end = end;
    loop {
        let progress = with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits::CUT)?;
            let progress = mapping::remove(fs, &mut handle, inode, from, end);
            inode.note_data_change(&handle);
            fs.settle(handle, progress)
        })?;
        match progress {
            StepProgress::Done => return Ok(()),
            StepProgress::More { next } => end = next,
        }
    }
}

/// Clears the parts of the range that don't fill a block. Their blocks may be shared with bytes
/// outside the range, so they stay.
fn zero_edges(fs: &ContentStore, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let block_size = fs.volume.block_size() as u64;
    let first = block_of(fs, offset);
    let start_of_last = end / block_size * block_size;
    let edge = |from: u64, to: u64| -> Result<()> {
        let block = block_of(fs, from);
        let mapped = mapping::map(fs, inode, block, 1)?;
        if mapped.unwritten || from >= to {
            return Ok(());
        }
        zero_run(fs, &mapped, from - offset_of(fs, block), to - from)
    };
    if !offset.is_multiple_of(block_size) {
        edge(offset, end.min(offset_of(fs, first) + block_size))?;
        if start_of_last <= offset {
            return Ok(());
        }
    }
    if end.is_multiple_of(block_size) { Ok(()) } else { edge(start_of_last.max(offset), end) }
}

fn stamp(fs: &ContentStore, context: &RequestContext, inode: &Inode) -> Result<()> {
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let done = record(fs, context, &mut handle, inode, None);
    fs.settle(handle, done)
}
