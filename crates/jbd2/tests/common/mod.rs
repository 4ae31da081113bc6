//! A small device with a journal in two pieces.
#![allow(dead_code, clippy::unwrap_used)]

pub mod ledger;
pub mod overlap;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_cache::{Buffer, Cache};
use drystone_jbd2::{Journal, JournalArea, JournalExtent, JournalOptions, JournalResult};
use drystone_jbd2_format::{IncompatFeatures, NewJournal, Superblock, format_journal_superblock};
use drystone_sync::Arc;

pub const BLOCK: usize = 1024;
/// Blocks below this are the test's; the journal comes after.
pub const USER_BLOCKS: u64 = 64;

pub fn area(journal_blocks: u32) -> JournalArea {
    let first = journal_blocks / 3;
    JournalArea::internal([
        // The first part lies after the second.
        JournalExtent { physical_start: USER_BLOCKS + 1000, length_blocks: first },
        JournalExtent { physical_start: USER_BLOCKS, length_blocks: journal_blocks - first },
    ])
}

pub fn format(device: &dyn BlockDevice, journal_blocks: u32, sequence: u32) {
    let journal = NewJournal {
        block_size_bytes: BLOCK as u32,
        length_blocks: journal_blocks,
        first_block: 1,
        uuid: [7; 16],
        users: Vec::new(),
        user_count: 1,
        incompat: IncompatFeatures::empty(),
        fast_commit_blocks: 0,
    };
    let bytes = format_journal_superblock(&journal);
    let mut superblock = Superblock::check(&bytes).unwrap();
    superblock.set_log(None, sequence);
    let offset = (USER_BLOCKS + 1000) * BLOCK as u64;
    device.write_at(offset, &superblock.to_bytes()).unwrap();
}

pub fn memory() -> MemoryDevice {
    MemoryDevice::new((USER_BLOCKS + 2000) * BLOCK as u64)
}

pub fn options() -> JournalOptions {
    JournalOptions::default().commit_interval(std::time::Duration::from_secs(3600))
}

pub struct Fixture {
    pub device: Arc<dyn BlockDevice>,
    pub cache: Arc<Cache>,
    pub journal: Arc<Journal>,
    pub journal_blocks: u32,
}

impl Fixture {
    pub fn new(device: Arc<dyn BlockDevice>, journal_blocks: u32, options: JournalOptions) -> Self {
        format(&device, journal_blocks, 1);
        Self::open(device, journal_blocks, options).unwrap()
    }

    pub fn open(
        device: Arc<dyn BlockDevice>,
        journal_blocks: u32,
        options: JournalOptions,
    ) -> JournalResult<Self> {
        let cache = Arc::new(Cache::new(device.clone(), BLOCK, 512 * BLOCK));
        let journal = Journal::open(cache.clone(), area(journal_blocks), options)?;
        Ok(Self { device, cache, journal, journal_blocks })
    }

    pub fn simple() -> Self {
        Self::new(Arc::new(memory()), 128, options())
    }

    pub fn buffer(&self, block: u64) -> Arc<Buffer> {
        self.cache.read(block).unwrap()
    }

    /// Fills a block in a handle of its own; returns the transaction.
    pub fn set(&self, block: u64, value: u8) -> u64 {
        let mut handle = self.journal.start(1).unwrap();
        handle.write(&self.buffer(block), None).unwrap().fill(value);
        let tid = handle.tid();
        handle.stop().unwrap();
        tid
    }

    /// What is on the device.
    pub fn home(&self, block: u64) -> u8 {
        read_block(&self.device, block)[9]
    }

    /// Ends the journal as a crash would, with all writes so far on the device.
    pub fn crash(self) -> Arc<dyn BlockDevice> {
        let device = self.device.clone();
        drop(self);
        device
    }

    /// Ends the journal as a crash would, recovers, and opens it again.
    pub fn crash_and_recover(self) -> Self {
        let journal_blocks = self.journal_blocks;
        let device = self.crash();
        drystone_jbd2::recover(&device, &area(journal_blocks), BLOCK as u32, 0).unwrap();
        Self::open(device, journal_blocks, options()).unwrap()
    }
}

pub fn read_block(device: &dyn BlockDevice, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    device.read_at(block * BLOCK as u64, &mut bytes).unwrap();
    bytes
}
