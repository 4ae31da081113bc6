//! Everything in an ext4 image: layouts, checksums, checks.
//!
//! One pure description of the format, for the engine, the image builder and the checker alike:
//! no I/O, no locks, no policy. Bytes come in through one door per structure, a function that
//! checks them and returns a checked type or an error that names the kind and the place; no
//! function panics on what an image contains.
//!
//! # Reference
//! "ext4 Data Structures and Algorithms" in the Linux kernel's documentation, and the public
//! description of the e2fsprogs tools.
#![forbid(unsafe_code)]

#[macro_use]
mod raw;

pub mod acl;
pub mod bitmap_checksum;
pub mod block_map;
pub mod casefold;
pub mod checksum;
pub mod dir;
pub mod error;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod group;
pub mod hash;
pub mod htree;
pub mod ids;
pub mod inline;
pub mod inode;
pub mod layout;
pub mod mmp;
pub mod nokey_name;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
#[cfg(test)]
mod testing;
pub mod xattr;

pub use checksum::{ChecksumSeed, InodeSeed};
pub use error::{Corrupt, FormatError, Unsupported};
pub use ids::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
