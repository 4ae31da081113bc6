//! The checker against e2fsck: on images that are clean, and on damaged ones.
//!
//! Images are made by mke2fs and filled by mke2fs or, for root, by the kernel.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod clean;
mod damaged;
mod edited;
mod editor;
mod flips;
mod images;
mod journal;
mod names;
mod threads;
