//! The NILFS2 engine and image maker: many threads change files at once, one thread writes the log.
//!
//! [`Nilfs2`] is a mounted volume. It implements [`drystone_vfs::FileSystem`]; the other modules implement it.
//!
//! # Structure
//! `mount` → `operations`, `writer_thread` → `cleaner` → `checkpoints`, `log_writer` → `directory` →
//! `engine` → `log`, `log_requests` → `inode`, `ifile` → `dat`, `block_map`, `metadata_file` → `volume`;
//! nothing points up, which `./dev tidy` checks. An operation changes fields and pages of inodes in
//! memory, and nothing else. `log_writer` takes what is dirty, changes maps and metadata files, and
//! writes. `cleaner` frees segments, `recovery` finds the newest state, `mount` sets the parts up and
//! tears them down.
//!
//! # Locking
//! The order of all locks is in `lock_classes`. A change passes the `gate`, which the log writer closes
//! while it takes what is dirty. Blocks get their places only when a log is built, so that operations on
//! different inodes share no lock but those of groups of inodes.
//!
//! # Crash
//! Live blocks are never overwritten. A checkpoint has an operation as a whole or not at all.
#![forbid(unsafe_code)]

mod block_map;
mod checkpoints;
mod cleaner;
mod dat;
mod directory;
mod engine;
mod error;
mod gate;
mod ifile;
mod inode;
mod lock_classes;
mod log;
mod log_requests;
mod log_writer;
mod metadata_file;
pub mod mkfs;
mod mount;
mod operations;
mod permission;
mod policy;
mod recovery;
mod space;
mod trim;
mod volume;
mod writer_thread;

pub use checkpoints::CheckpointSummary;
pub use error::{Error, Result};
pub use mount::{GrownVolume, MountOptions, Nilfs2, grow};
pub use policy::{InodeSearch, UnknownInodeSearch};
pub use space::SpaceBounds;
