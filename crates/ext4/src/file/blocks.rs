//! Writes to blocks of a file: zeros, and the first content of new blocks.

use crate::content::ContentStore;
use crate::error::{Error, Result};
use crate::extent_status::MappedRun;
use crate::inode::Inode;
use crate::mapping;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::RequestContext;
use std::io::IoSlice;

/// Zeros for the parts of new blocks that a write doesn't fill: as long as the largest block.
static ZEROS: [u8; 65536] = [0; 65536];

/// Writes `piece` into new blocks, `before` bytes from their start, and zeros around it.
///
/// # Errors
/// [`Error::Unwritten`]; then the caller must undo its changes for these blocks.
pub(super) fn write_padded(
    fs: &ContentStore,
    physical: PhysicalBlock,
    before: usize,
    piece: &[u8],
) -> Result<()> {
    let block_size = fs.volume.block_size();
    let after = (before + piece.len()).next_multiple_of(block_size) - before - piece.len();
    let place = physical.get() * block_size as u64;
    let device = &fs.volume.device;
    let written = if before == 0 && after == 0 {
        device.write_at(place, piece)
    } else {
        let slices =
            [IoSlice::new(&ZEROS[..before]), IoSlice::new(piece), IoSlice::new(&ZEROS[..after])];
        device.write_vectored_at(place, &slices)
    };
    written.map_err(Error::Unwritten)
}

/// Writes zeros over a part of a mapped, written run. Must not be called with an open handle.
pub(super) fn zero(fs: &ContentStore, mapped: &MappedRun, within: u64, length: u64) -> Result<()> {
    let Some(physical) = mapped.physical else { return Ok(()) };
    let mut place = physical.get() * fs.volume.block_size() as u64 + within;
    let mut left = length;
    fs.volume.without_handle(|| {
        while left > 0 {
            let piece = left.min(ZEROS.len() as u64);
            fs.volume.device.write_at(place, &ZEROS[..piece as usize])?;
            place += piece;
            left -= piece;
        }
        Ok(())
    })
}

/// Writes the first data of a file without blocks to new blocks, and maps these, in one handle. The
/// caller sets the size.
pub(super) fn write_blocks(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
    data: &[u8],
) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let blocks = data.len().div_ceil(fs.volume.block_size()) as u32;
    let first = LogicalBlock::FIRST;
    let run = mapping::allocate(fs, handle, context, inode, first, blocks)?;
    let written = if run.length < blocks {
        // Inline data and link targets fit one block, except in unusual images.
        Err(Error::NoSpace)
    } else {
        write_padded(fs, run.physical, 0, data)
    };
    let extent =
        Extent { logical: first, physical: run.physical, length: blocks, unwritten: false };
    let mapped = written.and_then(|()| mapping::insert(fs, handle, inode, extent));
    if let Err(error) = mapped {
        mapping::release_unmapped(fs, handle, inode, &run)?;
        return Err(error);
    }
    Ok(())
}
