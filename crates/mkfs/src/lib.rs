//! Makes ext4 images: what `mke2fs` would make by default, with an orphan file and a stored
//! checksum seed; empty ones, or with files in them.
//!
//! [`make`] and [`build`] lay an image out directly: formats and devices, no engine and no journal
//! traffic. Only blocks that are not zero are written, so an image in a sparse file stays small.
//!
//! # Structure
//! [`tree`] describes the files, [`build`] makes an ext4 image of them and [`fat`] a FAT32 for EFI system
//! partitions; [`verity`] appends a hash tree. `plan` computes the geometry from a user's [`MkfsOptions`]; `space`
//! allocates blocks; `files` makes the inodes that every image has; `groups` makes bitmaps and descriptors; `image`
//! writes it all.
//!
//! # Reference
//! "ext4 Data Structures and Algorithms" in the kernel's documentation; the manual page of `mke2fs`
//! for defaults.
#![forbid(unsafe_code)]

pub mod build;
mod error;
pub mod fat;
mod files;
mod groups;
mod image;
mod map;
mod options;
mod plan;
mod resize;
mod space;
pub mod tree;
pub mod verity;

pub use error::{Error, Result};
pub use image::{ImageSummary, NewImage, make};
pub use options::{JournalSize, MkfsOptions, default_features};
pub use plan::{
    JOURNAL_BLOCKS_MAX, JOURNAL_BLOCKS_MIN, default_journal_blocks, fast_commit_blocks,
    with_fast_commits,
};
pub use resize::{RESERVED_MAP_POINTER, ReservedMap};
