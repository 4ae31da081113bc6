//! Commit blocks: a transaction counts if and only if its commit block is in the log.
//!
//! All that a commit block says is in its first sector; the rest is zeros. A power cut may leave
//! the first sector new and the rest old. That still is a commit, as in Linux since 6.3: the
//! checksum counts the rest as zeros, whatever is there.

use crate::checksum::with_hole;
use crate::{BlockHeader, BlockKind, ChecksumKind, Corrupt, Format, TransactionChecksum, kind_at};
use drystone_ondisk::crc32c;
use std::mem::offset_of;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Numbers of version 1's checksum type and of its size.
const CRC32_TYPE: u8 = 1;
const CRC32_BYTES: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawCommit {
    header: BlockHeader,
    checksum_type: u8,
    checksum_size: u8,
    padding: [u8; 2],
    checksum: [U32; 8],
    pub(crate) seconds: U64,
    nanoseconds: U32,
}

const CHECKSUM_OFFSET: usize = offset_of!(RawCommit, checksum);
const _: () = {
    assert!(size_of::<RawCommit>() == 60);
    assert!(CHECKSUM_OFFSET == 0x10);
    assert!(offset_of!(RawCommit, seconds) == 0x30);
    assert!(offset_of!(RawCommit, nanoseconds) == 0x38);
};

/// A checked commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Seconds since 1970 when the transaction was committed.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

/// Checks the commit block of transaction `sequence` found at journal block `block`.
/// `transaction` is the checksum over the transaction's blocks, which version 1 needs.
///
/// # Errors
/// The header or the checksum.
pub fn check_commit(
    format: &Format,
    bytes: &[u8],
    sequence: u32,
    block: u32,
    transaction: &TransactionChecksum,
) -> Result<Commit, Corrupt> {
    let structure = "commit block";
    let Ok((raw, _)) = RawCommit::ref_from_prefix(bytes) else {
        return Err(Corrupt::TooShort { structure, block, bytes: bytes.len() });
    };
    if kind_at(bytes, sequence) != Some(BlockKind::Commit) {
        return Err(Corrupt::Header { block, expected: structure, sequence });
    }
    let stored = raw.checksum[0].get();
    let (computed, is_valid) = match format.checksums() {
        ChecksumKind::None => (stored, true),
        ChecksumKind::V1 => {
            let computed = transaction.value();
            let is_checked = raw.checksum_type == CRC32_TYPE && raw.checksum_size == CRC32_BYTES;
            // Commits from before the feature was turned on have no checksum at all.
            let is_absent = raw.checksum_type == 0 && raw.checksum_size == 0 && stored == 0;
            (computed, is_checked && stored == computed || is_absent)
        }
        ChecksumKind::V2 | ChecksumKind::V3 => {
            let computed = block_checksum(format, raw);
            (computed, stored == computed)
        }
    };
    if !is_valid {
        return Err(Corrupt::BlockChecksum { structure, block, stored, computed });
    }
    Ok(Commit { seconds: raw.seconds.get(), nanoseconds: raw.nanoseconds.get() })
}

/// The commit block of transaction `sequence`. `transaction` is used in version 1 alone.
#[must_use]
pub fn encode_commit(
    format: &Format,
    sequence: u32,
    commit: Commit,
    transaction: &TransactionChecksum,
) -> Box<[u8]> {
    let mut raw = RawCommit {
        header: BlockHeader::new(BlockKind::Commit, sequence),
        checksum_type: 0,
        checksum_size: 0,
        padding: [0; 2],
        checksum: [U32::ZERO; 8],
        seconds: U64::new(commit.seconds),
        nanoseconds: U32::new(commit.nanoseconds),
    };
    if format.checksums() == ChecksumKind::V1 {
        raw.checksum_type = CRC32_TYPE;
        raw.checksum_size = CRC32_BYTES;
        raw.checksum[0] = U32::new(transaction.value());
    }
    if format.has_block_checksums() {
        raw.checksum[0] = U32::new(block_checksum(format, &raw));
    }
    let mut bytes = vec![0; format.block_size_bytes()].into_boxed_slice();
    bytes[..size_of::<RawCommit>()].copy_from_slice(raw.as_bytes());
    bytes
}

/// The checksum of a commit block, of which everything after `raw` is zero.
fn block_checksum(format: &Format, raw: &RawCommit) -> u32 {
    let register = with_hole(format.seed(), raw.as_bytes(), CHECKSUM_OFFSET);
    crc32c(register, &vec![0; format.block_size_bytes() - size_of::<RawCommit>()])
}
