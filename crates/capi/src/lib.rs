//! Drystone for C: what `drystone.h` declares.
//!
//! The header is made from this crate by cbindgen and checked in; a test compares the two. It states what
//! callers have to know, for all functions together.
//!
//! # Structure
//!
//! `failure` is the border: it catches panics, and keeps the number and the words of what failed for each
//! thread. `handles` turns what C holds into what Rust owns. `arguments` reads pointers. The other modules
//! have the functions, by subject.
//!
//! # Safety
//!
//! What C passes can't be checked but for null: strings end in 0, buffers have the size that is passed with
//! them, places for results can be written. Handles are numbers and are checked, so a stale one is an
//! error and not undefined behaviour.
#![deny(unsafe_code)]

mod arguments;
mod attributes;
mod directory;
mod failure;
mod file;
mod handles;
mod image;
mod names;
mod transfer;

pub use attributes::*;
pub use directory::*;
pub use failure::{drystone_errno, drystone_message};
pub use file::*;
pub use image::*;
pub use names::*;
pub use transfer::*;
