//! What can be wrong with a journal, and where.

use thiserror::Error;

/// A part of a journal that is not what the format says.
///
/// `block` counts from the start of the journal, in journal blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Corrupt {
    /// Fewer bytes than the structure has.
    #[error("{structure} at journal block {block}: {bytes} bytes are too few")]
    TooShort {
        /// What was to be read.
        structure: &'static str,
        /// Where.
        block: u32,
        /// Bytes at hand.
        bytes: usize,
    },
    /// The superblock does not start with the journal's magic number.
    #[error("journal superblock: magic number is {found:#x}")]
    SuperblockMagic {
        /// What stands there.
        found: u32,
    },
    /// The superblock's block type is neither version 1 nor 2.
    #[error("journal superblock: block type {found} isn't that of a superblock")]
    SuperblockKind {
        /// What stands there.
        found: u32,
    },
    /// The superblock's checksum does not match.
    #[error("journal superblock: checksum {stored:#010x} stored, {computed:#010x} computed")]
    SuperblockChecksum {
        /// From the superblock.
        stored: u32,
        /// From its bytes.
        computed: u32,
    },
    /// A superblock field has an impossible value.
    #[error("journal superblock: {field} is {value}")]
    SuperblockField {
        /// The field's name in the format documentation.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Features that this crate does not know.
    #[error("journal superblock: unknown {set} features {bits:#x}")]
    UnknownFeatures {
        /// `incompat` or `ro_compat`.
        set: &'static str,
        /// The unknown bits alone.
        bits: u32,
    },
    /// A log block has no valid header of the expected kind and sequence.
    #[error("journal block {block}: expected {expected} of transaction {sequence}")]
    Header {
        /// Where.
        block: u32,
        /// The structure looked for.
        expected: &'static str,
        /// The sequence number looked for.
        sequence: u32,
    },
    /// A log block's own checksum does not match.
    #[error(
        "{structure} at journal block {block}: checksum {stored:#010x} stored, {computed:#010x} computed"
    )]
    BlockChecksum {
        /// Descriptor, revoke or commit block.
        structure: &'static str,
        /// Where.
        block: u32,
        /// From the block.
        stored: u32,
        /// From its bytes.
        computed: u32,
    },
    /// A logged copy does not match the checksum in its tag.
    #[error("copy of block {target} at journal block {block} does not match its tag's checksum")]
    DataChecksum {
        /// Where the copy is.
        block: u32,
        /// The block that it is a copy of.
        target: u64,
    },
    /// The byte count of a revoke block is impossible.
    #[error("revoke block at journal block {block}: byte count {count}")]
    RevokeCount {
        /// Where.
        block: u32,
        /// The stored count.
        count: u32,
    },
    /// Fast commits with features that this crate does not know.
    #[error("fast commits: unknown features {bits:#x}")]
    FastCommitFeatures {
        /// All of them.
        bits: u32,
    },
    /// A descriptor block describes nothing.
    #[error("descriptor at journal block {block} has no tag")]
    EmptyDescriptor {
        /// Where.
        block: u32,
    },
}

impl Corrupt {
    /// Whether what contradicts is a checksum, and not something that a block says.
    #[must_use]
    pub const fn is_checksum(&self) -> bool {
        matches!(
            self,
            Self::SuperblockChecksum { .. }
                | Self::BlockChecksum { .. }
                | Self::DataChecksum { .. }
        )
    }
}
