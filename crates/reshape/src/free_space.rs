//! Gives the free space of an image back to the device, or zeroes it.
//!
//! # Crash
//! Only blocks that the bitmaps call free are written, and the bitmaps don't change. The caller has checked
//! the image, so the bitmaps are right, and has claimed it, if it has multi-mount protection. Before the first write, the superblock notes that something was written.

use crate::error::Result;
use crate::image::{Image, ReshapeDevice};
use drystone_ondisk::bitmap;
use std::ops::Range;

/// What happens to free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpaceAction {
    /// Its blocks are discarded: holes in a file, unmapped on a device that can do that.
    Discard,
    /// It reads as zeros afterwards.
    Zero,
}

/// Free space that was dealt with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedSpace {
    /// Bytes.
    pub bytes: u64,
    /// Pieces in which they lie.
    pub runs: u64,
}

/// Discards or zeroes the free blocks of the image on `device`. `now` is in seconds since 1970.
///
/// # Errors
/// A refusal, or an error of the device. The image's files are as they were.
pub fn clear_free_space(
    device: &dyn ReshapeDevice,
    action: FreeSpaceAction,
    now: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FreedSpace> {
    let mut image = Image::open_claimed(device)?;
    image.note_write(now)?;
    let mut freed = FreedSpace::default();
    let groups = image.layout.groups();
    let total = u64::from(image.layout.group_count());
    // A run may go on in the next group.
    let mut run: Range<u64> = 0..0;
    for group in groups {
        let layout = image.layout;
        let first = layout.group_first_block(group).get();
        let count = layout.group_cluster_count(group) as usize;
        let ratio = layout.log_cluster_ratio();
        let holes: Vec<_> = bitmap::zero_runs(image.block_bitmap(group)?, 0..count).collect();
        // Each is needed once.
        image.block_bitmaps.clear();
        for hole in holes {
            let block = |bit: usize| first + ((bit as u64) << ratio);
            let (start, end) = (block(hole.start), block(hole.end).min(layout.blocks_count()));
            if run.end != start {
                clear(&image, &run, action, &mut freed)?;
                run.start = start;
            }
            run.end = end;
        }
        progress(u64::from(group.get()) + 1, total);
    }
    clear(&image, &run, action, &mut freed)?;
    device.flush()?;
    Ok(freed)
}

fn clear(
    image: &Image<'_>,
    run: &Range<u64>,
    action: FreeSpaceAction,
    freed: &mut FreedSpace,
) -> Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    let shift = image.layout.log_block_size();
    let (start, length) = (run.start << shift, (run.end - run.start) << shift);
    match action {
        FreeSpaceAction::Discard => image.device.discard(start, length)?,
        FreeSpaceAction::Zero => image.device.zero_range(start, length)?,
    }
    freed.bytes += length;
    freed.runs += 1;
    Ok(())
}
