//! Feature words of the journal superblock.

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompatFeatures: u32 {
        /// Checksum version 1: the commit block carries a CRC-32 of the transaction.
        const CHECKSUM = 0x1;
    }

    /// Features that must be known to read the log.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IncompatFeatures: u32 {
        /// The log may hold revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const WIDE = 0x2;
        /// A commit block may reach the disk before the blocks it commits.
        const ASYNC_COMMIT = 0x4;
        /// Checksums in every log block; 16 bits of it in a tag.
        const CHECKSUM_V2 = 0x8;
        /// Checksums in every log block; 32 bits in a tag.
        const CHECKSUM_V3 = 0x10;
        /// The end of the journal is set aside for fast commits.
        const FAST_COMMIT = 0x20;
    }
}
