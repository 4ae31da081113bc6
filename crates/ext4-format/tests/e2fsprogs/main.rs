//! What e2fsprogs writes, we read; what we write, `e2fsck` finds clean.
//!
//! Without e2fsprogs the tests pass and say that they were skipped.

mod directories;
mod image;
mod inodes;
mod names;
mod special_files;
