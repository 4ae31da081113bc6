//! An independent checker of ext4 images, and their repair.
//!
//! [`check`] reads an image and reports every contradiction in it, each with its place. It never
//! writes; [`repair`] does. The checker shares the descriptions of the formats with the engine and nothing else, so that a
//! bug of the engine is not also a bug of its judge.
//!
//! # Passes
//! 1. The superblock, its backups, the journal (replayed into memory), the group descriptors.
//! 2. All inodes: their fields, the blocks they claim, their attributes.
//! 3. Blocks that were claimed twice: the names of both owners.
//! 4. All directories: their blocks, names and indexes, and the inodes that they name.
//! 5. Whether every directory is reachable from the root, and link counts.
//! 6. Bitmaps and counters of all groups, quota.
//!
//! # State
//! Bitmaps of blocks, one byte for each inode of a group in use, and lists of what is rare
//! (directories, inodes with several names, attribute blocks): memory is bounded by the image.
//! Every tree node and every directory block is read once in a pass, however often it is
//! referred to. That bounds the time and makes loops harmless.
//!
//! A repair keeps what was found in pieces of inodes and directories, within the bound that callers may set, so that its
//! later rounds need not examine them again.
//!
//! # Threads
//! Inodes and directories are examined in pieces by several threads, and what each finds is taken in the
//! order of the pieces. A piece that would have found something else after those before it, or more than a
//! sound image has, is examined once more by the thread that takes, so that the report is the same with any number
//! of threads.
#![forbid(unsafe_code)]

mod bitmaps;
mod block_set;
mod check;
mod checker;
mod claims;
mod directories;
mod directory;
mod duplicates;
mod encryption;
mod entries;
mod groups;
mod htree;
mod image;
mod inline;
mod inode_content;
mod inode_list;
mod inode_runs;
mod inode_states;
mod inodes;
mod issue;
mod links;
mod mapping;
mod memory;
mod orphans;
mod parallel;
mod paths;
mod quota;
mod repair;
mod replay;
mod report;
mod special;
mod superblock;
mod watched;
mod xattrs;

pub use check::check;
pub use image::Error;
pub use issue::{
    AttributeIssue, BackupIssue, BlockIssue, DirectoryIssue, FixedPart, GroupIssue, IndexIssue,
    InodeIssue, Issue, IssueLocation, JournalIssue, OrphanIssue, Owner, QuotaIssue, Severity,
    SuperblockIssue,
};
pub use repair::{Choose, Decision, RepairOutcome, RepairReport, RepairedProblem, repair};
pub use report::{CheckOptions, CheckProgress, CheckSummary, Pass, Problem, Report};
