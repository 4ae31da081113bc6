//! Reads files.

use super::{block_of, is_inline};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Inode, inline};
use crate::mapping;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::inode::InodeFlags;
use drystone_vfs::{Errno, FileType};

/// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
pub(crate) fn read(
    fs: &ContentStore,
    inode: &Inode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    match inode.file_type() {
        FileType::Regular => {}
        FileType::Directory => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if inode.flags().contains(InodeFlags::ENCRYPT) {
        return Err(Errno::ENOKEY.into());
    }
    let _content = inode.content().read();
    let size = inode.size_bytes();
    let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let buffer = &mut buffer[..length];
    if buffer.is_empty() {
        return Ok(0);
    }
    if is_inline(inode) {
        let content = inline::content(&inode.fields())?;
        buffer.copy_from_slice(&content[offset as usize..offset as usize + length]);
        return Ok(length);
    }
    read_mapped(fs, inode, offset, buffer)?;
    Ok(length)
}

/// Fills `buffer` from mapped blocks; holes and unwritten blocks read as zeros. The content lock is
/// held.
pub(super) fn read_mapped(
    fs: &ContentStore,
    inode: &Inode,
    mut offset: u64,
    mut buffer: &mut [u8],
) -> Result<()> {
    let block_size = fs.volume.block_size() as u64;
    while !buffer.is_empty() {
        let within = offset % block_size;
        let blocks = (within + buffer.len() as u64).div_ceil(block_size);
        let blocks_max = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mapped = mapping::map(fs, inode, block_of(fs, offset), blocks_max)?;
        let bytes = u64::from(mapped.length) * block_size - within;
        let length = bytes.min(buffer.len() as u64) as usize;
        let (piece, rest) = buffer.split_at_mut(length);
        match mapped.physical {
            Some(physical) if !mapped.unwritten => {
                fs.volume.device.read_at(physical.get() * block_size + within, piece)?;
            }
            None if mapped.delayed => {
                let first = block_of(fs, offset).get();
                inode.delayed.read(first, within as usize, piece, block_size as usize);
            }
            _ => piece.fill(0),
        }
        offset += length as u64;
        buffer = rest;
    }
    Ok(())
}
