//! Allocates blocks for holes of files.

use super::store::Nodes;
use super::{NodeBuffers, block_map, clusters, tree};
use crate::alloc::{BlockKind, BlockRequest, FileRequest, Reach};
use crate::content::ContentStore;
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_ext4_format::extent::{Extent, UNWRITTEN_BLOCKS_MAX};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_vfs::{Capabilities, Errno, FileType, RequestContext};

/// The data of files up to this size is allocated near their inode.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;

/// Blocks that were allocated for a file, but are not mapped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a run has to be inserted or released"]
pub(crate) struct AllocatedRun {
    /// First block of the file.
    pub logical: LogicalBlock,
    /// First block of the device.
    pub physical: PhysicalBlock,
    /// Number of blocks, at most the number requested.
    pub length: u32,
}

/// The kind of an inode's blocks. Those of all but plain regular files are revoked when they are freed: they
/// may be in the log, from here or from Linux.
pub(super) fn block_kind(inode: &Inode) -> BlockKind {
    let through_journal = inode.file_type() != FileType::Regular
        || inode.flags().intersects(InodeFlags::EA_INODE | InodeFlags::JOURNAL_DATA);
    if through_journal { BlockKind::Metadata } else { BlockKind::Data }
}

/// Whether the blocks of an inode are written in place. So are those of a file whose data Linux journals
/// (`JOURNAL_DATA`).
fn is_in_place(inode: &Inode) -> bool {
    inode.file_type() == FileType::Regular && !inode.holds_value()
}

/// Allocates blocks for the hole at `logical`, in one run of at most `length`, near the extent
/// before it. Does not map or charge them: [`insert`](super::insert) does.
///
/// # Errors
/// `NoSpace` and `CommitFirst`; `EFBIG` if no block map can hold the block; `Corrupt` if the block
/// is mapped already, as in a damaged file with blocks past its end.
pub(crate) fn allocate(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    context: &RequestContext,
    inode: &Inode,
    logical: LogicalBlock,
    length: u32,
) -> Result<AllocatedRun> {
    allocate_for(fs, handle, Some(context), inode, &WantedBlocks { logical, length, hole: None })
}

/// Like [`allocate`], for a hole that may have been looked up before.
pub(crate) fn allocate_in(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    context: &RequestContext,
    inode: &Inode,
    wanted: &WantedBlocks,
) -> Result<AllocatedRun> {
    allocate_for(fs, handle, Some(context), inode, wanted)
}

/// Like [`allocate`], for data whose blocks were [promised](crate::alloc::BlockAllocator::promise).
/// Uses the promise up.
pub(crate) fn allocate_promised(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    logical: LogicalBlock,
    length: u32,
) -> Result<AllocatedRun> {
    allocate_for(fs, handle, None, inode, &WantedBlocks { logical, length, hole: None })
}

/// Allocates blocks for which `payer` is charged, or promised ones if there is no payer.
fn allocate_for(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    payer: Option<&RequestContext>,
    inode: &Inode,
    wanted: &WantedBlocks,
) -> Result<AllocatedRun> {
    inode.note_written();
    let nodes = NodeBuffers::new(fs, inode);
    let logical = wanted.logical;
    let hole = match wanted.hole {
        Some(hole) => hole,
        None if nodes.is_tree() => tree_hole(&nodes, logical)?,
        None => map_hole(&nodes, logical)?,
    };
    let mut length = wanted.length.min(hole.length).min(UNWRITTEN_BLOCKS_MAX);
    if length == 0 {
        return Err(Corrupt::BlockMapped { inode: inode.number, block: logical }.into());
    }
    let inside = logical.get() % nodes.layout().blocks_per_cluster();
    if nodes.layout().blocks_per_cluster() > 1 {
        if let Some(run) = in_own_cluster(&nodes, logical, length)? {
            // What goes through the journal changes no block before its commit.
            if is_in_place(inode) && fs.allocator.cluster_cuts.is_waiting(inode.number) {
                return Err(Error::CommitFirst);
            }
            return Ok(run);
        }
        length = up_to_own_cluster(&nodes, logical, length)?;
    }
    let block_size = fs.volume.block_size() as u64;
    if let Some(payer) = payer {
        fs.quotas.check_space(fs, payer, inode, u64::from(length) * block_size)?;
    }
    let goal = match hole.previous {
        Some(previous) => previous.physical.get() + (logical.as_u64() - previous.logical.as_u64()),
        None => fs.allocator.data_goal(inode.number).get(),
    };
    let end_bytes = (logical.as_u64() + u64::from(length)) * block_size;
    let size_bytes = inode.size_bytes().max(end_bytes);
    let file = FileRequest {
        space: &inode.space,
        logical: logical.as_u64() - u64::from(inside),
        size_bytes,
        is_large: size_bytes > SMALL_FILE_BYTES_MAX,
    };
    let request = BlockRequest {
        goal: PhysicalBlock::new(goal.saturating_sub(u64::from(inside))),
        length: inside + length,
        kind: block_kind(inode),
        below_32_bits: !nodes.is_tree(),
        reach: payer.map_or(Reach::Common, |payer| reach(fs, payer)),
        is_promised: payer.is_none(),
        file: (block_kind(inode) == BlockKind::Data).then_some(file),
    };
    let run = fs.allocator.blocks.allocate(handle, &request)?;
    if run.length <= inside {
        // The image ends within its last cluster, before the block that is needed.
        let (start, count) = (run.start, u64::from(run.length));
        match payer {
            Some(_) => fs.allocator.blocks.free(handle, start, count, block_kind(inode))?,
            None => fs.allocator.blocks.free_promised(handle, start, count)?,
        }
        return Err(Error::NoSpace);
    }
    Ok(AllocatedRun {
        logical,
        physical: PhysicalBlock::new(run.start.get() + u64::from(inside)),
        length: length.min(run.length - inside),
    })
}

/// The rest of the cluster that a block is in, if the file owns that cluster already.
fn in_own_cluster<N: Nodes>(
    nodes: &N,
    logical: LogicalBlock,
    length: u32,
) -> Result<Option<AllocatedRun>> {
    let ratio = nodes.layout().blocks_per_cluster();
    let inside = logical.get() % ratio;
    let owned = clusters::owned(nodes, u64::from(logical.get() / ratio))?;
    Ok(owned.map(|start| AllocatedRun {
        logical,
        physical: PhysicalBlock::new(start.get() + u64::from(inside)),
        length: length.min(ratio - inside),
    }))
}

/// The length of a range, cut before a cluster that the file owns. It doesn't own the first one.
fn up_to_own_cluster<N: Nodes>(nodes: &N, logical: LogicalBlock, length: u32) -> Result<u32> {
    let ratio = u64::from(nodes.layout().blocks_per_cluster());
    let end = logical.as_u64() + u64::from(length);
    // The range is a hole, so only its last cluster can have mapped blocks, after the range.
    let last = (end - 1) / ratio;
    if last > logical.as_u64() / ratio && clusters::owned(nodes, last)?.is_some() {
        // At most the length.
        return Ok((last * ratio - logical.as_u64()) as u32);
    }
    Ok(length)
}

/// Frees a run from [`allocate`] that was not inserted.
pub(crate) fn release_unmapped(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    run: &AllocatedRun,
) -> Result<()> {
    let extent = Extent {
        logical: run.logical,
        physical: run.physical,
        length: run.length,
        unwritten: false,
    };
    free(fs, handle, inode, &[extent])?;
    Ok(())
}

/// Frees a run from [`allocate_promised`] that was not inserted. The promise holds again.
pub(crate) fn release_promised(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    run: &AllocatedRun,
) -> Result<()> {
    fs.allocator.blocks.free_promised(handle, run.physical, u64::from(run.length))
}

/// Frees the blocks of extents that are no longer mapped, given last one first, except clusters
/// that are still in use. Returns the number of blocks.
pub(super) fn free(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    extents: &[Extent],
) -> Result<u64> {
    let layout = fs.volume.layout();
    let kind = block_kind(inode);
    if layout.blocks_per_cluster() == 1 {
        for extent in extents {
            let count = u64::from(extent.length);
            fs.allocator.blocks.free(handle, extent.physical, count, kind)?;
        }
        return Ok(extents.iter().map(|extent| u64::from(extent.length)).sum());
    }
    let mut freed = 0;
    for run in clusters::unowned(&NodeBuffers::new(fs, inode), extents)? {
        let blocks = run.clusters << layout.log_cluster_ratio();
        // The last cluster of an image may be short, but is charged as a whole one.
        let there = blocks.min(layout.blocks_count().saturating_sub(run.start.get()));
        fs.allocator.blocks.free(handle, run.start, there, kind)?;
        freed += blocks;
    }
    Ok(freed)
}

/// A part of a hole for which blocks are requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedBlocks {
    /// First block of the file.
    pub logical: LogicalBlock,
    /// Number of blocks, at most.
    pub length: u32,
    /// The hole, if [`map_for_allocation`](super::map_for_allocation) has just returned it.
    pub hole: Option<Hole>,
}

/// A hole, from a block on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hole {
    /// Blocks from the given one on.
    pub(super) length: u32,
    /// An extent before it.
    pub(super) previous: Option<Extent>,
}

fn tree_hole<N: Nodes>(nodes: &N, logical: LogicalBlock) -> Result<Hole> {
    let around = tree::around(nodes, logical)?;
    if around.previous.is_some_and(|extent| extent.contains(logical)) {
        return Ok(Hole { length: 0, previous: around.previous });
    }
    let length = around.next_start - logical.as_u64();
    Ok(Hole { length: length.min(u64::from(u32::MAX)) as u32, previous: around.previous })
}

fn map_hole<N: Nodes>(nodes: &N, logical: LogicalBlock) -> Result<Hole> {
    if nodes.layout().blocks_per_cluster() > 1 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let length_max = block_map::run_length_max(nodes, logical).ok_or(Error::Errno(Errno::EFBIG))?;
    let mapped = block_map::map(nodes, logical.get(), length_max)?;
    let length = if mapped.physical.is_some() { 0 } else { mapped.length };
    Ok(Hole { length, previous: block_map::previous_nearby(nodes, logical)? })
}

/// Which of the reserved blocks the caller may take.
pub(crate) fn reach(fs: &ContentStore, context: &RequestContext) -> Reach {
    let is_privileged = context.has(Capabilities::ADMINISTER)
        || fs.volume.with_superblock(|superblock| {
            // Group 0 grants nothing: images that reserve blocks for no group have it.
            let group = u32::from(superblock.reserved_group());
            u32::from(superblock.reserved_user()) == context.user
                || (group != 0 && context.in_group(group))
        });
    if is_privileged { Reach::Privileged } else { Reach::Common }
}
