//! An independent checker of NILFS2 images.
//!
//! [`check`] reads an image and reports every contradiction in it, each with its place. It never
//! writes. It shares the description of the format with the engine and nothing else, so that a bug of
//! the engine is not also a bug of its judge.
//!
//! It judges the state that a mount would find: that of the newest complete checkpoint, also where a
//! crash has left a superblock that doesn't know it. Data logs after it are left alone.
//!
//! # Passes
//! 1. The superblocks, the newest log with a super root, all logs after it.
//! 2. The map of the DAT, the segment usage file, and all entries of the DAT: where each block is, and
//!    that no two are in one place.
//! 3. All logs of all segments in use: their sums, and that they describe the blocks that the DAT puts
//!    there.
//! 4. The checkpoint file, with the list of snapshots.
//! 5. The newest checkpoint and each snapshot: their inodes, the maps of these, their directories, and
//!    what is counted.
//! 6. Whether each block that lives is part of the newest checkpoint.
//!
//! # State
//! Bitmaps of blocks and of virtual blocks, the places of the DAT's blocks, a record for each segment,
//! and for one checkpoint at a time a record for each inode: memory is bounded by the image. In each
//! checkpoint a block is read once, whoever refers to it, which makes loops harmless; the time is
//! bounded by the size of the image times the number of snapshots.
#![forbid(unsafe_code)]

mod allocator;
mod checker;
mod checkpoints;
mod dat;
mod dat_entries;
mod directories;
mod files;
mod image;
mod issue;
mod logs;
mod maps;
mod number_set;
mod owners;
mod report;
mod segments;
mod superblocks;
mod usages;

pub use checker::check;
pub use image::CheckError;
pub use issue::{
    AllocatorIssue, CheckpointIssue, EntryIssue, FileIssue, IssueSeverity, LogIssue, Nilfs2Issue,
    PlaceIssue, SegmentIssue, SuperblockCopy, SuperblockCopyIssue, VirtualBlockIssue,
};
pub use report::{Nilfs2CheckOptions, Nilfs2CheckReport, Nilfs2CheckSummary, Nilfs2Problem};
