//! Telling whether the fast commit area holds something to replay.
//!
//! Fast commits are logical records that a file system, not the journal, can replay. This
//! crate only finds out whether there are any: a head record of the expected transaction,
//! and a tail record that completes it.
//!
//! # Reference
//! "Fast commits" in the kernel's ext4 data structure pages: little-endian records of a
//! 16-bit tag and a 16-bit length each.

const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
/// Starts the first record of a fast commit area in use.
pub const FAST_COMMIT_HEAD_TAG: u16 = 9;

/// Whether `area`, the fast commit blocks of a journal, holds a complete fast commit on top
/// of a log whose next transaction would be `sequence`.
#[must_use]
pub fn is_fast_commit_pending(area: &[u8], block_size_bytes: usize, sequence: u32) -> bool {
    let mut is_head_seen = false;
    for block in area.chunks_exact(block_size_bytes) {
        let mut rest = block;
        while let Some((header, after)) = rest.split_first_chunk::<4>() {
            let tag = u16::from_le_bytes([header[0], header[1]]);
            let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
            let Some((value, after)) = after.split_at_checked(length) else { return false };
            match tag {
                // Features, then the transaction.
                FAST_COMMIT_HEAD_TAG if value.get(4..8) == Some(&sequence.to_le_bytes()) => {
                    is_head_seen = true;
                }
                _ if !is_head_seen => return false,
                // The transaction, then a checksum; the tail fills its block.
                TAG_TAIL => return value.starts_with(&sequence.to_le_bytes()),
                1..=TAG_PAD => {}
                _ => return false,
            }
            rest = after;
        }
    }
    false
}
