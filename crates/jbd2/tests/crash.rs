//! Crashes at every write: what is recovered is what some transaction left, no older than the
//! last that was waited for.
//!
//! A tiny file system of blocks runs on the journal. Block 0 is its directory: a count of
//! operations, and for every other block what it is (free, metadata or data) and a stamp.
//! Metadata and data blocks are filled with their stamp. Data is written straight to the
//! device before the handle that enters it in the directory stops, as in ordered mode. A freed
//! block is reused, as either kind, once the transaction that freed it is durable.
//!
//! Run one seed again with `SEED=n cargo test -p drystone-jbd2 --test crash`.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BLOCK, area, format, memory, options, read_block};
use drystone_blockdev::{BlockDevice, Event, EventKind, MemoryDevice, Recording};
use drystone_cache::{Cache, Seal};
use drystone_jbd2::{Journal, Options, recover};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, thread};
use std::collections::{BTreeMap, BTreeSet};

const JOURNAL_BLOCKS: u32 = 40;
const BLOCKS: usize = 30;
const OPERATIONS: u64 = 150;
/// Torn writes are torn between these.
const SECTOR: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free = 0,
    Metadata = 1,
    Data = 2,
}

/// Everything that was written, and what may be found after a crash.
struct Run {
    base: MemoryDevice,
    events: Vec<Event>,
    /// Operation counts at which a transaction ended.
    ends: BTreeSet<u64>,
}

struct Workload {
    device: Arc<Recording<MemoryDevice>>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    random: fastrand::Rng,
    kinds: [Kind; BLOCKS],
    /// Transaction that freed the block.
    freed: [u64; BLOCKS],
    /// Last operation of each transaction.
    last: BTreeMap<u64, u64>,
}

impl Workload {
    fn operation(&mut self, number: u64) {
        let block = self.random.usize(1..BLOCKS);
        let offset = block as u64;
        let is_reusable = self.journal.is_committed(self.freed[block]);
        let mut handle = self.journal.start(2).unwrap();
        let tid = handle.tid();
        let kind = match self.kinds[block] {
            Kind::Free if !is_reusable => Kind::Free,
            Kind::Free if self.random.bool() => {
                self.device.write_at(offset * BLOCK as u64, &stamp(number)).unwrap();
                Kind::Data
            }
            Kind::Free => {
                let buffer = self.cache.zeroed(offset);
                handle.create(&buffer, None).unwrap().copy_from_slice(&stamp(number));
                Kind::Metadata
            }
            Kind::Metadata if self.random.u8(..) < 128 => {
                let buffer = self.cache.read(offset).unwrap();
                handle.write(&buffer, None).unwrap().copy_from_slice(&stamp(number));
                Kind::Metadata
            }
            Kind::Metadata => {
                handle.forget(offset).unwrap();
                Kind::Free
            }
            Kind::Data => Kind::Free,
        };
        if kind == Kind::Free {
            self.freed[block] = if is_reusable { tid } else { self.freed[block].max(tid) };
        }
        self.kinds[block] = kind;
        let directory = self.cache.read(0).unwrap();
        {
            let mut bytes = handle.write(&directory, None).unwrap();
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let entry = &mut bytes[block * 16..][..16];
            entry[0] = kind as u8;
            entry[8..].copy_from_slice(&number.to_le_bytes());
        }
        handle.stop().unwrap();
        self.last.insert(tid, number);
    }
}

fn stamp(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

fn run(seed: u64, options: Options) -> Run {
    let memory = memory();
    format(&memory, JOURNAL_BLOCKS, 1);
    let base = memory.snapshot();
    let device = Arc::new(Recording::new(memory));
    let cache = Arc::new(Cache::new(device.clone(), BLOCK, 64 * BLOCK));
    let journal = Journal::open(cache.clone(), area(JOURNAL_BLOCKS), options).unwrap();
    let mut workload = Workload {
        device: device.clone(),
        cache,
        journal: journal.clone(),
        random: fastrand::Rng::with_seed(seed),
        kinds: [Kind::Free; BLOCKS],
        freed: [0; BLOCKS],
        last: BTreeMap::new(),
    };
    for number in 1..=OPERATIONS {
        workload.operation(number);
        match workload.random.u8(..) {
            0..30 => {
                journal.commit_and_wait().unwrap();
                device.mark(number);
            }
            30..40 => journal.force_commit(journal.running_tid()),
            40..45 => journal.checkpoint_all().unwrap(),
            _ => {}
        }
    }
    if seed.is_multiple_of(2) {
        journal.close().unwrap();
        device.mark(OPERATIONS);
    }
    let ends = std::iter::once(0).chain(workload.last.into_values()).collect();
    drop(journal);
    Run { base, events: device.events(), ends }
}

/// Crashes before event `cut`: all that was flushed and some of the rest.
fn crash_image(run: &Run, cut: usize, random: &mut fastrand::Rng) -> (MemoryDevice, u64) {
    let image = run.base.snapshot();
    let events = &run.events[..cut];
    let flushed =
        events.iter().rposition(|event| event.kind == EventKind::Flush).map_or(0, |at| at + 1);
    let mut waited = 0;
    let keep_percent = *random.choice(&[0, 10, 50, 90, 100]).unwrap();
    for (at, event) in events.iter().enumerate() {
        match &event.kind {
            EventKind::Mark(number) => waited = *number,
            EventKind::Write { offset, data } if at >= flushed => {
                for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                    if random.u8(0..100) < keep_percent {
                        image.write_at(offset + (sector * SECTOR) as u64, bytes).unwrap();
                    }
                }
            }
            kind => kind.apply(&image).unwrap(),
        }
    }
    (image, waited)
}

fn check(run: &Run, image: MemoryDevice, waited: u64, what: &str) {
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    recover(&device, &area(JOURNAL_BLOCKS), BLOCK as u32)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let directory = read_block(&device, 0);
    let number = |at: usize| u64::from_le_bytes(directory[at..at + 8].try_into().unwrap());
    let reached = number(0);
    assert!(reached >= waited, "{what}: operation {waited} was waited for, {reached} is there");
    assert!(run.ends.contains(&reached), "{what}: no transaction ended at operation {reached}");
    for block in 1..BLOCKS {
        let kind = directory[block * 16];
        if kind == Kind::Free as u8 {
            continue;
        }
        let expected = stamp(number(block * 16 + 8));
        let found = read_block(&device, block as u64);
        assert!(found == expected, "{what}: block {block} of kind {kind} is not what it was");
    }
}

fn try_images(run: &Run, seed: u64, images: usize, check: impl Fn(MemoryDevice, u64, &str)) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    for image in 0..images {
        let cut = random.usize(0..=run.events.len());
        let (device, waited) = crash_image(run, cut, &mut random);
        check(device, waited, &format!("DRYSTONE_SEED={seed}, image {image}, event {cut}"));
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("DRYSTONE_SEED").map_or(0, |text| text.parse().unwrap());
    first..first + count
}

/// Checksums decide whether a torn commit is seen, so both are tried, and both widths.
fn layout(seed: u64) -> Options {
    Options { checksums: !seed.is_multiple_of(3), wide_block_numbers: seed % 4 < 2, ..options() }
}

#[test]
fn every_crash_recovers_to_a_committed_state() {
    for seed in seeds(12) {
        let run = run(seed, layout(seed));
        try_images(&run, seed, 250, |device, waited, what| check(&run, device, waited, what));
    }
}

const THREADS: usize = 3;
const ROUNDS: u64 = 60;
/// Each thread has two blocks from here.
const PAIRS: u64 = 10;
const SLOTS: u64 = 5;

/// One number for each thread, changed without the buffer's lock.
struct Slots([AtomicU64; THREADS]);

impl Seal for Slots {
    fn seal(&self, _: u64, bytes: &mut [u8], _: u64) {
        for (slot, bytes) in self.0.iter().zip(bytes.chunks_mut(8)) {
            bytes.copy_from_slice(&slot.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

/// Keeps the commit busy, so that the next transaction's handles come first to other blocks.
struct Slow;

impl Seal for Slow {
    fn seal(&self, _: u64, _: &mut [u8], _: u64) {
        thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Threads enter their round in two blocks of their own and, by an atomic store, in a slot of
/// a common block that its seal fills. The three are always the same, or a freeze was early
/// or late.
fn run_threads(seed: u64) -> Run {
    let memory = memory();
    format(&memory, JOURNAL_BLOCKS, 1);
    let base = memory.snapshot();
    let device = Arc::new(Recording::new(memory));
    let cache = Arc::new(Cache::new(device.clone(), BLOCK, 64 * BLOCK));
    let journal = Journal::open(cache.clone(), area(JOURNAL_BLOCKS), layout(seed)).unwrap();
    let slots = Arc::new(Slots(std::array::from_fn(|_| AtomicU64::new(0))));
    let seal: Arc<dyn Seal> = slots.clone();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (device, cache, journal, slots, seal) = (&device, &cache, &journal, &slots, &seal);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 100 + number as u64);
                let first = PAIRS + 2 * number as u64;
                for round in 1..=ROUNDS {
                    let mut handle = journal.start(4).unwrap();
                    if number == 0 {
                        let slow: Arc<dyn Seal> = Arc::new(Slow);
                        handle.access(&cache.read(SLOTS + 1).unwrap(), Some(&slow)).unwrap();
                    }
                    let common = cache.read(SLOTS).unwrap();
                    handle.access(&common, Some(seal)).unwrap();
                    slots.0[number].store(round, Ordering::Release);
                    for block in [first, first + 1] {
                        let buffer = cache.read(block).unwrap();
                        handle.write(&buffer, None).unwrap().copy_from_slice(&stamp(round));
                    }
                    handle.stop().unwrap();
                    if number == 0 && random.u8(..) < 60 {
                        journal.commit_and_wait().unwrap();
                        device.mark(round);
                    }
                }
            });
        }
    });
    drop(journal);
    Run { base, events: device.events(), ends: BTreeSet::new() }
}

#[test]
fn atomic_changes_are_frozen_with_their_transaction() {
    for seed in seeds(6) {
        let run = run_threads(seed);
        try_images(&run, seed, 120, |device, waited, what| {
            let device: Arc<dyn BlockDevice> = Arc::new(device);
            recover(&device, &area(JOURNAL_BLOCKS), BLOCK as u32).unwrap();
            let slots = read_block(&device, SLOTS);
            for number in 0..THREADS {
                let slot = u64::from_le_bytes(slots[number * 8..][..8].try_into().unwrap());
                assert!(number > 0 || slot >= waited, "{what}: {waited} was waited for");
                for block in 0..2 {
                    let found = read_block(&device, PAIRS + 2 * number as u64 + block);
                    assert!(found == stamp(slot), "{what}: slot and block of thread {number}");
                }
            }
        });
    }
}

/// Logs damaged at random: an error or some result, never a panic or an endless walk.
#[test]
fn damaged_logs_are_survived() {
    for seed in 0..6 {
        let run = run(seed, layout(seed));
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..100 {
            let cut = random.usize(run.events.len() / 2..run.events.len());
            let (device, _) = crash_image(&run, cut, &mut random);
            let device: Arc<dyn BlockDevice> = Arc::new(device);
            let journal_start = common::USER_BLOCKS * BLOCK as u64;
            for _ in 0..random.u32(1..20) {
                let offset =
                    journal_start + random.u64(0..u64::from(JOURNAL_BLOCKS) * BLOCK as u64);
                let aligned = offset / BLOCK as u64 * BLOCK as u64;
                // Mostly the start of a block, where the structures are.
                let offset = if random.bool() { aligned + random.u64(0..64) } else { offset };
                device.write_at(offset, &[random.u8(..)]).unwrap();
            }
            let _ = recover(&device, &area(JOURNAL_BLOCKS), BLOCK as u32);
        }
    }
}
