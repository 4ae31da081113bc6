//! The whole mapping of an internal file: the journal, a quota file, the orphan file.

use super::next_extent;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::error::{InodeProblem, MappedBlockProblem};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{Corrupt, LogicalBlock};

/// The extents of the file's first `blocks` blocks, which its size tells; at most `blocks_max`.
///
/// # Errors
/// If there are more blocks; `hole` if one isn't mapped or is unwritten; if one is mapped twice, so
/// that a write to one part of the file would destroy another.
pub(crate) fn whole(
    fs: &ContentStore,
    inode: &Inode,
    blocks: u64,
    blocks_max: u64,
    hole: impl Fn(LogicalBlock) -> Corrupt,
) -> Result<Vec<Extent>> {
    if blocks > blocks_max.min(fs.volume.layout().blocks_count()) {
        let problem = InodeProblem::Size { bytes: inode.fields().disk.size_bytes };
        return Err(Corrupt::Inode { inode: inode.number, problem }.into());
    }
    let mut extents = Vec::new();
    let mut next = LogicalBlock::FIRST;
    while next.as_u64() < blocks {
        let extent = next_extent(fs, inode, next)?
            .filter(|extent| extent.logical == next && !extent.unwritten)
            .ok_or_else(|| hole(next))?;
        next = extent.logical.checked_add(extent.length).ok_or_else(|| hole(next))?;
        extents.push(extent);
    }
    check_apart(inode, &extents)?;
    Ok(extents)
}

/// Checks that no block is in two extents.
fn check_apart(inode: &Inode, extents: &[Extent]) -> Result<()> {
    let mut sorted: Vec<&Extent> = extents.iter().collect();
    sorted.sort_unstable_by_key(|extent| extent.physical);
    for pair in sorted.windows(2) {
        let block = pair[1].physical;
        if block.get() - pair[0].physical.get() < u64::from(pair[0].length) {
            return Err(Corrupt::MappedBlock {
                inode: inode.number,
                block,
                problem: MappedBlockProblem::Twice,
            }
            .into());
        }
    }
    Ok(())
}
