//! Many images, treated by all cores.
//!
//! A thread watches the others: an image that takes too long ends the program, which says its number.

use crate::patient::{Patient, Treated, Verdict};
use crate::table::{self, Table};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{LockClass, Mutex, clock, thread};
use std::ops::Range;
use std::time::Duration;

static RESULTS: LockClass = LockClass::new("results of damaged images", 1);

/// What a process may have taken at its largest, and what each thread adds: the images are of at most 16 MiB.
const RESIDENT_MAX_KIB: u64 = 256 << 10;
const RESIDENT_MAX_KIB_PER_THREAD: u64 = 192 << 10;

/// Seconds that an image may take, with all that e2fsck does: its runs are limited too, but by the time that they
/// have a processor.
const IMAGE_SECONDS_MAX: u64 = 1200;

/// How often the watching thread looks.
const WATCH: Duration = Duration::from_millis(100);

/// What was found.
#[derive(Default)]
struct Results {
    table: Table,
    failures: Vec<String>,
    /// The most memory so far.
    resident_kib: u64,
}

/// What a thread does: the number of an image, and when it began.
#[derive(Default)]
struct Desk {
    case: AtomicU64,
    /// 0 while there is none.
    begun_ns: AtomicU64,
}

/// Images of some sets in turn, each with the damage of its number.
pub struct Crowd<'a> {
    patients: &'a [(&'static str, Patient)],
    seed: u64,
    is_told: bool,
    next: AtomicU64,
    end: u64,
    desks: Vec<Desk>,
    free_desk: AtomicU64,
    is_done: AtomicBool,
    results: Mutex<Results>,
}

impl<'a> Crowd<'a> {
    pub fn new(
        patients: &'a [(&'static str, Patient)],
        seed: u64,
        cases: Range<u64>,
        is_told: bool,
    ) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self {
            patients,
            seed,
            is_told,
            next: AtomicU64::new(cases.start),
            end: cases.end,
            desks: (0..threads).map(|_| Desk::default()).collect(),
            free_desk: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
            results: Mutex::new(&RESULTS, Results::default()),
        }
    }

    /// What became of the images, and which failed.
    pub fn treat(self) -> (Table, Vec<String>) {
        thread::scope(|scope| {
            scope.spawn(|| self.watch());
            let _end = thread::at_end(|| self.is_done.store(true, Ordering::Release));
            thread::together("damaged", self.desks.len(), || self.work());
        });
        let Results { table, failures, resident_kib } = self.results.into_inner();
        eprintln!("at most {resident_kib} KiB of memory");
        (table, failures)
    }

    /// The command that repeats one image.
    fn command(&self, case: u64) -> String {
        format!("./dev judge-damage --seed {} --case {case}", self.seed)
    }

    fn work(&self) {
        let desk = &self.desks[self.free_desk.fetch_add(1, Ordering::Relaxed) as usize];
        loop {
            let case = self.next.fetch_add(1, Ordering::Relaxed);
            if case >= self.end {
                return;
            }
            desk.case.store(case, Ordering::Relaxed);
            desk.begun_ns.store(clock::now_ns(), Ordering::Release);
            let (set, patient) = &self.patients[case as usize % self.patients.len()];
            let seed = self.seed.wrapping_mul(1 << 32) + case;
            let treated = patient.treat(seed, self.is_told);
            desk.begun_ns.store(0, Ordering::Release);
            self.note(case, set, &treated);
        }
    }

    fn note(&self, case: u64, set: &'static str, treated: &Treated) {
        let faults = treated.faults.join(", ");
        let mut results = self.results.lock();
        results.table.add(set, treated);
        if let Verdict::Failed(why) = &treated.verdict {
            eprintln!("FAILED {case} {set}: {faults}\n{why}\n{}", self.command(case));
            results.failures.push(format!("{case} {set}: {}", self.command(case)));
        }
        if treated.is_less() {
            let (ours, theirs) = (&treated.ours, &treated.theirs);
            eprintln!("LESS {case} {set}: {ours:?}, not {theirs:?}: {faults}");
        }
        let threads = self.desks.len() as u64;
        let limit = RESIDENT_MAX_KIB + threads * RESIDENT_MAX_KIB_PER_THREAD;
        let resident = table::resident_max_kib();
        if resident > limit && results.resident_kib <= limit {
            let what = format!("{case} {set}, or what ran beside it: {resident} KiB of memory");
            results.failures.push(format!("{what}: {}", self.command(case)));
        }
        results.resident_kib = resident;
    }

    fn watch(&self) {
        while !self.is_done.load(Ordering::Acquire) {
            let now = clock::now_ns();
            for desk in &self.desks {
                let begun = desk.begun_ns.load(Ordering::Acquire);
                if begun > 0 && now.saturating_sub(begun) > IMAGE_SECONDS_MAX * 1_000_000_000 {
                    let case = desk.case.load(Ordering::Relaxed);
                    eprintln!("FAILED {case} hangs\n{}", self.command(case));
                    std::process::abort();
                }
            }
            thread::sleep(WATCH);
        }
    }
}
