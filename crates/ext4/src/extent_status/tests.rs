//! Tests of the extent status cache.
#![allow(clippy::unwrap_used, reason = "a test")]

mod mount;
mod reclaim;
mod tree;
