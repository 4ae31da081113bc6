//! The twelve bytes that start every log block that isn't a copy.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Starts every block of the journal's own. A logged copy that happens to start with it is
/// escaped: the copy's first four bytes are zeroed and its tag says so.
pub const MAGIC: u32 = 0xc03b_3998;

drystone_ondisk::with_fields! {
    /// The common header.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct BlockHeader {
        /// [`MAGIC`].
        pub magic: U32,
        /// A [`BlockKind`].
        pub kind: U32,
        /// The transaction that the block belongs to.
        pub sequence: U32,
    }
}

const _: () = assert!(size_of::<BlockHeader>() == 12);

/// What a block of the journal's own is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Tags that name the copies after it.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// A superblock of version 1.
    SuperblockV1,
    /// A superblock of version 2.
    SuperblockV2,
    /// Block numbers whose older copies must not be replayed.
    Revoke,
}

impl BlockKind {
    const fn number(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }

    /// The kind for a stored number, if it is a known one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Descriptor, Self::Commit, Self::SuperblockV1, Self::SuperblockV2, Self::Revoke]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

impl BlockHeader {
    /// A header of `kind` for transaction `sequence`.
    #[must_use]
    pub fn new(kind: BlockKind, sequence: u32) -> Self {
        Self { magic: U32::new(MAGIC), kind: U32::new(kind.number()), sequence: U32::new(sequence) }
    }
}

/// What `bytes` is as a block of transaction `sequence`; `None` if it is not the journal's or
/// of another transaction, which is how a log ends.
#[must_use]
pub fn kind_at(bytes: &[u8], sequence: u32) -> Option<BlockKind> {
    kind_and_sequence(bytes).and_then(|(kind, found)| (found == sequence).then_some(kind))
}

/// What `bytes` is as a block of the journal's own, and of which transaction; `None` if it is not the journal's.
#[must_use]
pub fn kind_and_sequence(bytes: &[u8]) -> Option<(BlockKind, u32)> {
    let (header, _) = BlockHeader::ref_from_prefix(bytes).ok()?;
    if header.magic.get() != MAGIC {
        return None;
    }
    Some((BlockKind::from_number(header.kind.get())?, header.sequence.get()))
}

/// Whether a copy of `bytes` in the log would be taken for a block of the journal's own.
#[must_use]
pub fn is_escape_needed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_be_bytes())
}
