//! A file system in memory that is simple enough to be obviously right; the engine is compared with
//! it. Answers, errors and their precedence are those of Linux on ext4.
//!
//! # State
//!
//! A map of inodes; each operation is one step under one lock. Reads never change the access
//! time. Time is a logical clock: every change takes a millisecond, unless a test sets it.
//!
//! # Locking
//!
//! One mutex, a leaf: nothing else is taken while it is held, and no visitor runs under it.

pub mod acl;
mod attributes;
mod configuration;
mod content;
mod data;
mod file_system;
mod names;
mod node;
mod permission;
mod rename;
mod state;
mod xattrs;

pub use configuration::Configuration;
pub use file_system::MemoryFileSystem;
