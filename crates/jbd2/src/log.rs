//! The log: where it starts and ends, what is in it, and which blocks are not yet at home.
//!
//! # State
//!
//! `LogSpace` knows the transactions in the log, oldest first, and the newest committed copy of
//! every block in them, unless it has been written home or revoked. The superblock on the device
//! says where the oldest transaction starts; space before that is free only once the superblock
//! says so durably.
//!
//! # Locking
//!
//! A commit holds the commit mutex, a checkpoint the checkpoint mutex, each over its I/O; both
//! change `LogSpace` under its own mutex, held briefly. A commit without space for its transaction
//! runs a checkpoint itself, holding both. The superblock's mutex is held for each try to write it.
//!
//! # Crash
//!
//! The superblock is durable before a transaction relies on it and before log space is overwritten.
//! An empty log gets a start before its first commit block. The start moves on only after the
//! blocks of the transactions before it have been written home and flushed.

use crate::lock_classes::{CHECKPOINT, COMMIT, SPACE, SUPERBLOCK};
use crate::{JournalArea, JournalError, JournalOptions, JournalResult};
use drystone_blockdev::BlockDevice;
use drystone_cache::{BlockBytes, Buffer, Cache};
use drystone_jbd2_format::{CompatFeatures, Format, IncompatFeatures, Superblock};
use drystone_sync::{Arc, Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

pub(crate) struct JournalLog {
    pub(crate) area: JournalArea,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) format: Format,
    pub(crate) range: Range<u32>,
    pub(crate) commit_turn: Mutex<()>,
    pub(crate) checkpoint_turn: Mutex<()>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) space: Mutex<LogSpace>,
    /// A checkpoint has ended.
    pub(crate) checkpointed: Condvar,
}

/// What the log holds.
pub(crate) struct LogSpace {
    /// Where the next transaction goes.
    pub(crate) head: u32,
    /// The superblock says where the log starts. Changed only by commits, one at a time.
    pub(crate) is_started: bool,
    /// Blocks from the start of the log to its head.
    pub(crate) used_blocks: u32,
    /// The next transaction's number in the log.
    pub(crate) sequence: u32,
    /// Oldest first.
    pub(crate) transactions: VecDeque<LoggedTransaction>,
    /// Newest committed copies that are not at home.
    pub(crate) copies: HashMap<u64, CommittedCopy>,
    /// Blocks that a checkpoint is writing home, sorted. What it writes may be older than the
    /// newest copy.
    pub(crate) in_flight: Vec<u64>,
}

/// A transaction in the log.
pub(crate) struct LoggedTransaction {
    pub(crate) tid: u64,
    pub(crate) sequence: u32,
    pub(crate) start: u32,
    pub(crate) length_blocks: u32,
    pub(crate) blocks: Vec<u64>,
}

/// A committed copy of a block.
pub(crate) struct CommittedCopy {
    pub(crate) tid: u64,
    pub(crate) bytes: BlockBytes,
    /// Keeps the buffer in the cache, because the block on the device is outdated.
    pub(crate) _buffer: Arc<Buffer>,
}

/// What a checkpoint is to achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeTarget {
    /// At least this many free blocks in the log.
    FreeBlocks(u32),
    /// All that is committed is at home.
    Everything,
}

/// Reads and checks the superblock of the journal at `area`.
pub(crate) fn read_superblock(
    main: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    block_size_bytes: u32,
) -> JournalResult<Superblock> {
    let (physical, _) = area.run(0..1)?;
    let mut bytes = vec![0; drystone_jbd2_format::SUPERBLOCK_BYTES];
    area.device(main).read_at(offset(physical, block_size_bytes as usize), &mut bytes)?;
    let superblock = Superblock::check(&bytes)?;
    if superblock.block_size_bytes() != block_size_bytes {
        return Err(JournalError::Mismatch {
            field: "s_blocksize",
            stored: superblock.block_size_bytes().into(),
            expected: block_size_bytes.into(),
        });
    }
    let room = area.length_blocks(block_size_bytes);
    if u64::from(superblock.length_blocks()) > room {
        return Err(JournalError::Mismatch {
            field: "s_maxlen",
            stored: superblock.length_blocks().into(),
            expected: room,
        });
    }
    Ok(superblock)
}

/// Writes the superblock durably.
pub(crate) fn write_superblock(
    device: &dyn BlockDevice,
    area: &JournalArea,
    superblock: &Superblock,
) -> JournalResult {
    let (physical, _) = area.run(0..1)?;
    let block_size = superblock.block_size_bytes() as usize;
    device.write_durable_at(offset(physical, block_size), &superblock.to_bytes())?;
    Ok(())
}

/// Byte offset of a block; too large a block number gives an offset that the device refuses.
pub(crate) fn offset(block: u64, block_size_bytes: usize) -> u64 {
    block.saturating_mul(block_size_bytes as u64)
}

impl JournalLog {
    pub(crate) fn open(
        cache: &Cache,
        area: JournalArea,
        options: &JournalOptions,
    ) -> JournalResult<Self> {
        let block_size = u32::try_from(cache.block_size_bytes()).unwrap_or(u32::MAX);
        let mut superblock = read_superblock(cache.device(), &area, block_size)?;
        if superblock.start().is_some() {
            return Err(JournalError::NeedsRecovery);
        }
        let device = area.device(cache.device()).clone();
        if !options.read_only {
            set_features(&mut superblock, options)?;
            write_superblock(&*device, &area, &superblock)?;
        }
        let range = superblock.log();
        let space = LogSpace {
            head: range.start,
            is_started: false,
            used_blocks: 0,
            sequence: superblock.sequence(),
            transactions: VecDeque::new(),
            copies: HashMap::new(),
            in_flight: Vec::new(),
        };
        Ok(Self {
            area,
            device,
            format: superblock.format(),
            range,
            commit_turn: Mutex::new(&COMMIT, ()),
            checkpoint_turn: Mutex::new(&CHECKPOINT, ()),
            superblock: Mutex::new(&SUPERBLOCK, superblock),
            space: Mutex::new(&SPACE, space),
            checkpointed: Condvar::new(),
        })
    }

    pub(crate) fn capacity_blocks(&self) -> u32 {
        self.range.end - self.range.start
    }

    pub(crate) fn revokes_per_block(&self) -> usize {
        self.format.revokes_per_block()
    }

    /// Blocks whose newest content is only in the log.
    pub(crate) fn unwritten_blocks(&self) -> usize {
        self.space.lock().copies.len()
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.space.lock().used_blocks > self.capacity_blocks() / 2
    }

    /// The journal block `count` blocks after `block`, going round.
    pub(crate) fn after(&self, block: u32, count: u32) -> u32 {
        let place = u64::from(block - self.range.start) + u64::from(count);
        // Below the capacity, which has 32 bits.
        self.range.start + (place % u64::from(self.capacity_blocks())) as u32
    }

    /// The `count` journal blocks that come `skip` blocks after `start`, up to the log's end.
    pub(crate) fn blocks_after(&self, start: u32, skip: u32, count: u32) -> Range<u32> {
        let first = self.after(start, skip);
        first..first.saturating_add(count).min(self.range.end)
    }

    /// Wakes the threads that wait for a checkpoint, because none will end any more.
    pub(crate) fn wake(&self) {
        let _space = self.space.lock();
        self.checkpointed.notify_all();
    }

    /// Says on the device where the log starts, `None` for nowhere.
    pub(crate) fn set_start(&self, start: Option<u32>, sequence: u32) -> JournalResult {
        let mut superblock = self.superblock.lock();
        superblock.set_log(start, sequence);
        write_superblock(&*self.device, &self.area, &superblock)
    }

    /// Says on the device that an error has stopped the journal. Where the log starts stays as it was said, or
    /// was about to be said, last: either is sound.
    pub(crate) fn set_error_number(&self, number: i32) -> JournalResult {
        let mut superblock = self.superblock.lock();
        superblock.set_error_number(number);
        write_superblock(&*self.device, &self.area, &superblock)
    }
}

/// Turns on the features that the file system asks for and turns off those that are never written.
fn set_features(superblock: &mut Superblock, options: &JournalOptions) -> JournalResult {
    if superblock.is_version_1() {
        return Err(JournalError::Unsupported("a superblock of version 1"));
    }
    let mut incompat = superblock.incompat();
    incompat.insert(IncompatFeatures::REVOKE);
    incompat.remove(IncompatFeatures::ASYNC_COMMIT);
    if options.wide_block_numbers {
        incompat.insert(IncompatFeatures::WIDE);
    }
    if options.checksums {
        incompat.remove(IncompatFeatures::CHECKSUM_V2);
        incompat.insert(IncompatFeatures::CHECKSUM_V3);
    }
    let compat = superblock.compat().difference(CompatFeatures::CHECKSUM);
    superblock.set_features(compat, incompat);
    Ok(())
}
