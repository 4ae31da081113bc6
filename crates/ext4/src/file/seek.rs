//! Where data is: `SEEK_DATA`, `SEEK_HOLE` and `FIEMAP`.

use super::{block_of, is_inline, offset_of};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_ext4_format::inode::{InodeFlags, InodeProblem};
use drystone_ext4_format::{Corrupt, LogicalBlock};
use drystone_vfs::{Errno, Extent, ExtentFlags, FileType, SeekFrom};

/// The next data or hole at or after an offset of a regular file. Unwritten blocks count as a hole.
pub(crate) fn seek(fs: &Engine, inode: &Inode, from: SeekFrom) -> Result<u64> {
    if inode.file_type() != FileType::Regular {
        return Err(Errno::EINVAL.into());
    }
    let _content = inode.content.read();
    let size = inode.size_bytes();
    let (SeekFrom::Data(offset) | SeekFrom::Hole(offset)) = from;
    if offset >= size {
        return Err(Errno::ENXIO.into());
    }
    if is_inline(inode) {
        return Ok(match from {
            SeekFrom::Data(offset) => offset,
            SeekFrom::Hole(_) => size,
        });
    }
    let wants_data = matches!(from, SeekFrom::Data(_));
    let mut here = offset;
    // Of the runs of a sound file those that are mapped take a block each; holes lie between them.
    let mut runs_left = fs.volume.layout.blocks_count().saturating_mul(2).saturating_add(2);
    while here < size {
        runs_left = runs_left
            .checked_sub(1)
            .ok_or(Corrupt::Inode { inode: inode.number, problem: InodeProblem::MappedTwice })?;
        let mapped = mapping::map(fs, inode, block_of(fs, here), u32::MAX)?;
        let is_data = mapped.delayed || mapped.physical.is_some() && !mapped.unwritten;
        if is_data == wants_data {
            return Ok(here);
        }
        let next = u64::from(block_of(fs, here).get()) + u64::from(mapped.length);
        here = next * fs.volume.block_size() as u64;
    }
    if wants_data { Err(Errno::ENXIO.into()) } else { Ok(size) }
}

/// The places of a range's bytes on the device, at most `extents_max` of them.
pub(crate) fn extents(
    fs: &Engine,
    inode: &Inode,
    offset: u64,
    length: u64,
    extents_max: usize,
) -> Result<Vec<Extent>> {
    let _content = inode.content.read();
    let mut found = Vec::new();
    let block_size = fs.volume.block_size() as u64;
    let end = offset.saturating_add(length);
    if length == 0 || offset / block_size >= mapping::END {
        return Ok(found);
    }
    if is_inline(inode) {
        let (block, within) = fs.allocator.inode_table_block(inode.number)?;
        found.push(Extent {
            logical: 0,
            physical: block.get() * block_size + within as u64,
            length: inode.size_bytes(),
            flags: ExtentFlags::INLINE | ExtentFlags::NOT_ALIGNED | ExtentFlags::LAST,
        });
        return Ok(found);
    }
    if !crate::inode::has_mapping(inode) {
        return Ok(found);
    }
    let merged = if inode.flags().contains(InodeFlags::EXTENTS) {
        ExtentFlags::empty()
    } else {
        ExtentFlags::MERGED
    };
    let mut next = block_of(fs, offset);
    loop {
        let extent = mapping::next_extent(fs, inode, next)?;
        let mapped_from = extent.map_or(u64::MAX, |extent| extent.logical.as_u64());
        let waiting =
            inode.buffered.is_any().then(|| inode.buffered.run_from(next.get())).flatten();
        if let Some((first, length)) = waiting.filter(|(first, _)| u64::from(*first) < mapped_from)
        {
            let first = LogicalBlock::new(first);
            let logical = offset_of(fs, first);
            if logical >= end || found.len() == extents_max {
                return Ok(found);
            }
            found.push(Extent {
                logical,
                physical: 0,
                length: u64::from(length) * block_size,
                flags: ExtentFlags::DELAYED | ExtentFlags::UNKNOWN,
            });
            match first.checked_add(length) {
                Some(after) => next = after,
                None => break,
            }
            continue;
        }
        let Some(extent) = extent else { break };
        let logical = offset_of(fs, extent.logical);
        if logical >= end || found.len() == extents_max {
            return Ok(found);
        }
        let unwritten =
            if extent.unwritten { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() };
        found.push(Extent {
            logical,
            physical: extent.physical.get() * block_size,
            length: u64::from(extent.length) * block_size,
            flags: merged | unwritten,
        });
        match extent.logical.checked_add(extent.length) {
            Some(after) => next = after,
            None => break,
        }
    }
    if let Some(last) = found.last_mut() {
        last.flags |= ExtentFlags::LAST;
    }
    Ok(found)
}
