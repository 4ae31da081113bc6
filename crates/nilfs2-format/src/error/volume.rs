//! What can be wrong with a superblock, a log or the record of a segment.

use crate::ids::{CheckpointNumber, InodeNumber, PhysicalBlock};
use thiserror::Error;

/// What is wrong with a superblock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockProblem {
    /// Not NILFS2.
    #[error("magic is {found:#06x}, not 0x3434")]
    Magic {
        /// What is stored.
        found: u16,
    },
    /// The number of bytes that the sum covers is impossible.
    #[error("{bytes} bytes can't be summed")]
    Length {
        /// What is stored.
        bytes: u16,
    },
    /// The sum is wrong.
    #[error("sum is {stored:#010x}, computed {computed:#010x}")]
    Sum {
        /// What is stored.
        stored: u32,
        /// What the content gives.
        computed: u32,
    },
    /// Impossible block size.
    #[error("block size {bytes} is not a power of two from 1024 to 65536")]
    BlockSize {
        /// The size in bytes, or the stored logarithm where that is absurd.
        bytes: u64,
    },
    /// Impossible segment size.
    #[error("{blocks} blocks per segment")]
    SegmentBlocks {
        /// What is stored.
        blocks: u32,
    },
    /// More segments than the device has room for, or none.
    #[error("{segments} segments, where {possible} have room")]
    Segments {
        /// What is stored.
        segments: u64,
        /// How many there could be.
        possible: u64,
    },
    /// Impossible share of reserved segments.
    #[error("{percent} % of the segments are reserved")]
    ReservedPercent {
        /// What is stored.
        percent: u32,
    },
    /// The first data block isn't after the superblock.
    #[error("first data block is {found}, not {expected}")]
    FirstDataBlock {
        /// What is stored.
        found: u64,
        /// Where it is for this block size.
        expected: u64,
    },
    /// The device is smaller than the superblock says.
    #[error("the volume has {volume} bytes, the device {device}")]
    DeviceSize {
        /// What is stored.
        volume: u64,
        /// What there is.
        device: u64,
    },
    /// The newest log isn't in a segment.
    #[error("the newest log is said to be at block {block}")]
    Cursor {
        /// What is stored.
        block: PhysicalBlock,
    },
    /// The newest checkpoint has an impossible number.
    #[error("the newest checkpoint is said to be {checkpoint}")]
    CursorCheckpoint {
        /// What is stored.
        checkpoint: CheckpointNumber,
    },
    /// The first inode number for files is reserved.
    #[error("the first inode for files is said to be {inode}")]
    FirstInode {
        /// What is stored.
        inode: u32,
    },
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogProblem {
    /// There is no log.
    #[error("magic is {found:#010x}, not 0x1eaffa11")]
    Magic {
        /// What is stored.
        found: u32,
    },
    /// The header has another size.
    #[error("the header has {bytes} bytes")]
    HeaderBytes {
        /// What is stored.
        bytes: u16,
    },
    /// The log doesn't start in a segment.
    #[error("no segment has this block")]
    NoSegment,
    /// The log has too few blocks, or more than its segment.
    #[error("{blocks} blocks, where the segment has {room} left")]
    Blocks {
        /// What is stored.
        blocks: u32,
        /// Blocks from the start of the log to the end of its segment.
        room: u64,
    },
    /// The summary has an impossible length.
    #[error("the summary has {bytes} bytes in {blocks} blocks")]
    SummaryBytes {
        /// What is stored.
        bytes: u32,
        /// The log's blocks.
        blocks: u32,
    },
    /// The next segment doesn't start where the header says.
    #[error("the next segment is said to start at block {next}")]
    Next {
        /// What is stored.
        next: PhysicalBlock,
    },
    /// The log belongs to another round of its segment.
    #[error("sequence number {found}, not {expected}")]
    Sequence {
        /// What is stored.
        found: u64,
        /// What belongs here.
        expected: u64,
    },
    /// The sum of the summary is wrong.
    #[error("sum of the summary is {stored:#010x}, computed {computed:#010x}")]
    SummarySum {
        /// What is stored.
        stored: u32,
        /// What the content gives.
        computed: u32,
    },
    /// The sum of the whole log is wrong.
    #[error("sum of the log is {stored:#010x}, computed {computed:#010x}")]
    DataSum {
        /// What is stored.
        stored: u32,
        /// What the content gives.
        computed: u32,
    },
    /// A file's section doesn't fit into the summary.
    #[error("section {section} doesn't fit into the summary")]
    SectionTruncated {
        /// Its position.
        section: u32,
    },
    /// A file's section counts its blocks wrongly.
    #[error("section {section}, inode {inode}: {data} of {blocks} blocks are data")]
    SectionCounts {
        /// Its position.
        section: u32,
        /// Its file.
        inode: InodeNumber,
        /// Blocks of the file in the log.
        blocks: u32,
        /// Data blocks among them.
        data: u32,
    },
    /// Summary, sections and super root don't add up to the log's blocks.
    #[error("{described} blocks are described, the log has {blocks}")]
    BlocksDescribed {
        /// Blocks of summary, sections and super root.
        described: u64,
        /// What is stored.
        blocks: u32,
    },
    /// The header says that there is no super root.
    #[error("there is no super root")]
    NoSuperRoot,
}

/// What is wrong with a segment's record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UsageProblem {
    /// More blocks than the segment has.
    #[error("{blocks} blocks written")]
    Blocks {
        /// What is stored.
        blocks: u32,
    },
    /// Something lives after the blocks that are counted.
    #[error("{blocks} blocks written, but something lives after these")]
    Uncounted {
        /// What is stored.
        blocks: u32,
    },
    /// The last allocated segment doesn't exist.
    #[error("said to be allocated last, but there are only {segments}")]
    LastAllocated {
        /// Segments of the volume.
        segments: u64,
    },
}
