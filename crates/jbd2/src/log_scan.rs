//! Reading the log from its start to its end: what the complete transactions say.
//!
//! # State
//!
//! What a transaction says counts once its commit block is found. An unexpected log block ends the
//! log: a crash in the middle of a commit leaves one. But if the transaction was once complete, the
//! log is damaged, and later transactions may be partly at home. So these are errors:
//! - a copy that counts, or a revoke block, that fails its checksum in a transaction with a valid
//!   commit block;
//! - a descriptor that fails its checksum, if that commit block follows further on;
//! - a commit block that fails its checksum, unless it may be left over from before the journal was
//!   made.
//!
//! The content of a revoked copy doesn't matter, as in Linux. With asynchronous commits a commit
//! block proves nothing, and all of these end the log.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.

use crate::JournalResult;
use crate::log_read::LogReader;
use drystone_jbd2_format::{
    BlockKind, ChecksumKind, Corrupt, Format, Tag, TransactionChecksum, check_commit,
    check_descriptor, check_revoke, is_proof_of_commit, kind_at, may_be_left_over,
};
use std::collections::{BTreeMap, HashMap};

/// A copy in the log.
#[derive(Clone, Copy)]
pub(crate) struct LoggedCopy {
    pub(crate) tag: Tag,
    /// Journal block.
    pub(crate) place: u32,
}

/// What one complete transaction holds.
#[derive(Default)]
struct Transaction {
    copies: Vec<LoggedCopy>,
    revokes: Vec<u64>,
    /// Copies that don't match their tags, by block.
    damages: Vec<(u64, Corrupt)>,
}

/// What the whole log says; transactions count from 1.
#[derive(Default)]
pub(crate) struct LogContents {
    pub(crate) transactions: u64,
    pub(crate) revoke_records: u64,
    /// Block → transaction of the newest copy, and the copy.
    pub(crate) newest: BTreeMap<u64, (u64, LoggedCopy)>,
    /// Block → last transaction that revoked it.
    revoked: HashMap<u64, u64>,
    /// The block and transaction of each copy that doesn't match its tag.
    damages: Vec<(u64, u64, Corrupt)>,
}

impl LogContents {
    fn add(&mut self, transaction: Transaction) {
        self.transactions += 1;
        self.revoke_records += transaction.revokes.len() as u64;
        for copy in transaction.copies {
            self.newest.insert(copy.tag.block, (self.transactions, copy));
        }
        for block in transaction.revokes {
            self.revoked.insert(block, self.transactions);
        }
        let damages = transaction.damages.into_iter();
        self.damages.extend(damages.map(|(block, damage)| (block, self.transactions, damage)));
    }

    /// Fails if a copy that counts is damaged.
    pub(crate) fn check(&self) -> JournalResult {
        let counts =
            |(block, transaction, _): &&(u64, u64, Corrupt)| !self.is_revoked(*block, *transaction);
        match self.damages.iter().find(counts) {
            Some((_, _, damage)) => Err(damage.clone().into()),
            None => Ok(()),
        }
    }

    /// Whether a revoke covers the copy of `block` in transaction `transaction`.
    pub(crate) fn is_revoked(&self, block: u64, transaction: u64) -> bool {
        self.revoked.get(&block).is_some_and(|&revoking| revoking >= transaction)
    }
}

/// The walk along the log.
pub(crate) struct LogScan<'a> {
    format: &'a Format,
    reader: LogReader<'a>,
    position: u32,
    /// The transaction expected here.
    sequence: u32,
    /// When the last transaction was committed, or the journal was made.
    since_seconds: u64,
    /// Bounds the walk to once round the log.
    walked_blocks: u32,
}

/// What is known so far of a transaction.
#[derive(Default)]
struct ScannedTransaction {
    transaction: Transaction,
    checksum: TransactionChecksum,
    /// The first revoke block that doesn't match its checksum.
    damage: Option<Corrupt>,
}

impl<'a> LogScan<'a> {
    /// A walk that begins at journal block `start` with transaction `sequence`, in a journal that
    /// was made at `made_seconds`.
    pub(crate) fn new(
        format: &'a Format,
        reader: LogReader<'a>,
        start: u32,
        sequence: u32,
        made_seconds: u64,
    ) -> Self {
        let since_seconds = made_seconds;
        Self { format, reader, position: start, sequence, since_seconds, walked_blocks: 0 }
    }

    /// Reads the log; also returns the number of the transaction that would come next.
    pub(crate) fn run(mut self) -> JournalResult<(LogContents, u32)> {
        let mut contents = LogContents::default();
        while let Some(transaction) = self.transaction()? {
            contents.add(transaction);
        }
        Ok((contents, self.sequence))
    }

    /// The transaction at the current position; `None` at the end of the log.
    fn transaction(&mut self) -> JournalResult<Option<Transaction>> {
        let mut draft = ScannedTransaction::default();
        loop {
            let place = self.position;
            if !self.step() {
                return Ok(None);
            }
            let bytes = self.reader.read(place)?;
            match kind_at(bytes, self.sequence) {
                Some(BlockKind::Descriptor) => {
                    // The bytes are needed while copies are read through the same window.
                    let bytes = bytes.to_vec();
                    if !self.descriptor(&bytes, place, &mut draft)? {
                        return Ok(None);
                    }
                }
                Some(BlockKind::Revoke) => {
                    match check_revoke(self.format, bytes, self.sequence, place) {
                        Ok(blocks) => draft.transaction.revokes.extend(blocks),
                        Err(damage @ Corrupt::BlockChecksum { .. }) => {
                            draft.damage.get_or_insert(damage);
                        }
                        Err(other) => return Err(other.into()),
                    }
                }
                Some(BlockKind::Commit) => {
                    // As above.
                    let bytes = bytes.to_vec();
                    let is_complete = self.commit(&bytes, place, &draft)?;
                    return Ok(is_complete.then_some(draft.transaction));
                }
                Some(BlockKind::SuperblockV1 | BlockKind::SuperblockV2) | None => return Ok(None),
            }
        }
    }

    /// Notes the copies that a descriptor names. `false` if the log ends here.
    fn descriptor(
        &mut self,
        bytes: &[u8],
        place: u32,
        draft: &mut ScannedTransaction,
    ) -> JournalResult<bool> {
        let format = self.format;
        let tags = match check_descriptor(format, bytes, self.sequence, place) {
            Ok(tags) => tags,
            Err(damage) if self.is_committed_further_on(self.sequence)? => {
                return Err(damage.into());
            }
            Err(_) => return Ok(false),
        };
        let is_v1 = format.checksums() == ChecksumKind::V1;
        if is_v1 {
            draft.checksum.update(bytes);
        }
        for tag in tags {
            let place = self.position;
            if !self.step() {
                return Ok(false);
            }
            // Read even without checksums: an unreadable copy must not turn up after others have
            // been written home.
            let copy = self.reader.read(place)?;
            if is_v1 {
                draft.checksum.update(copy);
            } else if let Err(damage) = tag.check_copy(format, self.sequence, copy, place) {
                draft.transaction.damages.push((tag.block, damage));
            }
            draft.transaction.copies.push(LoggedCopy { tag, place });
        }
        Ok(true)
    }

    /// Ends a transaction with its commit block. `false` if the log ends before it.
    fn commit(
        &mut self,
        bytes: &[u8],
        place: u32,
        draft: &ScannedTransaction,
    ) -> JournalResult<bool> {
        let is_async = self.format.is_async_commit();
        let next = self.sequence.wrapping_add(1);
        let commit = match check_commit(self.format, bytes, self.sequence, place, &draft.checksum) {
            Ok(commit) => commit,
            Err(_) if is_async => return Ok(false),
            // The next transaction begins when this one is durable.
            Err(damage)
                if !may_be_left_over(bytes, self.since_seconds)
                    || self.is_committed_further_on(next)? =>
            {
                return Err(damage.into());
            }
            Err(_) => return Ok(false),
        };
        if is_async && (draft.damage.is_some() || !draft.transaction.damages.is_empty()) {
            return Ok(false);
        }
        if let Some(damage) = &draft.damage {
            return Err(damage.clone().into());
        }
        self.sequence = next;
        self.since_seconds = commit.seconds;
        Ok(true)
    }

    /// Whether the commit block of a transaction is in the part of the log that is still to come.
    fn is_committed_further_on(&mut self, sequence: u32) -> JournalResult<bool> {
        let mut place = self.position;
        for _ in self.walked_blocks..self.reader.capacity_blocks() {
            if is_proof_of_commit(self.format, self.reader.read(place)?, sequence) {
                return Ok(true);
            }
            place = self.reader.next(place);
        }
        Ok(false)
    }

    /// Moves on by a block. `false` once the walk has gone round the whole log.
    fn step(&mut self) -> bool {
        if self.walked_blocks >= self.reader.capacity_blocks() {
            return false;
        }
        self.walked_blocks += 1;
        self.position = self.reader.next(self.position);
        true
    }
}
