//! Whether a block that fails its checksum ends the log, or is damage.
//!
//! A transaction's commit block is written when all its other blocks are durable, and what it says
//! lies in one sector. So a crash may leave torn descriptors and revoke blocks, but never with
//! their transaction's commit block after them, and never a torn commit block. A valid commit
//! block proves that everything before it was complete once. A commit block that fails its checksum
//! was complete once too, unless it is left over from before the journal was made: a journal can be
//! made without being cleared. (None of this holds with asynchronous commits.)
//!
//! Leftovers from an earlier round through the log have lower transaction numbers and are ignored.

use crate::commit::RawCommit;
use crate::{Format, TransactionChecksum, check_commit};
use zerocopy::FromBytes;

/// Whether `bytes`, found further on in the log, prove that transaction `sequence` was complete:
/// they are its commit block, by a checksum of its own.
#[must_use]
pub fn is_proof_of_commit(format: &Format, bytes: &[u8], sequence: u32) -> bool {
    let checksum = TransactionChecksum::new();
    format.has_block_checksums()
        && !format.is_async_commit()
        && check_commit(format, bytes, sequence, 0, &checksum).is_ok()
}

/// Whether a commit block that fails its checksum may be one that was written before `seconds`,
/// when the journal was made or an earlier transaction was committed.
#[must_use]
pub fn may_be_left_over(bytes: &[u8], seconds: u64) -> bool {
    RawCommit::ref_from_prefix(bytes).is_ok_and(|(raw, _)| raw.seconds.get() < seconds)
}
