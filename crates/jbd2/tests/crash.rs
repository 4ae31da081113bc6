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
use drystone_cache::Cache;
use drystone_jbd2::{Journal, Options, recover};
use drystone_sync::Arc;
use std::collections::{BTreeMap, BTreeSet};

const JOURNAL_BLOCKS: u32 = 40;
const BLOCKS: usize = 30;
const OPERATIONS: u64 = 150;
const IMAGES_PER_SEED: usize = 250;
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

fn try_seed(seed: u64, options: Options) {
    let run = run(seed, options);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    for image in 0..IMAGES_PER_SEED {
        let cut = random.usize(0..=run.events.len());
        let (device, waited) = crash_image(&run, cut, &mut random);
        check(&run, device, waited, &format!("SEED={seed}, image {image}, event {cut}"));
    }
}

#[test]
fn every_crash_recovers_to_a_committed_state() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..12,
    };
    for seed in seeds {
        // Checksums decide whether a torn commit is seen, so both are tried, and both widths.
        let options =
            Options { checksums: seed % 3 != 0, wide_block_numbers: seed % 4 < 2, ..options() };
        try_seed(seed, options);
    }
}
