//! Where a file's bytes are on the device (`FIEMAP`), and where its data and holes are
//! (`SEEK_DATA`, `SEEK_HOLE`).

use super::{block_of, is_inline, offset_of};
use crate::content::ContentStore;
use crate::directory_index_lock::DirectoryIndexLock;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::{BLOCK_AREA_OFFSET, InodeFlags};
use drystone_ext4_format::{Corrupt, LogicalBlock};
use drystone_vfs::{Errno, ExtentFlags, FileExtent, FileType, SeekFrom};

/// The extents of a range of a file, at most `extents_max` of them.
pub(crate) fn extents(
    fs: &ContentStore,
    inode: &Inode,
    offset: u64,
    length: u64,
    extents_max: usize,
) -> Result<Vec<FileExtent>> {
    let _content = inode.content().read();
    let _mapping = inode.index_lock().map(DirectoryIndexLock::read_mapping);
    let block_size = fs.volume.block_size() as u64;
    if length == 0 || offset / block_size >= mapping::END {
        return Ok(Vec::new());
    }
    if is_inline(inode) {
        return Ok(vec![inline_extent(fs, inode)?]);
    }
    if !inode.has_mapping() {
        return Ok(Vec::new());
    }
    let end = offset.saturating_add(length);
    let mut found = Vec::new();
    let mut next = Some(block_of(fs, offset));
    while let Some(from) = next {
        let Some(run) = run_from(fs, inode, from)? else { break };
        let logical = offset_of(fs, run.first);
        if logical >= end || found.len() == extents_max {
            return Ok(found);
        }
        found.push(FileExtent {
            logical,
            physical: run.physical * block_size,
            length: u64::from(run.length) * block_size,
            flags: run.flags,
        });
        next = run.first.checked_add(run.length);
    }
    if let Some(last) = found.last_mut() {
        last.flags |= ExtentFlags::LAST;
    }
    Ok(found)
}

/// The extent of inline data.
fn inline_extent(fs: &ContentStore, inode: &Inode) -> Result<FileExtent> {
    let (block, within) = fs.allocator.inodes.table_block(inode.number)?;
    Ok(FileExtent {
        logical: 0,
        physical: block.get() * fs.volume.block_size() as u64 + (within + BLOCK_AREA_OFFSET) as u64,
        length: inode.size_bytes(),
        flags: ExtentFlags::INLINE | ExtentFlags::NOT_ALIGNED | ExtentFlags::LAST,
    })
}

/// Neighbouring blocks of a file that lie together on the device, or are all delayed.
struct ReportedRun {
    first: LogicalBlock,
    length: u32,
    /// First block of the device; 0 for delayed data.
    physical: u64,
    flags: ExtentFlags,
}

/// The first run at or after `from`.
fn run_from(fs: &ContentStore, inode: &Inode, from: LogicalBlock) -> Result<Option<ReportedRun>> {
    let mapped = mapping::next_extent(fs, inode, from)?;
    let mapped_from = mapped.map_or(u64::MAX, |extent| extent.logical.as_u64());
    let waiting = inode.delayed.is_any().then(|| inode.delayed.run_from(from.get())).flatten();
    if let Some((first, length)) = waiting
        && u64::from(first) < mapped_from
    {
        return Ok(Some(ReportedRun {
            first: LogicalBlock::new(first),
            length,
            physical: 0,
            flags: ExtentFlags::DELAYED | ExtentFlags::UNKNOWN,
        }));
    }
    Ok(mapped.map(|extent| {
        let mut flags = ExtentFlags::empty();
        flags.set(ExtentFlags::UNWRITTEN, extent.unwritten);
        let shares = fs.volume.features.read_only_compat.contains(ReadOnlyCompat::SHARED_BLOCKS);
        flags.set(ExtentFlags::SHARED, shares);
        // A block map has no extents: the run was merged from single blocks.
        flags.set(ExtentFlags::MERGED, !inode.flags().contains(InodeFlags::EXTENTS));
        ReportedRun {
            first: extent.logical,
            length: extent.length,
            physical: extent.physical.get(),
            flags,
        }
    }))
}

/// The next data or hole at or after an offset of a regular file. Unwritten blocks count as a hole.
pub(crate) fn seek(fs: &ContentStore, inode: &Inode, from: SeekFrom) -> Result<u64> {
    if inode.file_type() != FileType::Regular {
        return Err(Errno::EINVAL.into());
    }
    let _content = inode.content().read();
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
    // In a sound file each mapped run has at least one block of its own, and holes lie between
    // them.
    let mut runs_left = fs.volume.layout().blocks_count().saturating_mul(2).saturating_add(2);
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
