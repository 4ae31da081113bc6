//! Crashes at every write: recovery gives the state that some transaction left, no older than the
//! last one that was waited for.
//!
//! The ledger of `common/ledger.rs` runs on the journal.
//!
//! Run one seed again with `DRYSTONE_SEED=n cargo test -p drystone-jbd2 --test crash`.
#![allow(clippy::unwrap_used)]

mod common;

use common::ledger::{BLOCKS, Kind, Ledger, check};
use common::overlap::{self, Chooser, Fate, Script, Step};
use common::{BLOCK, area, format, memory, options, read_block};
use drystone_blockdev::{BlockDevice, Event, EventKind, MemoryDevice, Recording, Waiting};
use drystone_cache::{Cache, Seal};
use drystone_jbd2::{Journal, JournalOptions, recover};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, thread};
use std::collections::BTreeSet;

const JOURNAL_BLOCKS: u32 = 40;
const OPERATIONS: u64 = 150;
/// Torn writes are torn between these.
const SECTOR: usize = 512;

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
    ledger: Ledger,
}

impl Workload {
    fn operation(&mut self) {
        let block = self.random.usize(1..BLOCKS);
        let (before, freed) = self.ledger.block(block);
        let is_reusable = self.journal.is_committed(freed);
        let kind = match before {
            Kind::Free if !is_reusable => Kind::Free,
            Kind::Free if self.random.bool() => Kind::Data,
            Kind::Free => Kind::Metadata,
            Kind::Metadata if self.random.u8(..) < 128 => Kind::Metadata,
            Kind::Metadata | Kind::Data => Kind::Free,
        };
        self.ledger.set(&self.device, &self.cache, &self.journal, block, kind).unwrap();
    }
}

fn stamp(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

fn run(seed: u64, options: JournalOptions) -> Run {
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
        ledger: Ledger::new(),
    };
    for number in 1..=OPERATIONS {
        workload.operation();
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
    let ends = workload.ledger.ends();
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
fn layout(seed: u64) -> JournalOptions {
    options().checksums(!seed.is_multiple_of(3)).wide_block_numbers(seed % 4 < 2)
}

#[test]
fn every_crash_recovers_to_a_committed_state() {
    for seed in seeds(12) {
        let run = run(seed, layout(seed));
        try_images(&run, seed, 250, |device, waited, what| {
            check(device, JOURNAL_BLOCKS, &run.ends, waited)
                .unwrap_or_else(|problem| panic!("{what}: {problem}"));
        });
    }
}

const THREADS: usize = 3;
const ROUNDS: u64 = 60;
/// Each thread has two blocks from here.
const PAIRS: u64 = 10;
const SLOTS: u64 = 5;

/// One number per thread, changed without the buffer's lock.
struct Slots([AtomicU64; THREADS]);

impl Seal for Slots {
    fn seal(&self, _: u64, bytes: &mut [u8], _: u64) {
        for (slot, bytes) in self.0.iter().zip(bytes.chunks_mut(8)) {
            bytes.copy_from_slice(&slot.load(Ordering::Acquire).to_le_bytes());
        }
    }
}

/// Keeps the commit busy, so that handles of the next transaction reach other blocks before it.
struct Slow;

impl Seal for Slow {
    fn seal(&self, _: u64, _: &mut [u8], _: u64) {
        thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Each thread writes its round into two blocks of its own and, by an atomic store, into a slot of
/// a shared block that its seal fills. If the three ever differ, a freeze was early or late.
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
            recover(&device, &area(JOURNAL_BLOCKS), BLOCK as u32, 0).unwrap();
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

/// Commits, checkpoints, revokes and reuse, with the device's operations in a random order; one may
/// fail.
struct Shuffled {
    random: fastrand::Rng,
    fails: bool,
    keep_percent: u8,
}

impl Chooser for Shuffled {
    const WAITS: bool = false;

    fn choose(&mut self, waiting: &[Waiting]) -> (usize, Fate) {
        let fails = self.fails && self.random.u8(..) < 3;
        let fate = if fails { Fate::Fails } else { Fate::Done };
        (self.random.usize(..waiting.len()), fate)
    }

    fn crashes(&mut self) -> bool {
        self.keep_percent = *self.random.choice(&[10, 50, 90, 100]).unwrap();
        self.random.u8(..) < 20
    }

    fn keeps(&mut self) -> bool {
        self.random.u8(0..100) < self.keep_percent
    }
}

/// Few blocks, so that each is soon changed, freed and reused.
fn shuffled_steps(random: &mut fastrand::Rng) -> Vec<Step> {
    let mut kinds = [Kind::Free; 7];
    let mut step = || {
        let block = random.usize(1..kinds.len());
        match random.u8(..) {
            0..30 => Step::Commit,
            30..80 => Step::Request,
            choice => {
                kinds[block] = match kinds[block] {
                    Kind::Free if choice % 2 == 0 => Kind::Data,
                    Kind::Metadata if choice % 2 == 1 => Kind::Free,
                    Kind::Data => Kind::Free,
                    Kind::Free | Kind::Metadata => Kind::Metadata,
                };
                Step::Set(block, kinds[block])
            }
        }
    };
    (0..80).map(|_| step()).collect()
}

#[test]
fn overlapping_work_in_a_random_order() {
    /// About as many as a run looks at.
    const IMAGES_PER_RUN: u64 = 20;
    let images = std::env::var("DRYSTONE_CRASH_IMAGES");
    let images: u64 = images.map_or(1_000, |text| text.parse().unwrap());
    for seed in seeds(images.div_ceil(IMAGES_PER_RUN)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let steps = shuffled_steps(&mut random);
        let script = Script {
            // Sometimes so small that commits wait for space in the log.
            journal_blocks: random.u32(16..64),
            before: &[],
            steps: &steps,
            checkpoints: random.usize(0..10),
        };
        let fails = random.bool();
        let mut shuffled = Shuffled { random, fails, keep_percent: 0 };
        overlap::run(&script, &mut shuffled)
            .unwrap_or_else(|problem| panic!("DRYSTONE_SEED={seed}: {problem}"));
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
                // Usually at the start of a block, where the structures are.
                let offset = if random.bool() { aligned + random.u64(0..64) } else { offset };
                device.write_at(offset, &[random.u8(..)]).unwrap();
            }
            let _ = recover(&device, &area(JOURNAL_BLOCKS), BLOCK as u32, 0);
        }
    }
}
