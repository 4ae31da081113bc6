//! Everything in a NILFS2 image: layouts, sums, checks.
//!
//! One pure description of the format, for the engine, the image maker and the checker alike:
//! no I/O, no locks, no policy. Bytes come in through one door per structure, a function that
//! checks them and returns a checked type or an error that names the kind and the place; no
//! function panics on what an image contains.
//!
//! # Structure
//! A volume is a log in segments (`geometry`, `superblock`, `log`). A log that ends a checkpoint has
//! a super root (`super_root`), which holds the inodes of three metadata files: the DAT (`dat`), which
//! maps virtual to physical blocks, the checkpoint file (`cpfile`) and the segment usage file
//! (`sufile`). A checkpoint holds the inode of the ifile, a file of inodes (`inode`). `map` is how an
//! inode finds its blocks, `allocator` how the ifile and the DAT number their entries.
//!
//! # Reference
//! "NILFS2" in the Linux kernel's documentation, the structures of `nilfs2_ondisk.h` (Linux UAPI), and
//! images that Linux 6.1 and nilfs-tools 2.2.9 have written.
#![forbid(unsafe_code)]

#[macro_use]
mod raw;

pub mod allocator;
pub mod cpfile;
pub mod dat;
pub mod directory;
pub mod error;
pub mod geometry;
pub mod ids;
pub mod inode;
pub mod log;
pub mod map;
pub mod sufile;
mod sum;
pub mod super_root;
pub mod superblock;

pub use error::{Corrupt, FormatError, Unsupported};
pub use geometry::Geometry;
pub use ids::{
    CheckpointNumber, FileBlock, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock,
};
pub use sum::Sum;
