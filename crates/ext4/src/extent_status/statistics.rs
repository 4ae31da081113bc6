//! Counts of the extent status cache.

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{PerCore, PerCoreCounter};

/// Counts of the extent status cache since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ExtentStatusStatistics {
    /// Extents that are cached now.
    pub cached: u64,
    /// Cached extents that may be dropped.
    pub droppable: u64,
    /// The number of cached extents above which the reclaimer runs.
    pub budget: u64,
    /// Look-ups that the cache answered.
    pub hits: u64,
    /// Look-ups whose answer was put into the cache.
    pub misses: u64,
    /// Passes of the reclaimer.
    pub passes: u64,
    /// Extents that the reclaimer looked at.
    pub scanned: u64,
    /// Extents that the reclaimer dropped.
    pub dropped: u64,
    /// Inodes that the reclaimer skipped because their tree was locked.
    pub skipped_busy: u64,
    /// The longest pass in microseconds, including waits for locks.
    pub longest_pass_us: f64,
    /// The mean of all passes in microseconds.
    pub mean_pass_us: f64,
    /// The most CPU time that a pass took, in microseconds: without waits, and without the time of
    /// other threads on the core.
    pub longest_pass_cpu_us: f64,
    /// The mean CPU time of all passes in microseconds.
    pub mean_pass_cpu_us: f64,
}

/// The result of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReclaimPass {
    pub scanned: usize,
    pub dropped: usize,
    pub skipped_busy: usize,
}

/// The sum and the maximum of the passes' times.
#[derive(Debug)]
struct PassTimes {
    sum_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl PassTimes {
    fn new() -> PassTimes {
        PassTimes { sum_ns: AtomicU64::new(0), longest_ns: AtomicU64::new(0) }
    }

    fn add(&self, ns: u64) {
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    fn longest_us(&self) -> f64 {
        self.longest_ns.load(Ordering::Relaxed) as f64 / 1000.0
    }

    fn mean_us(&self, passes: u64) -> f64 {
        (self.sum_ns.load(Ordering::Relaxed) / passes.max(1)) as f64 / 1000.0
    }
}

/// The counts of a mount.
#[derive(Debug)]
pub(super) struct ExtentCounts {
    pub hits: PerCoreCounter,
    pub misses: PerCoreCounter,
    pub droppable: PerCoreCounter,
    pub cached: SharedGauge,
    passes: AtomicU64,
    scanned: AtomicU64,
    dropped: AtomicU64,
    skipped_busy: AtomicU64,
    elapsed: PassTimes,
    cpu: PassTimes,
}

impl ExtentCounts {
    pub fn new() -> ExtentCounts {
        ExtentCounts {
            hits: PerCoreCounter::new(0),
            misses: PerCoreCounter::new(0),
            droppable: PerCoreCounter::new(0),
            cached: SharedGauge::new(),
            passes: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            skipped_busy: AtomicU64::new(0),
            elapsed: PassTimes::new(),
            cpu: PassTimes::new(),
        }
    }

    /// Counts a pass, and subtracts the extents that it dropped.
    pub fn pass(&self, pass: &ReclaimPass, elapsed_ns: u64, cpu_ns: u64) {
        self.cached.settle(-(pass.dropped as i64));
        self.droppable.add(-(pass.dropped as i64));
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.scanned.fetch_add(pass.scanned as u64, Ordering::Relaxed);
        self.dropped.fetch_add(pass.dropped as u64, Ordering::Relaxed);
        self.skipped_busy.fetch_add(pass.skipped_busy as u64, Ordering::Relaxed);
        self.elapsed.add(elapsed_ns);
        self.cpu.add(cpu_ns);
    }

    pub fn statistics(&self, budget: u64) -> ExtentStatusStatistics {
        let sum = |counter: &PerCoreCounter| u64::try_from(counter.sum()).unwrap_or(0);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let passes = load(&self.passes);
        ExtentStatusStatistics {
            cached: self.cached.sum(),
            droppable: sum(&self.droppable),
            budget,
            hits: sum(&self.hits),
            misses: sum(&self.misses),
            passes,
            scanned: load(&self.scanned),
            dropped: load(&self.dropped),
            skipped_busy: load(&self.skipped_busy),
            longest_pass_us: self.elapsed.longest_us(),
            mean_pass_us: self.elapsed.mean_us(passes),
            longest_pass_cpu_us: self.cpu.longest_us(),
            mean_pass_cpu_us: self.cpu.mean_us(passes),
        }
    }
}

/// How far a core's own part of a gauge may get from 0 before it is added to the shared part.
const BATCH: i64 = 32;

/// A number that all cores change and read. Each core collects its changes in a part of its own,
/// and adds that to the shared part when it is large enough.
#[derive(Debug)]
pub(super) struct SharedGauge {
    unsettled: PerCore<drystone_sync::atomic::AtomicI64>,
    settled: drystone_sync::atomic::AtomicI64,
}

impl SharedGauge {
    fn new() -> SharedGauge {
        use drystone_sync::atomic::AtomicI64;
        SharedGauge { unsettled: PerCore::new(|_| AtomicI64::new(0)), settled: AtomicI64::new(0) }
    }

    /// Adds to the number. When this updates the shared part, returns that.
    pub fn add(&self, amount: i64) -> Option<u64> {
        let own = self.unsettled.current();
        let sum = own.fetch_add(amount, Ordering::Relaxed) + amount;
        if sum.abs() < BATCH {
            return None;
        }
        let taken = own.swap(0, Ordering::Relaxed);
        Some(self.settle(taken))
    }

    /// Adds to the shared part, and returns it.
    pub fn settle(&self, amount: i64) -> u64 {
        let now = self.settled.fetch_add(amount, Ordering::Relaxed) + amount;
        u64::try_from(now).unwrap_or(0)
    }

    /// The shared part.
    pub fn settled(&self) -> u64 {
        u64::try_from(self.settled.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The number: exact if no thread changes it meanwhile.
    pub fn sum(&self) -> u64 {
        let kept: i64 = self.unsettled.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        u64::try_from(self.settled.load(Ordering::Relaxed) + kept).unwrap_or(0)
    }
}
