//! Unmaps and frees ranges of a file.
//!
//! # Crash
//! A range is removed from its end backwards, in steps of one leaf and a few block groups each. So
//! transactions stay small however long the file, and a crash leaves a file without the end of the
//! range.

use super::allocate::{block_kind, free};
use super::{END, NodeBuffers, NodeChanges, StepHandles, StepProgress, block_map, clusters, tree};
use crate::alloc::BlockKind;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;

const GROUPS_MAX: usize = credits::MAPPING_REMOVE_GROUPS as usize;
/// The most journaled blocks that one step frees: each needs a revoke record.
const JOURNALED_BLOCKS_MAX: u64 = 1024;

/// One step of unmapping and freeing the blocks of a range, the last ones first. It takes
/// [`MAPPING_REMOVE_STEP`](credits::MAPPING_REMOVE_STEP) credits.
///
/// # Errors
/// `NoSpace` and `CommitFirst` if the range ends inside an extent, whose split may need a new node.
pub(crate) fn remove(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    from: LogicalBlock,
    to: u64,
) -> Result<StepProgress> {
    // Before the change: no thread can look up blocks meanwhile, because the content lock is held.
    fs.extent_status.forget(&inode.extents, from.as_u64(), to);
    let mut budget = RemovalBudget::new(fs.volume.layout(), block_kind(inode));
    let admit = |extent: &Extent| budget.admit(extent);
    let mut nodes = NodeChanges::new(fs, handle, inode);
    let removed = if nodes.is_tree() {
        tree::remove(&mut nodes, from.get(), to, admit)?
    } else {
        block_map::remove(&mut nodes, from.get(), to, admit)?
    };
    let freed = free(fs, nodes.handle, inode, &removed.pieces)?;
    if fs.volume.layout().blocks_per_cluster() > 1
        && clusters::is_any_kept(&NodeBuffers::new(fs, inode), &removed.pieces)?
    {
        fs.allocator.cluster_cuts.note(inode.number, nodes.handle.tid());
    }
    nodes.charge(-(freed as i64))?;
    inode.note_data_change(handle);
    Ok(removed.progress)
}

/// Unmaps and frees all blocks from `from` on, in handles of its own. The content lock is held
/// exclusively, and the inode is an orphan.
pub(crate) fn remove_all(fs: &ContentStore, inode: &Arc<Inode>, from: LogicalBlock) -> Result<()> {
    let mut steps = StepHandles::new(&fs.volume);
    let mut end = END;
    loop {
        let mut handle = fs.volume.start(credits::CUT)?;
        let step = remove(fs, &mut handle, inode, from, end);
        match steps.settle(handle, step)? {
            StepProgress::Done => return Ok(()),
            StepProgress::More { next } => end = next,
        }
    }
}

/// The limits of one step: block groups, and journaled blocks.
struct RemovalBudget<'a> {
    layout: &'a Layout,
    groups: [Option<GroupNumber>; GROUPS_MAX],
    blocks_left: u64,
}

impl<'a> RemovalBudget<'a> {
    fn new(layout: &'a Layout, kind: BlockKind) -> Self {
        let blocks_left = match kind {
            BlockKind::Data => u64::MAX,
            BlockKind::Metadata => JOURNALED_BLOCKS_MAX,
        };
        RemovalBudget { layout, groups: [None; GROUPS_MAX], blocks_left }
    }

    /// The block of an extent from which on it may be freed in this step; `None` if no part may.
    fn admit(&mut self, extent: &Extent) -> Option<LogicalBlock> {
        let start = extent.physical.get();
        let end = extent.physical_end().get();
        let mut low = end;
        while low > start && self.blocks_left > 0 {
            let last = PhysicalBlock::new(low - 1);
            // Extents were checked to be inside the image.
            let group = self.layout.group_of_block(last)?;
            if !self.admit_group(group) {
                break;
            }
            let least = start.max(self.layout.group_first_block(group).get());
            let piece = (low - least).min(self.blocks_left);
            low -= piece;
            self.blocks_left -= piece;
        }
        let kept = (low - start) as u32;
        (low < end).then(|| LogicalBlock::new(extent.logical.get() + kept))
    }

    fn admit_group(&mut self, group: GroupNumber) -> bool {
        for slot in &mut self.groups {
            if slot.is_none_or(|taken| taken == group) {
                *slot = Some(group);
                return true;
            }
        }
        false
    }
}
