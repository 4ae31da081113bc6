//! A user-space ext4 engine: journaled, crash-safe, many threads at once.
#![forbid(unsafe_code)]

mod image;
pub mod transfer;

pub use drystone_vfs as vfs;
pub use image::{Image, OpenOptions};
