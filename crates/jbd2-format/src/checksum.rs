//! Checksums of log blocks.
//!
//! Versions 2 and 3 are CRC-32C chained from the journal's UUID. Version 1 is one big-endian
//! CRC-32 over a transaction's descriptors and copies, kept in its commit block.

use crc_fast::{CrcAlgorithm, Digest};
use drystone_ondisk::crc32c;

/// CRC-32C of `block` with the four bytes at `hole` taken as zero.
pub(crate) fn with_hole(seed: u32, block: &[u8], hole: usize) -> u32 {
    let register = crc32c(seed, &block[..hole]);
    crc32c(crc32c(register, &[0; 4]), &block[hole + 4..])
}

/// The checksum of version 1, over each descriptor and copy as it stands in the log.
#[derive(Clone)]
pub struct TransactionChecksum {
    digest: Digest,
}

impl TransactionChecksum {
    /// Of no block yet.
    #[must_use]
    pub fn new() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc32Mpeg2) }
    }

    /// Adds one log block.
    pub fn update(&mut self, block: &[u8]) {
        self.digest.update(block);
    }

    /// The checksum so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        // The upper half is zero.
        self.digest.finalize() as u32
    }
}

impl Default for TransactionChecksum {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for TransactionChecksum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TransactionChecksum({:#010x})", self.value())
    }
}
