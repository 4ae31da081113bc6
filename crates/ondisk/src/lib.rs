//! Endian integers, checksums, bitmaps and hashes of numbers that formats and engines share.
//!
//! Everything here is a pure function over bytes: no I/O, no locks, no knowledge of one format.
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod crc16;
pub mod crc32c;
mod fields;
mod number_hash;

pub use crc16::crc16;
pub use crc32c::crc32c;
pub use fields::Field;
pub use number_hash::{NumberHasher, spread};

/// Little-endian integers without alignment, for ext4 structures.
pub mod little_endian {
    pub use zerocopy::little_endian::{I32, I64, U16, U32, U64};
}

/// Big-endian integers without alignment, for jbd2 structures.
pub mod big_endian {
    pub use zerocopy::big_endian::{I32, I64, U16, U32, U64};
}
