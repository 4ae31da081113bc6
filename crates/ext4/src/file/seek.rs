//! Where data is and where holes are: `SEEK_DATA`, `SEEK_HOLE`.

use super::{block_of, is_inline};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::mapping;
use drystone_ext4_format::Corrupt;
use drystone_ext4_format::inode::InodeProblem;
use drystone_vfs::{Errno, FileType, SeekFrom};

/// The next data or hole at or after an offset of a regular file. Unwritten blocks count as a hole.
pub(crate) fn seek(fs: &ContentStore, inode: &Inode, from: SeekFrom) -> Result<u64> {
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
