//! `fallocate`: allocates a range, punches a hole, zeroes a range, collapses or inserts one.
//!
//! # Crash
//! A long range takes several transactions, and each leaves a valid file. After a crash a part of the
//! range is changed and the rest is as before. A part of what is after the range may have moved, with the
//! old size after a collapse and the new one after an insertion, so that nothing is cut off. Before any
//! block moves, all nodes are read. If a step fails nevertheless, the journal stops.

use super::blocks::zero as zero_run;
use super::record::{grow, record};
use super::size::finish_cut_below;
use super::{block_of, check_changeable, flush, inline, is_inline, offset_of, size_max, tail};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::{self, StepHandles, StepProgress, WantedBlocks};
use crate::{credits, xattr};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::extent::{Extent, UNWRITTEN_BLOCKS_MAX};
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FallocateMode, RequestContext};

/// Changes the blocks of a range of a file.
pub(crate) fn fallocate(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    mode: FallocateMode,
    offset: u64,
    length: u64,
) -> Result<()> {
    if length == 0 {
        return Err(Errno::EINVAL.into());
    }
    // Linux looks at these before it looks at the type.
    let flags = inode.flags();
    let appends_only =
        flags.contains(InodeFlags::APPEND) && !matches!(mode, FallocateMode::Allocate { .. });
    if appends_only || flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    check_changeable(fs, inode)?;
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    xattr::drop_capability(fs, inode)?;
    let _content = inode.content().write();
    let flags = inode.flags();
    if end > size_max(fs, inode) {
        return Err(Errno::EFBIG.into());
    }
    if !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        && mode != FallocateMode::PunchHole
    {
        // Block maps have no unwritten blocks.
        return Err(Errno::EOPNOTSUPP.into());
    }
    if is_inline(inode) {
        inline::move_out(fs, inode)?;
    }
    // Delayed data stays delayed only if the operation doesn't touch it.
    let is_beside = matches!(mode, FallocateMode::Allocate { .. })
        && !inode
            .delayed
            .is_any_in(block_of(fs, offset).get(), end.div_ceil(fs.volume.block_size() as u64));
    if !is_beside {
        flush(fs, inode)?;
    }
    match mode {
        FallocateMode::Allocate { keep_size } => {
            give_space(fs, context, inode, offset, end, keep_size)
        }
        FallocateMode::PunchHole => punch(fs, context, inode, offset, end),
        FallocateMode::ZeroRange { keep_size } => zero(fs, context, inode, offset, end, keep_size),
        FallocateMode::CollapseRange => collapse(fs, context, inode, offset, length),
        FallocateMode::InsertRange => insert(fs, context, inode, offset, length),
    }
}

/// Allocates every block of a range, and grows the file unless `keep_size`. The content lock is
/// held exclusively.
fn give_space(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    finish_cut_below(fs, inode, end)?;
    let size = inode.size_bytes();
    let grows = !keep_size && end > size;
    if grows {
        tail::clear(fs, inode, end)?;
    }
    let block_size = fs.volume.block_size() as u64;
    let mut next = block_of(fs, offset);
    let blocks_end = end.div_ceil(block_size);
    let mut is_recorded = false;
    while next.as_u64() < blocks_end {
        // A file has fewer than 2^32 blocks.
        let left = (blocks_end - next.as_u64()).min(u64::from(UNWRITTEN_BLOCKS_MAX)) as u32;
        let (mapped, hole) = mapping::map_for_allocation(fs, inode, next, left)?;
        is_recorded |= mapped.physical.is_none();
        let given = match mapped.physical {
            Some(_) => mapped.length,
            None => with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::WRITE)?;
                let given = inode.batch(fs, &mut handle, |handle| {
                    let wanted = WantedBlocks { logical: next, length: mapped.length, hole };
                    let given = fill(fs, context, handle, inode, &wanted)?;
                    let reached = (next.as_u64() + u64::from(given)) * block_size;
                    record(fs, context, handle, inode, grows.then_some(reached.min(end)))?;
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
    let is_short = grows && inode.size_bytes() < end;
    if is_recorded && !is_short {
        return Ok(());
    }
    // Even if all blocks were allocated before: the call counts as a change, and clears set-id
    // bits.
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let done = record(fs, context, &mut handle, inode, is_short.then_some(end));
    fs.settle(handle, done)
}

/// Fills a hole, or its beginning, with unwritten blocks. Returns their number.
fn fill(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
    wanted: &WantedBlocks,
) -> Result<u32> {
    let run = mapping::allocate_in(fs, handle, context, inode, wanted)?;
    let (logical, length) = (wanted.logical, run.length.min(wanted.length));
    let extent = Extent { logical, physical: run.physical, length, unwritten: true };
    if let Err(error) = mapping::insert(fs, handle, inode, extent) {
        mapping::release_unmapped(fs, handle, inode, &run)?;
        return Err(error);
    }
    Ok(length)
}

/// Makes `[offset, end)` a hole. The size stays.
fn punch(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
) -> Result<()> {
    let size = inode.size_bytes();
    let block_size = fs.volume.block_size() as u64;
    // As on Linux, a hole that reaches past the end of the file frees the whole last block, and
    // keeps the blocks that are allocated after it.
    let end = if end > size { size.next_multiple_of(block_size) } else { end };
    let end = end.min(mapping::END.saturating_mul(block_size));
    if offset >= end {
        return stamp(fs, context, inode);
    }
    let first = offset.div_ceil(block_size);
    let last = end / block_size;
    let has_edges = !offset.is_multiple_of(block_size) || !end.is_multiple_of(block_size);
    if first < last && has_edges && inode.flags().contains(InodeFlags::EXTENTS) {
        // Only this may find no room, so it comes before bytes are zeroed.
        let (first, last) = (LogicalBlock::new(first as u32), LogicalBlock::new(last as u32));
        mapping::split_around(fs, inode, first, last)?;
    }
    zero_edges(fs, inode, offset, end)?;
    if first < last {
        remove(fs, inode, LogicalBlock::new(first as u32), last)?;
    }
    stamp(fs, context, inode)
}

/// Makes `[offset, end)` read as zeros, with all blocks allocated.
fn zero(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    let block_size = fs.volume.block_size() as u64;
    give_space(fs, context, inode, offset, end, keep_size)?;
    let mut next = offset.div_ceil(block_size);
    let last = end / block_size;
    while next < last {
        let left = u32::try_from(last - next).unwrap_or(u32::MAX);
        let first = LogicalBlock::new(next as u32);
        let mapped = mapping::map(fs, inode, first, left)?;
        let mut length = mapped.length.min(UNWRITTEN_BLOCKS_MAX);
        if mapped.physical.is_some() && !mapped.unwritten {
            length = with_space_retry(&fs.volume, || {
                let mut handle = fs.volume.start(credits::WRITE)?;
                let converted = mapping::convert(fs, &mut handle, inode, first, length, true);
                fs.settle(handle, converted)
            })?;
        }
        next += u64::from(length);
    }
    // After everything that may find no room.
    zero_edges(fs, inode, offset, end)?;
    stamp(fs, context, inode)
}

/// Removes `[offset, offset + length)`; the bytes after it move down.
fn collapse(
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
    let _steps = fs.volume.freeze.begin_steps();
    mapping::read_nodes(fs, inode, first)?;
    remove(fs, inode, first, behind.as_u64())?;
    let delta = -(i64::from(behind.get()) - i64::from(first.get()));
    let moved = mapping::shift(fs, inode, behind, delta).and_then(|()| {
        let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
        let done = inode
            .update(fs, &mut handle, |fields| {
                fields.disk.size_bytes = size - length;
                Ok(())
            })
            .and_then(|()| record(fs, context, &mut handle, inode, None));
        fs.settle(handle, done)
    });
    fs.volume.settle_steps(moved)
}

/// Inserts a hole of `length` bytes at `offset`; the bytes after it move up.
fn insert(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<()> {
    check_aligned(fs, offset, length)?;
    let size = inode.size_bytes();
    let size_max = size_max(fs, inode);
    if length > size_max.saturating_sub(size) {
        return Err(Errno::EFBIG.into());
    }
    if offset >= size {
        return Err(Errno::EINVAL.into());
    }
    finish_cut_below(fs, inode, size + length)?;
    let _steps = fs.volume.freeze.begin_steps();
    let (first, delta) = (block_of(fs, offset), block_of(fs, length).get());
    // Space past the end moves, too.
    let blocks_end = mapping::shifted_end(fs, inode, first, delta)?;
    if blocks_end.is_some_and(|end| end > size_max / fs.volume.block_size() as u64) {
        return Err(Errno::EFBIG.into());
    }
    if inode.is_tail_pending() {
        // The tail moves with its block, so all of it is cleared. The truncation has to be durable
        // first.
        fs.volume.commit_up_to(inode.last_transaction())?;
    }
    tail::clear(fs, inode, u64::MAX)?;
    mapping::read_nodes(fs, inode, first)?;
    mapping::split_at(fs, inode, first)?;
    // After everything that may find no room or a bad node, and before any block moves past the old end.
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let grown = grow(fs, &mut handle, inode, size + length)
        .and_then(|()| record(fs, context, &mut handle, inode, None));
    fs.settle(handle, grown)?;
    fs.volume.settle_steps(mapping::shift(fs, inode, first, i64::from(delta)))
}

/// Checks that a range that moves other blocks consists of whole clusters.
fn check_aligned(fs: &ContentStore, offset: u64, length: u64) -> Result<()> {
    let unit = fs.volume.block_size() as u64 * u64::from(fs.volume.layout().blocks_per_cluster());
    if !offset.is_multiple_of(unit) || !length.is_multiple_of(unit) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// Frees the blocks from `from` to `end`.
fn remove(fs: &ContentStore, inode: &Arc<Inode>, from: LogicalBlock, end: u64) -> Result<()> {
    let mut end = end;
    let mut steps = StepHandles::new(&fs.volume);
    loop {
        let progress = with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits::CUT)?;
            let progress = mapping::remove(fs, &mut handle, inode, from, end);
            inode.note_data_change(&handle);
            steps.settle(handle, progress)
        })?;
        match progress {
            StepProgress::Done => return Ok(()),
            StepProgress::More { next } => end = next,
        }
    }
}

/// Zeroes the parts of the range that don't fill a block. These blocks stay, because they may hold
/// bytes outside the range. Nothing is zeroed past the end of the file: after a truncation that
/// isn't durable yet, a crash may bring back the bytes there.
fn zero_edges(fs: &ContentStore, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let block_size = fs.volume.block_size() as u64;
    let first = block_of(fs, offset);
    let start_of_last = end / block_size * block_size;
    let size = inode.size_bytes();
    let edge = |from: u64, to: u64| -> Result<()> {
        let to = to.min(size);
        if from >= to {
            return Ok(());
        }
        let block = block_of(fs, from);
        let mapped = mapping::map(fs, inode, block, 1)?;
        if mapped.unwritten {
            return Ok(());
        }
        zero_run(fs, &mapped, from - offset_of(fs, block), to - from)?;
        inode.note_overwrite(fs.volume.device.mark());
        Ok(())
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
