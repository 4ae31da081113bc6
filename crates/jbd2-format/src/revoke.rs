//! Revoke blocks: numbers of blocks whose copies in this and earlier transactions must not be
//! replayed.

use crate::format::{REVOKE_RECORDS_OFFSET, be32};
use crate::{BlockHeader, BlockKind, Corrupt, Format};

/// The byte count follows the header.
const COUNT_OFFSET: usize = size_of::<BlockHeader>();

/// Checks a revoke block of transaction `sequence` found at journal block `block`; gives the
/// revoked block numbers.
///
/// # Errors
/// The header, the checksum, or an impossible byte count.
pub fn check_revoke<'a>(
    format: &Format,
    bytes: &'a [u8],
    sequence: u32,
    block: u32,
) -> Result<impl Iterator<Item = u64> + use<'a>, Corrupt> {
    format.check_block(bytes, BlockKind::Revoke, "revoke block", sequence, block)?;
    let count = be32(bytes, COUNT_OFFSET);
    let end = count as usize;
    if end < REVOKE_RECORDS_OFFSET || end > format.body_bytes() {
        return Err(Corrupt::RevokeCount { block, count });
    }
    let records = bytes[REVOKE_RECORDS_OFFSET..end].chunks_exact(format.revoke_bytes());
    Ok(records.map(|record| record.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))))
}

/// A revoke block in the making.
#[derive(Debug)]
pub struct RevokeBuilder<'a> {
    format: &'a Format,
    bytes: Box<[u8]>,
    end: usize,
}

impl<'a> RevokeBuilder<'a> {
    /// An empty revoke block for transaction `sequence`.
    #[must_use]
    pub fn new(format: &'a Format, sequence: u32) -> Self {
        let bytes = format.new_block(BlockKind::Revoke, sequence);
        Self { format, bytes, end: REVOKE_RECORDS_OFFSET }
    }

    /// Whether no record fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.end + self.format.revoke_bytes() > self.format.body_bytes()
    }

    /// Revokes `block`.
    ///
    /// # Panics
    /// If the block is full, or the number too wide for the journal.
    pub fn push(&mut self, block: u64) {
        assert!(!self.is_full(), "a full revoke block gets another record");
        let number = block.to_be_bytes();
        let (high, low) = number.split_at(number.len() - self.format.revoke_bytes());
        assert!(high.iter().all(|&byte| byte == 0), "block {block} is too wide for the journal");
        self.bytes[self.end..self.end + low.len()].copy_from_slice(low);
        self.end += low.len();
    }

    /// Writes the byte count and the checksum.
    #[must_use]
    pub fn finish(mut self) -> Box<[u8]> {
        // At most a block's size, which has 17 bits.
        let count = (self.end as u32).to_be_bytes();
        self.bytes[COUNT_OFFSET..REVOKE_RECORDS_OFFSET].copy_from_slice(&count);
        self.format.seal_tail(&mut self.bytes);
        self.bytes
    }
}
