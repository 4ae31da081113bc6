//! Truncating and extending files.

use super::record::grow;
use super::{inline, is_inline, size_max, tail, touch};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::{self, StepHandles, StepProgress};
use drystone_ext4_format::LogicalBlock;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext};

/// Sets the size of a file. The content lock is held exclusively.
pub(crate) fn set_size(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    size: u64,
) -> Result<()> {
    super::check_changeable(fs, inode)?;
    if size == 0 {
        inode.note_written();
        inode.delayed.note_replacement();
    } else {
        super::flush(fs, inode)?;
    }
    if size > size_max(fs, inode) {
        return Err(Errno::EFBIG.into());
    }
    let old = inode.size_bytes();
    if is_inline(inode) {
        if inline::set_size(fs, context, inode, size)? {
            return Ok(());
        }
        inline::move_out(fs, inode)?;
    }
    // Even if the size stays: as on Linux, blocks allocated past the end are freed.
    if size <= old { cut(fs, context, inode, size) } else { extend(fs, context, inode, size) }
}

fn extend(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    size: u64,
) -> Result<()> {
    finish_cut_below(fs, inode, size)?;
    if size > inode.size_bytes() {
        tail::clear(fs, inode, size)?;
    }
    with_space_retry(&fs.volume, || {
        let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
        let extended = grow(fs, &mut handle, inode, size).and_then(|()| {
            inode.update(fs, &mut handle, |fields| {
                touch(fs, context, fields);
                Ok(())
            })
        });
        fs.settle(handle, extended)
    })
}

fn cut(fs: &ContentStore, context: &RequestContext, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let mut handle = fs.volume.start(credits::CUT)?;
    let begun = fs.orphans.add_cut(fs, &mut handle, inode).and_then(|()| {
        if size == 0 {
            // Not before there is a handle: a truncation that can't begin changes nothing.
            super::discard(fs, inode);
        }
        inode.update(fs, &mut handle, |fields| {
            fields.disk.size_bytes = size;
            touch(fs, context, fields);
            Ok(())
        })
    });
    let done = match begun {
        Ok(()) => free_behind(fs, handle, inode),
        Err(error) => fs.settle(handle, Err(error)),
    };
    fs.orphans.end_cut(inode);
    done?;
    tail::mark(fs, inode);
    Ok(())
}

/// Frees the blocks past the end, and removes the inode from the orphans. An inode without names
/// stays an orphan until it is deleted. Begins in `handle`, and starts as many more handles as
/// needed; a freeze may come in between. If it fails, the inode notes that.
fn free_behind<'a>(fs: &'a ContentStore, handle: Handle<'a>, inode: &Arc<Inode>) -> Result<()> {
    let freed = free_in_steps(fs, handle, inode);
    inode.set_cut_pending(freed.is_err());
    freed
}

fn free_in_steps<'a>(
    fs: &'a ContentStore,
    mut handle: Handle<'a>,
    inode: &Arc<Inode>,
) -> Result<()> {
    let size = inode.size_bytes();
    // Fits: the size is within the limit.
    let from = LogicalBlock::new(size.div_ceil(fs.volume.block_size() as u64) as u32);
    let mut end = mapping::END;
    let mut steps = StepHandles::new(&fs.volume);
    loop {
        let mut step = mapping::remove(fs, &mut handle, inode, from, end);
        if let Ok(StepProgress::Done) = step {
            inode.note_data_change(&handle);
            if inode.links_count() > 0 {
                step = fs.orphans.remove(fs, &mut handle, inode).map(|()| StepProgress::Done);
            }
        }
        match steps.settle(handle, step)? {
            StepProgress::Done => return Ok(()),
            StepProgress::More { next } => end = next,
        }
        handle = fs.volume.start(credits::CUT)?;
    }
}

/// Finishes a truncation that a crash interrupted, or that failed.
pub(crate) fn finish_cut(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    let _content = inode.content().write();
    finish_cut_locked(fs, inode)
}

/// If a truncation has failed, finishes it before the file grows to `end`: the old blocks past its end
/// would become visible. The content lock is held exclusively.
#[inline]
pub(super) fn finish_cut_below(fs: &ContentStore, inode: &Arc<Inode>, end: u64) -> Result<()> {
    if inode.is_cut_pending() && end > inode.size_bytes() {
        finish_cut_locked(fs, inode)
    } else {
        Ok(())
    }
}

fn finish_cut_locked(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    let mut handle = fs.volume.start(credits::CUT)?;
    if inode.has_mapping() {
        free_behind(fs, handle, inode)?;
    } else {
        let removed = fs.orphans.remove(fs, &mut handle, inode);
        fs.settle(handle, removed)?;
    }
    tail::mark(fs, inode);
    Ok(())
}
