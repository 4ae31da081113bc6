//! Giving a range of a file space, unwritten.

use super::record::record;
use super::{block_of, tail};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping::{self, WantedBlocks};
use drystone_ext4_format::extent::{Extent, UNWRITTEN_BLOCKS_MAX};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::RequestContext;

/// Gives every block of a range space; then grows the file, unless `keep_size`. The content lock is
/// held exclusively.
pub(super) fn give_space(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    let size = inode.size_bytes();
    let grows = !keep_size && end > size;
    if grows {
        tail::clear(fs, inode)?;
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
    // Also where all the space was there: it counts as a change, and takes set-id bits away.
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let done = record(fs, context, &mut handle, inode, is_short.then_some(end));
    fs.settle(handle, done)
}

/// Fills a hole, or its beginning, with unwritten blocks. Returns how many.
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
