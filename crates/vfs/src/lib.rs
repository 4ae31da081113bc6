//! The interface between file systems and their users.
//!
//! Everything above this crate (the command, a FUSE server, benchmarks, tests) speaks to a file
//! system through [`FileSystem`]; everything below implements it. The words here are POSIX's and
//! Linux's: inodes, names, attributes, errors. Blocks, extents and transactions belong below.
//!
//! # References
//!
//! A file system may forget an inode that nobody names. Each call that returns an [`Entry`]
//! (lookup, create, mkdir, …) gives the caller one *reference* to the inode, which keeps an
//! unlinked inode and its content alive. A server, whose client counts references, gives them back with
//! [`FileSystem::forget`]; everything else holds [`InodeGuard`]s, which do so when they are dropped. Calls that
//! take an [`InodeNumber`] expect the caller to hold a reference to it (the root is always held).
#![forbid(unsafe_code)]

mod arguments;
mod attributes;
mod context;
mod error;
mod exclude;
mod file_system;
pub mod glob;
mod guard;
mod owner_map;
mod path;
mod path_walk;
pub mod permission;

pub use arguments::{
    DirectoryEntry, DirectoryVisitor, Entry, ExtentFlags, FallocateMode, FileExtent,
    FileSystemStatistics, NewNode, OpenFlags, RenameFlags, SeekFrom, XattrMode,
};
pub use attributes::{
    DeviceNumber, FileFlags, FileType, InodeAttributes, InodeNumber, SetAttributes, SetTime,
    Timestamp, mode,
};
pub use context::{Access, Capabilities, RequestContext};
pub use error::{Errno, Error, Result};
pub use exclude::Exclude;
pub use file_system::FileSystem;
pub use guard::InodeGuard;
pub use owner_map::{IdRange, OwnerMap, parse_id};
pub use path::{Dots, NAME_LENGTH_MAX, PATH_LENGTH_MAX, check_listed, check_name};
pub use path_walk::{
    FollowedLinks, LastName, PathWalk, at_path, find_parent, find_path, position_of,
};
