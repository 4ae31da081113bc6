//! In-memory model, operation generator, conformance suite, crash images, and independent judges: e2fsprogs,
//! the kernel, and a Linux that runs as a program.
#![deny(unsafe_code)]

pub mod comparison;
pub mod concurrent;
pub mod conformance;
pub mod contents;
pub mod counted;
pub mod crash;
pub mod damage;
mod digest;
pub mod environment;
pub mod failing;
pub mod forked;
pub mod host;
pub mod judges;
pub mod metadata_map;
pub mod model;
pub mod nbd;
pub mod nilfs2;
pub mod operations;
pub mod rings;
pub mod skip;
pub mod tree;
pub mod uml;
pub mod visible;
pub mod walk;
pub mod witness;
