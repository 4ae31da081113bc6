//! What callers ask block allocation for, and what they get.

use super::goal::NO_PLACE;
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The content of files: not journaled.
    Data,
    /// Blocks that change through the journal, and must be forgotten there when they are freed.
    Metadata,
}

/// Which of the last free blocks a caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None that are kept back.
    Common,
    /// Those that the image keeps for its administrators.
    Privileged,
    /// All: for nodes of mappings, without which a file could not use the space that it was given.
    All,
}

/// A wish for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest<'a> {
    /// Where the run should start. Anything will do; a block outside the image means no wish.
    pub goal: PhysicalBlock,
    /// Blocks wanted; at least 1.
    pub length: u32,
    /// What they are for.
    pub kind: BlockKind,
    /// Only blocks whose number fits 32 bits: for files with a block map.
    pub below_32_bits: bool,
    /// Which of the last blocks may be used.
    pub reach: Reach,
    /// Whether they were claimed before, by [`BlockAllocator::promise`](super::BlockAllocator::promise).
    pub is_promised: bool,
    /// The file whose data the blocks are for; `None` for anything else.
    pub file: Option<FileRequest<'a>>,
}

/// A file that gets blocks for its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'a> {
    /// What the file remembers.
    pub space: &'a FileSpace,
    /// The block of the file that the run is for: the first of a cluster where there are clusters.
    pub logical: u64,
    /// The file's size when it has the blocks.
    pub size_bytes: u64,
    /// Whether it is too large to lie among small files.
    pub is_large: bool,
}

/// What a file remembers about its blocks.
#[derive(Debug)]
pub(crate) struct FileSpace {
    pub(super) inode: InodeNumber,
    pub(super) goal: AtomicU64,
    /// Something may be kept back for the file, or a group marked as its own.
    pub(super) has_window: AtomicBool,
}

impl FileSpace {
    /// For a file that got no blocks since it is in memory.
    pub fn new(inode: InodeNumber) -> FileSpace {
        FileSpace { inode, goal: AtomicU64::new(NO_PLACE), has_window: AtomicBool::new(false) }
    }

    /// Whether something may be kept back for the file, or a group marked as its own.
    pub fn has_window(&self) -> bool {
        self.has_window.load(Ordering::Acquire)
    }
}

/// Blocks given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first block; the first of a cluster where there are clusters.
    pub start: PhysicalBlock,
    /// The number of blocks, at least 1; whole clusters where there are clusters.
    pub length: u32,
}
