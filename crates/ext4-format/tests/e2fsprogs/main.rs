//! What e2fsprogs writes, we read; what we write, `e2fsck` finds clean.
//!
//! Without e2fsprogs the tests pass and note that they were skipped.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod directories;
mod image;
mod inodes;
mod names;
mod special_files;
