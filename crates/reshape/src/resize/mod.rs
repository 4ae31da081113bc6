//! Grows and shrinks an image.
//!
//! `geometry` decides the layout of the new size; `grow` adds groups; `shrink` moves what is
//! beyond the new end, as `evacuation` plans it; `minimum` finds the smallest size. `growth` plans for an image that
//! is open.

mod evacuation;
mod geometry;
mod grow;
mod growth;
mod minimum;
mod reserve;
mod shrink;

pub use growth::{Growth, plan_growth, usable_blocks};
pub(crate) use reserve::{free_old_bases, store_reserve};

use crate::error::{Refusal, ReshapeError, Result};
use crate::image::{Image, ReshapeDevice};
use crate::progress::ReshapeProgress;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::layout::Geometry;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use evacuation::Evacuation;

/// The size that an image is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// So many bytes.
    Exactly(u64),
    /// So many bytes more.
    More(u64),
    /// So many bytes less.
    Less(u64),
    /// As few as hold all files.
    Minimum,
}

/// What an image has become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks before.
    pub blocks_before: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Groups now.
    pub groups: u32,
    /// Inodes now.
    pub inodes: u32,
    /// Blocks that were moved.
    pub blocks_moved: u64,
    /// Inodes that got another number.
    pub inodes_moved: u64,
}

/// The size that an image on a device will have, in bytes.
///
/// # Errors
/// The device holds no image, or fails.
pub fn new_size_bytes(device: &dyn BlockDevice, size: NewSize) -> Result<u64> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let superblock = Superblock::check(&bytes)?;
    let layout = superblock.layout();
    let before = layout.blocks_count() << layout.log_block_size();
    let wanted = match size {
        NewSize::Exactly(bytes) => bytes,
        NewSize::More(bytes) => before.saturating_add(bytes),
        NewSize::Less(bytes) => before.saturating_sub(bytes),
        // It is known when the image is resized, and isn't larger.
        NewSize::Minimum => before,
    };
    Ok(wanted >> layout.log_block_size() << layout.log_block_size())
}

/// The geometry of an image of this size, and how it is evacuated if it is smaller.
fn planned(image: &mut Image<'_>, size_bytes: u64) -> Result<(Geometry, Option<Evacuation>)> {
    let plan = (|| {
        let geometry = geometry::resized(&image.superblock, size_bytes)?;
        let is_smaller = geometry.blocks_count < image.layout.blocks_count();
        let evacuation = is_smaller.then(|| Evacuation::plan(image, &geometry)).transpose()?;
        Ok((geometry, evacuation))
    })();
    match plan {
        Err(ReshapeError::Refused(Refusal::NoSpace { .. })) => {
            let (smallest, _) = minimum::minimum(image)?;
            let smallest_bytes = smallest.blocks_count << image.layout.log_block_size();
            Err(Refusal::BelowMinimum { smallest_bytes }.into())
        }
        plan => plan,
    }
}

/// Gives the image on `device` as much of the size as it can use. `now` is in seconds since 1970.
///
/// # Errors
/// A refusal, or an error of the device. The device has to be rolled back.
pub fn resize(
    device: &dyn ReshapeDevice,
    size: NewSize,
    now: u64,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Resized> {
    let mut image = Image::open(device)?;
    let before = image.layout.blocks_count();
    image.superblock.set_write_time_seconds(now);
    let (geometry, evacuation) = match size {
        NewSize::Minimum => minimum::minimum(&mut image)?,
        _ => planned(&mut image, new_size_bytes(device, size)?)?,
    };
    if geometry.blocks_count > device.size_bytes() >> image.layout.log_block_size() {
        return Err(Refusal::Truncated { blocks: geometry.blocks_count }.into());
    }
    let mut resized = Resized { blocks_before: before, ..Resized::default() };
    match evacuation {
        Some(evacuation) => {
            image.note_write(now)?;
            resized.blocks_moved = evacuation.moves.blocks();
            resized.inodes_moved = shrink::shrink(&mut image, &geometry, evacuation, progress)?;
        }
        None if geometry.blocks_count > before => grow::grow(&mut image, &geometry, progress)?,
        None => {}
    }
    let layout = &image.layout;
    resized.block_size = layout.block_size() as u32;
    resized.blocks = layout.blocks_count();
    resized.groups = layout.group_count();
    resized.inodes = layout.inodes_count();
    Ok(resized)
}
