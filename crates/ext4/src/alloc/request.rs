//! Requests to block allocation, and the runs that answer them.

use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// The goal of a file that has none yet.
pub(super) const NO_PLACE: u64 = u64::MAX;

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The content of files: not journaled.
    Data,
    /// Blocks that change through the journal, and must be forgotten there when they are freed.
    Metadata,
}

/// Which of the reserved blocks a caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None.
    Common,
    /// Those that the superblock reserves for privileged users.
    Privileged,
    /// All: for nodes of mappings, without which a file could not use blocks that it already has.
    All,
}

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest<'a> {
    /// Where the run should start. Any number is allowed; one outside the image means no goal.
    pub goal: PhysicalBlock,
    /// Blocks wanted; at least 1.
    pub length: u32,
    /// What they are for.
    pub kind: BlockKind,
    /// Only blocks whose number fits 32 bits: for files with a block map.
    pub below_32_bits: bool,
    /// Which of the reserved blocks may be used.
    pub reach: Reach,
    /// Whether they were claimed before by
    /// [`BlockAllocator::promise`](super::BlockAllocator::promise).
    pub is_promised: bool,
    /// The file whose data the blocks are for; `None` for anything else.
    pub file: Option<FileRequest<'a>>,
}

/// A file that gets blocks for its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'a> {
    /// The file's state for block allocation.
    pub space: &'a FileSpace,
    /// The file's block that the run is for; with clusters, the first of one.
    pub logical: u64,
    /// The file's size once it has the blocks.
    pub size_bytes: u64,
    /// Whether the file is too large to lie among small files.
    pub is_large: bool,
}

/// A file's state for block allocation.
#[derive(Debug)]
pub(crate) struct FileSpace {
    pub(super) inode: InodeNumber,
    pub(super) goal: AtomicU64,
    /// Where the file's window may be: [`NO_WINDOW`], [`MARKED`], or [`IN_SLOT`] and the core's slot.
    window: AtomicU16,
}

const NO_WINDOW: u16 = 0;
/// No window, but a group may be marked as the file's own.
const MARKED: u16 = 1;
const IN_SLOT: u16 = 2;

impl FileSpace {
    /// The state of a file that has not been given blocks since it was read into memory.
    pub fn new(inode: InodeNumber) -> FileSpace {
        FileSpace { inode, goal: AtomicU64::new(NO_PLACE), window: AtomicU16::new(NO_WINDOW) }
    }

    /// Whether the file may have a window, or a group may be marked as its own.
    pub fn has_window(&self) -> bool {
        self.window.load(Ordering::Acquire) != NO_WINDOW
    }

    /// Notes that a group is marked as the file's own.
    pub(super) fn note_mark(&self) {
        // A window may be there already; a failure means that the mark is known.
        let _ =
            self.window.compare_exchange(NO_WINDOW, MARKED, Ordering::Release, Ordering::Relaxed);
    }

    /// The slot in which the file's window may be.
    pub(super) fn window_slot(&self) -> Option<usize> {
        slot_of(self.window.load(Ordering::Acquire))
    }

    /// Notes that the file's window was put into a slot; returns the slot before.
    pub(super) fn set_window_slot(&self, slot: usize) -> Option<usize> {
        // Below 256, the most slots that there are.
        slot_of(self.window.swap(IN_SLOT + slot as u16, Ordering::AcqRel))
    }

    /// The slot in which the file's window may be, which is forgotten with the mark.
    pub(super) fn take_window_slot(&self) -> Option<usize> {
        slot_of(self.window.swap(NO_WINDOW, Ordering::AcqRel))
    }
}

fn slot_of(window: u16) -> Option<usize> {
    window.checked_sub(IN_SLOT).map(usize::from)
}

/// A run of allocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first block; with clusters, the first of one.
    pub start: PhysicalBlock,
    /// The number of blocks, at least 1; with clusters, whole ones.
    pub length: u32,
}
