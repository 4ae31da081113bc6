//! Fast commits: what was done since the last full commit, as records for the file system.
//!
//! The journal knows where they begin and end and which are complete. The file system knows what a
//! record means.
//!
//! # State
//! The area holds fast commits one after the other. Each is a run of records, a 16-bit tag and a
//! 16-bit length with a value after them, none of which reaches over the end of a block: a pad
//! record fills a block up. The first fast commit begins with a head record, which names the
//! transaction that the records belong to: the one after the last full commit. A tail record ends
//! each: it names the transaction again, has a checksum over everything since the tail before it
//! and takes the rest of its block. What follows the last complete one is left over from earlier
//! transactions, or from a crash.
//!
//! # Reference
//! "Fast commits" in the kernel's ext4 data structure pages. What these leave open (the layout of
//! head and tail, what the checksum covers, that it starts from zero) was learned from areas that
//! Linux has written.

use crate::Corrupt;
use drystone_ondisk::crc32c;

/// Tags above zero and below this one are the file system's.
const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;

/// A record for the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitRecord {
    /// What kind of record.
    pub tag: u16,
    /// What it says.
    pub value: Box<[u8]>,
}

/// The records of a complete fast commit, in order.
pub type FastCommit = Vec<FastCommitRecord>;

/// A walk along the blocks of a fast commit area.
#[derive(Debug)]
pub struct FastCommitScan {
    /// The transaction that fast commits must belong to.
    sequence: u32,
    complete: Vec<FastCommit>,
    current: FastCommit,
    /// Of everything since the last tail.
    checksum: u32,
    is_head_seen: bool,
    /// Features that a reader has to know, from the head.
    features: u32,
}

impl FastCommitScan {
    /// A walk for what follows a log whose next transaction would be `sequence`.
    #[must_use]
    pub fn new(sequence: u32) -> Self {
        Self {
            sequence,
            complete: Vec::new(),
            current: Vec::new(),
            checksum: 0,
            is_head_seen: false,
            features: 0,
        }
    }

    /// Reads the next block of the area. False if what is to be replayed ends before or in it.
    pub fn block(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some((header, after)) = rest.split_first_chunk::<4>() {
            let tag = u16::from_le_bytes([header[0], header[1]]);
            let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
            let Some((value, after)) = after.split_at_checked(length) else { return false };
            match tag {
                TAG_HEAD if !self.is_head_seen => {
                    let Some([features, sequence]) = two_numbers(value) else { return false };
                    if sequence != self.sequence {
                        return false;
                    }
                    self.is_head_seen = true;
                    self.features = features;
                }
                _ if !self.is_head_seen => return false,
                TAG_TAIL => return self.tail(*header, value),
                TAG_PAD => {}
                1..TAG_PAD => self.current.push(FastCommitRecord { tag, value: value.into() }),
                _ => return false,
            }
            self.checksum = crc32c(crc32c(self.checksum, header), value);
            rest = after;
        }
        true
    }

    /// Ends a fast commit. False if it is not one of this transaction, whole and undamaged.
    fn tail(&mut self, header: [u8; 4], value: &[u8]) -> bool {
        let Some([sequence, stored]) = two_numbers(value) else { return false };
        let computed = crc32c(crc32c(self.checksum, &header), &value[..4]);
        if sequence != self.sequence || stored != computed {
            return false;
        }
        self.complete.push(std::mem::take(&mut self.current));
        self.checksum = 0;
        true
    }

    /// The complete fast commits in order.
    ///
    /// # Errors
    /// There are complete fast commits with features that this crate does not know.
    pub fn finish(self) -> Result<Vec<FastCommit>, Corrupt> {
        if self.features != 0 && !self.complete.is_empty() {
            return Err(Corrupt::FastCommitFeatures { bits: self.features });
        }
        Ok(self.complete)
    }
}

/// The numbers that a head and a tail begin with.
fn two_numbers(value: &[u8]) -> Option<[u32; 2]> {
    let number = |start: usize| {
        let bytes = value.get(start..start + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    Some([number(0)?, number(4)?])
}

/// The blocks of an area that holds fast commits of transaction `sequence`. Each record must fit
/// into a block, with the header of a pad record.
#[must_use]
pub fn encode_fast_commits(
    commits: &[FastCommit],
    sequence: u32,
    block_size_bytes: usize,
) -> Vec<u8> {
    let mut writer = Writer { bytes: Vec::new(), checksum: 0, block_size_bytes };
    for (place, commit) in commits.iter().enumerate() {
        if place == 0 {
            let head = [0_u32.to_le_bytes(), sequence.to_le_bytes()].concat();
            writer.record(TAG_HEAD, &head);
        }
        for record in commit {
            writer.record(record.tag, &record.value);
        }
        writer.tail(sequence);
    }
    writer.bytes
}

/// What [`encode_fast_commits`] has written.
struct Writer {
    bytes: Vec<u8>,
    checksum: u32,
    block_size_bytes: usize,
}

impl Writer {
    fn room(&self) -> usize {
        self.block_size_bytes - self.bytes.len() % self.block_size_bytes
    }

    /// Leaves room for the header of the pad record that may have to follow.
    fn record(&mut self, tag: u16, value: &[u8]) {
        if self.room() < self.block_size_bytes && self.room() < value.len() + 8 {
            let pad = vec![0; self.room() - 4];
            self.put(TAG_PAD, &pad);
        }
        self.put(tag, value);
    }

    fn put(&mut self, tag: u16, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend(tag.to_le_bytes());
        // Values are shorter than a block, and blocks have at most 64 KiB.
        self.bytes.extend((value.len() as u16).to_le_bytes());
        self.bytes.extend(value);
        self.checksum = crc32c(self.checksum, &self.bytes[start..]);
    }

    fn tail(&mut self, sequence: u32) {
        if self.room() < self.block_size_bytes && self.room() < 12 {
            let pad = vec![0; self.room() - 4];
            self.put(TAG_PAD, &pad);
        }
        let rest = self.room() - 4;
        let start = self.bytes.len();
        self.bytes.extend(TAG_TAIL.to_le_bytes());
        // Below the size of a block.
        self.bytes.extend((rest as u16).to_le_bytes());
        self.bytes.extend(sequence.to_le_bytes());
        let checksum = crc32c(self.checksum, &self.bytes[start..]);
        self.bytes.extend(checksum.to_le_bytes());
        self.bytes.resize(start + 4 + rest, 0);
        self.checksum = 0;
    }
}
