//! Grows and shrinks an image.
//!
//! `geometry` decides what an image of the new size is like; `grow` adds groups.

mod geometry;
mod grow;
mod reserve;

use crate::error::{Refusal, Result};
use crate::image::{Image, ReshapeDevice};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use std::cmp::Ordering;

/// The size that an image is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// So many bytes.
    Exactly(u64),
    /// So many bytes more.
    More(u64),
    /// So many bytes less.
    Less(u64),
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
    };
    Ok(wanted >> layout.log_block_size() << layout.log_block_size())
}

/// Gives the image on `device` as much of `size_bytes` as it can use. `now` is in seconds since 1970.
///
/// # Errors
/// A refusal, or an error of the device. The device has to be rolled back.
pub fn resize(device: &dyn ReshapeDevice, size_bytes: u64, now: u64) -> Result<Resized> {
    let mut image = Image::open(device)?;
    let before = image.layout.blocks_count();
    let geometry = geometry::resized(&image.superblock, size_bytes)?;
    if geometry.blocks_count > device.size_bytes() >> image.layout.log_block_size() {
        return Err(Refusal::Truncated { blocks: geometry.blocks_count }.into());
    }
    image.superblock.set_write_time_seconds(now);
    match geometry.blocks_count.cmp(&before) {
        Ordering::Less => return Err(Refusal::Value("it can't shrink yet".into()).into()),
        Ordering::Equal => {}
        Ordering::Greater => grow::grow(&mut image, &geometry)?,
    }
    let layout = &image.layout;
    Ok(Resized {
        block_size: layout.block_size() as u32,
        blocks_before: before,
        blocks: layout.blocks_count(),
        groups: layout.group_count(),
        inodes: layout.inodes_count(),
    })
}
