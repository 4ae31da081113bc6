//! How often the locks of each class were taken, and how long takers waited.
//!
//! # State
//!
//! Each thread owns a block of counters, one entry per class, that it alone writes with
//! plain loads and stores; a sum reads all blocks. A block outlives its thread and is
//! handed, counts and all, to the next thread that starts, so sums never lose an ended
//! thread and memory is bounded by the most threads that ever ran at once.
//!
//! # Locking
//!
//! The registry's own mutex has no class. It is taken at the first lock of a thread, the
//! first take of a class, the end of a thread, and by [`lock_statistics`].

/// Counts of one lock class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClassStatistics {
    /// The class's name.
    pub name: &'static str,
    /// The class's rank.
    pub rank: u16,
    /// Locks taken, including those by a `try_` that succeeded.
    pub takes: u64,
    /// Takes that had to wait.
    pub contended: u64,
    /// Nanoseconds that those waited, together.
    pub wait_ns: u64,
}

/// What happened between two snapshots: `later - earlier`, class by class.
///
/// Classes first used in between are included; classes without a take in between are not.
#[must_use]
pub fn statistics_between(
    earlier: &[ClassStatistics],
    later: &[ClassStatistics],
) -> Vec<ClassStatistics> {
    // Snapshots list classes in the order of registration, which never changes.
    let mut differences = Vec::new();
    for (place, now) in later.iter().enumerate() {
        let mut difference = now.clone();
        if let Some(before) = earlier.get(place) {
            difference.takes -= before.takes;
            difference.contended -= before.contended;
            difference.wait_ns -= before.wait_ns;
        }
        if difference.takes > 0 {
            differences.push(difference);
        }
    }
    differences
}

#[cfg(not(loom))]
pub use counters::lock_statistics;
#[cfg(not(loom))]
pub(crate) use counters::{contended, taken};

#[cfg(not(loom))]
mod counters {
    use super::ClassStatistics;
    use crate::LockClass;
    use crossbeam_utils::CachePadded;
    use parking_lot::Mutex;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Classes in one process. A thread's block is sized by it.
    const CLASSES_MAX: usize = 128;

    #[derive(Default)]
    struct Counters {
        takes: AtomicU64,
        contended: AtomicU64,
        wait_ns: AtomicU64,
    }

    type Block = CachePadded<[Counters; CLASSES_MAX]>;

    struct Registry {
        classes: Vec<&'static LockClass>,
        /// Every block ever made.
        blocks: Vec<&'static Block>,
        /// Those of ended threads.
        idle: Vec<&'static Block>,
    }

    static REGISTRY: Mutex<Registry> =
        Mutex::new(Registry { classes: Vec::new(), blocks: Vec::new(), idle: Vec::new() });

    std::thread_local! {
        /// This thread's block. Apart from `OWNER` because a local without a destructor is
        /// read with one instruction.
        static BLOCK: Cell<Option<&'static Block>> = const { Cell::new(None) };
        /// Gives the block back when the thread ends.
        static OWNER: Owner = claim();
    }

    struct Owner(&'static Block);

    impl Drop for Owner {
        fn drop(&mut self) {
            BLOCK.set(None);
            REGISTRY.lock().idle.push(self.0);
        }
    }

    #[cold]
    fn claim() -> Owner {
        let mut registry = REGISTRY.lock();
        let block = registry.idle.pop().unwrap_or_else(|| {
            let fresh: &'static Block =
                Box::leak(Box::new(CachePadded::new(std::array::from_fn(|_| Counters::default()))));
            registry.blocks.push(fresh);
            fresh
        });
        Owner(block)
    }

    /// The calling thread's counters for `class`; nothing while the thread is ending.
    #[inline]
    fn counters(class: &'static LockClass) -> Option<&'static Counters> {
        let block = match BLOCK.get() {
            Some(block) => block,
            None => first_block()?,
        };
        let index = match class.index.load(Ordering::Relaxed) {
            0 => register(class),
            index => index,
        };
        Some(&block[(index - 1) as usize])
    }

    #[cold]
    fn first_block() -> Option<&'static Block> {
        let block = OWNER.try_with(|owner| owner.0).ok()?;
        BLOCK.set(Some(block));
        Some(block)
    }

    #[cold]
    fn register(class: &'static LockClass) -> u32 {
        let mut registry = REGISTRY.lock();
        let index = class.index.load(Ordering::Relaxed);
        if index != 0 {
            return index;
        }
        assert!(registry.classes.len() < CLASSES_MAX, "more than {CLASSES_MAX} lock classes");
        registry.classes.push(class);
        let index = registry.classes.len() as u32;
        class.index.store(index, Ordering::Relaxed);
        index
    }

    /// Only the owning thread writes, so that no read-modify-write is needed.
    #[inline(always)]
    fn add(counter: &AtomicU64, amount: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Counts a take that did not wait.
    #[inline]
    pub(crate) fn taken(class: &'static LockClass) {
        if let Some(counters) = counters(class) {
            add(&counters.takes, 1);
        }
    }

    /// Counts a take that waited.
    #[cold]
    pub(crate) fn contended(class: &'static LockClass, wait_ns: u64) {
        if let Some(counters) = counters(class) {
            add(&counters.takes, 1);
            add(&counters.contended, 1);
            add(&counters.wait_ns, wait_ns);
        }
    }

    /// The counts of every class used so far, in order of first use, since the process began.
    ///
    /// Exact for threads that are joined or idle; a moment old for those that run.
    #[must_use]
    pub fn lock_statistics() -> Vec<ClassStatistics> {
        let registry = REGISTRY.lock();
        let sum = |place: usize, field: fn(&Counters) -> &AtomicU64| {
            registry.blocks.iter().map(|block| field(&block[place]).load(Ordering::Relaxed)).sum()
        };
        registry
            .classes
            .iter()
            .enumerate()
            .map(|(place, class)| ClassStatistics {
                name: class.name(),
                rank: class.rank(),
                takes: sum(place, |counters| &counters.takes),
                contended: sum(place, |counters| &counters.contended),
                wait_ns: sum(place, |counters| &counters.wait_ns),
            })
            .collect()
    }
}

/// Nothing is counted under loom.
#[cfg(loom)]
#[must_use]
pub fn lock_statistics() -> Vec<ClassStatistics> {
    Vec::new()
}

#[cfg(loom)]
pub(crate) fn taken(_: &'static crate::LockClass) {}

#[cfg(loom)]
pub(crate) fn contended(_: &'static crate::LockClass, _: u64) {}

/// Takes a lock: at once if it is free, else by `wait`, timed.
#[inline]
pub(crate) fn take<G>(
    class: &'static crate::LockClass,
    attempt: impl FnOnce() -> Option<G>,
    wait: impl FnOnce() -> G,
) -> G {
    if let Some(guard) = attempt() {
        taken(class);
        return guard;
    }
    take_waiting(class, wait)
}

#[cold]
fn take_waiting<G>(class: &'static crate::LockClass, wait: impl FnOnce() -> G) -> G {
    let start = crate::clock::now();
    let guard = wait();
    contended(class, start.elapsed_ns());
    guard
}
