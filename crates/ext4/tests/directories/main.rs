//! Directories against a map of names, on images of every shape that `mke2fs` makes.
//!
//! `DRYSTONE_SEED=n cargo test -p drystone-ext4 --test directories` repeats a failure.
#![allow(clippy::unwrap_used)]

mod foreign;
mod known;
mod large;
mod listing;
mod model;
mod shared;
mod subject;
