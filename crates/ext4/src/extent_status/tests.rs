//! Tests of the cache of extents.
#![allow(clippy::unwrap_used, reason = "a test")]

mod mount;
mod reclaim;
mod tree;
