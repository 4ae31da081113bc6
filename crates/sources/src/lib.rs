//! Reads sources of an image into a [`FileTree`](drystone_mkfs::tree::FileTree); reads and writes tar archives.
//!
//! Each reader fills the tree with names and metadata at once and leaves the data where they are: as
//! a [`ContentSource`](drystone_mkfs::tree::ContentSource) that the builder reads from later, with
//! many threads.
#![forbid(unsafe_code)]

mod archive;
mod bytes;
#[cfg(feature = "oci")]
mod choice;
mod context;
pub mod directory;
mod error;
mod filter;
mod host_files;
pub mod input;
mod layer;
mod list;
mod manifest;
#[cfg(feature = "oci")]
pub mod oci;
mod source;
pub mod tar;
mod version;
mod warnings;
mod xattrs;

pub use archive::{Archive, Opener};
pub use bytes::decimal_seconds;
pub use context::SourceContext;
pub use error::{Error, Result};
pub use filter::Changes;
pub use host_files::HostFiles;
pub use list::LineError;
pub use manifest::Manifest;
pub use source::{Source, SourceKind, add_archive};
pub use warnings::Warnings;
