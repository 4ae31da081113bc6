//! Reads what an image is to be built from into a [`Tree`](drystone_mkfs::tree::Tree).
//!
//! Each reader fills the tree with names and metadata at once and leaves the data where they are: as
//! a [`ContentSource`](drystone_mkfs::tree::ContentSource) that the builder reads from later, with
//! many threads.
#![forbid(unsafe_code)]

pub mod directory;
