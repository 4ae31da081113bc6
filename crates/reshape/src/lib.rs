//! Changes ext4 images as a whole: settings, identity, features, size. Nothing has them open, except where
//! [`plan_growth`] plans for an engine that has.
//!
//! [`tune`] changes what the superblock says and what follows from it; [`resize`] grows and shrinks.
//! Both work on the device directly, like the builder and the checker: formats and devices, no engine
//! and no journal.
//!
//! # Structure
//! `image` reads an image and writes its superblocks, descriptors and bitmaps; `moves` moves blocks,
//! `relocate` makes room for metadata that grow, and `rewrite` corrects everything that refers to blocks, inodes and checksum seeds; `tune` and `resize` plan and
//! make a change.
//!
//! # Crash
//! A crash while free space is discarded or zeroed does no harm. Any other change writes in no particular order: the
//! caller passes a device that can roll it back, an [`UndoDevice`](drystone_blockdev::UndoDevice).
#![forbid(unsafe_code)]

mod defragment;
mod error;
mod free_space;
mod image;
mod moves;
mod progress;
mod relocate;
mod resize;
mod rewrite;
mod tune;

pub use defragment::{Defragmented, defragment};
pub use error::{Refusal, ReshapeError};
pub use free_space::{FreeSpaceAction, FreedSpace, clear_free_space};
pub use image::{ReshapeDevice, needs_recovery};
pub use progress::ReshapeProgress;
pub use resize::{Growth, NewSize, Resized, new_size_bytes, plan_growth, resize, usable_blocks};
pub use tune::{MountOptionChange, ReservedSpace, Tuned, Tuning, mount_option_names, tune};
