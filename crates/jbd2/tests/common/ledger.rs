//! A tiny file system of blocks. After a crash it must be in a state that some transaction left.
//!
//! Block 0 is its directory: a count of operations, and for every other block what it is (free,
//! metadata or data) and a stamp. Metadata and data blocks are filled with their stamp. Data is
//! written directly to the device before the handle that records it in the directory stops, as in
//! ordered mode. A freed block is reused, as either kind, once the transaction that freed it is
//! durable.

use super::{BLOCK, area, read_block};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_cache::Cache;
use drystone_jbd2::{Handle, Journal, JournalResult, recover};
use drystone_sync::{Arc, LockClass, Mutex};
use std::collections::{BTreeMap, BTreeSet};

pub const BLOCKS: usize = 30;

/// A leaf of the tests: a handle may be open.
static LEDGER: LockClass = LockClass::new("ledger", 999);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Free = 0,
    Metadata = 1,
    Data = 2,
}

pub struct Ledger(Mutex<Entries>);

struct Entries {
    /// Operations so far.
    number: u64,
    kinds: [Kind; BLOCKS],
    /// Transaction that freed the block.
    freed: [u64; BLOCKS],
    /// Last operation of each transaction.
    last: BTreeMap<u64, u64>,
}

impl Ledger {
    pub fn new() -> Self {
        let (kinds, freed) = ([Kind::Free; BLOCKS], [0; BLOCKS]);
        Self(Mutex::new(&LEDGER, Entries { number: 0, kinds, freed, last: BTreeMap::new() }))
    }

    /// What a block is, and the last transaction that freed it.
    pub fn block(&self, block: usize) -> (Kind, u64) {
        let entries = self.0.lock();
        (entries.kinds[block], entries.freed[block])
    }

    /// Operations so far.
    pub fn number(&self) -> u64 {
        self.0.lock().number
    }

    /// Gives a block a new stamp, as `kind`, or frees it. For one thread at a time.
    pub fn set(
        &self,
        device: &dyn BlockDevice,
        cache: &Cache,
        journal: &Journal,
        block: usize,
        kind: Kind,
    ) -> JournalResult {
        let number = self.number() + 1;
        let (before, freed) = self.block(block);
        if kind != Kind::Free {
            let is_free = before == Kind::Free && journal.is_committed(freed);
            assert!(is_free || before == Kind::Metadata && kind == Kind::Metadata, "in use");
        }
        if kind == Kind::Data {
            device.write_at(block as u64 * BLOCK as u64, &stamp(number))?;
        }
        let mut handle = journal.start(2)?;
        let done = change(&mut handle, cache, block, number, before, kind);
        {
            // Before a commit can include it.
            let mut entries = self.0.lock();
            if kind == Kind::Free && before != Kind::Free {
                entries.freed[block] = handle.tid();
            }
            entries.kinds[block] = kind;
            entries.number = number;
            entries.last.insert(handle.tid(), number);
        }
        let stopped = handle.stop();
        done.and(stopped)
    }

    /// Operation counts at which a transaction ended.
    pub fn ends(&self) -> BTreeSet<u64> {
        std::iter::once(0).chain(self.0.lock().last.values().copied()).collect()
    }
}

/// Changes a metadata block and its directory entry.
fn change(
    handle: &mut Handle<'_>,
    cache: &Cache,
    block: usize,
    number: u64,
    before: Kind,
    kind: Kind,
) -> JournalResult {
    let offset = block as u64;
    match (before, kind) {
        (Kind::Metadata, Kind::Metadata) => {
            handle.write(&cache.read(offset)?, None)?.copy_from_slice(&stamp(number));
        }
        (_, Kind::Metadata) => {
            handle.create(&cache.zeroed(offset), None)?.copy_from_slice(&stamp(number));
        }
        (Kind::Metadata, _) => handle.forget(offset)?,
        _ => {}
    }
    let directory = cache.read(0)?;
    let mut bytes = handle.write(&directory, None)?;
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let entry = &mut bytes[block * 16..][..16];
    entry[0] = kind as u8;
    entry[8..].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

fn stamp(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

/// Recovers an image and checks that it holds what some transaction left: one that ended with one
/// of the operations `ends`, no older than operation `waited`.
pub fn check(
    image: MemoryDevice,
    journal_blocks: u32,
    ends: &BTreeSet<u64>,
    waited: u64,
) -> Result<(), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    recover(&device, &area(journal_blocks), BLOCK as u32, 0).map_err(|error| error.to_string())?;
    let directory = read_block(&device, 0);
    let number = |at: usize| u64::from_le_bytes(directory[at..at + 8].try_into().unwrap());
    let reached = number(0);
    if reached < waited {
        return Err(format!("operation {waited} was waited for, {reached} is there"));
    }
    if !ends.contains(&reached) {
        return Err(format!("no transaction ended at operation {reached}"));
    }
    for block in 1..BLOCKS {
        let kind = directory[block * 16];
        let expected = stamp(number(block * 16 + 8));
        if kind != Kind::Free as u8 && read_block(&device, block as u64) != expected {
            return Err(format!("block {block} of kind {kind} is not what it was"));
        }
    }
    Ok(())
}
