//! Real threads: `parking_lot` locks, the machine's cores and its clock.

pub(crate) use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Atomic integers, flags and fences.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
        AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads.
pub mod thread {
    pub use std::thread::{
        JoinHandle, Scope, ScopedJoinHandle, available_parallelism, current, panicking, scope,
        sleep, yield_now,
    };

    /// Starts a thread with a name, which shows in debuggers and panic messages.
    ///
    /// # Errors
    ///
    /// What the system says when it can't start another thread.
    pub fn spawn<F, T>(name: impl Into<String>, body: F) -> std::io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        std::thread::Builder::new().name(name.into()).spawn(body)
    }

    /// Starts a thread with a name that ends before the scope does.
    ///
    /// # Errors
    ///
    /// As for [`spawn`]; the scope's own `spawn` panics then.
    pub fn spawn_in<'scope, F, T>(
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        body: F,
    ) -> std::io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body)
    }
}

/// The system's clocks. All but the thread's are in the vDSO and cost no system call.
pub(crate) mod clock {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    pub(crate) fn monotonic_ns() -> u64 {
        nanoseconds(clock_gettime(ClockId::Monotonic))
    }

    pub(crate) fn monotonic_coarse_ns() -> u64 {
        #[cfg(target_os = "linux")]
        let clock = ClockId::MonotonicCoarse;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        nanoseconds(clock_gettime(clock))
    }

    pub(crate) fn thread_cpu_ns() -> u64 {
        nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
    }

    fn nanoseconds(time: Timespec) -> u64 {
        // At most the time since boot: not negative, and 2^64 nanoseconds are 584 years.
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    pub(crate) fn wall() -> (i64, u32) {
        split(clock_gettime(ClockId::Realtime))
    }

    pub(crate) fn wall_coarse() -> (i64, u32) {
        #[cfg(target_os = "linux")]
        let clock = ClockId::RealtimeCoarse;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Realtime;
        split(clock_gettime(clock))
    }

    fn split(time: Timespec) -> (i64, u32) {
        // Nanoseconds of a normalised time are below 10^9.
        (time.tv_sec, time.tv_nsec as u32)
    }
}

/// Which core the calling thread runs on.
pub(crate) mod core {
    use std::cell::Cell;
    use std::sync::OnceLock;

    /// How many answers are given from one reading. A thread that has moved shares another core's
    /// slot for a while, which costs only cache misses.
    const ANSWERS_PER_READING: u32 = 64;

    struct Topology {
        /// Number of cores this process may use.
        count: usize,
        /// System core number → dense number below `count`. Empty where unknown.
        dense: Vec<u16>,
    }

    static TOPOLOGY: OnceLock<Topology> = OnceLock::new();

    std::thread_local! {
        /// (core, answers left until the next reading).
        static CACHED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    /// Cores this process may run on.
    pub(crate) fn count() -> usize {
        topology().count
    }

    /// A number below `count()`.
    #[inline]
    pub(crate) fn current() -> usize {
        CACHED.with(|cached| {
            let (core, left) = cached.get();
            if left > 0 {
                cached.set((core, left - 1));
                return core as usize;
            }
            let core = read();
            cached.set((core as u32, ANSWERS_PER_READING));
            core
        })
    }

    #[cfg(target_os = "linux")]
    fn topology() -> &'static Topology {
        TOPOLOGY.get_or_init(|| {
            let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
                return Topology { count: parallelism(), dense: Vec::new() };
            };
            let mut dense = Vec::new();
            let mut next = 0;
            for core in 0..rustix::thread::CpuSet::MAX_CPU {
                dense.push(next);
                next += u16::from(allowed.is_set(core));
            }
            Topology { count: usize::from(next).max(1), dense }
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn topology() -> &'static Topology {
        TOPOLOGY.get_or_init(|| Topology { count: parallelism(), dense: Vec::new() })
    }

    fn parallelism() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    #[cold]
    fn read() -> usize {
        let topology = topology();
        #[cfg(target_os = "linux")]
        let core = rustix::thread::sched_getcpu();
        #[cfg(not(target_os = "linux"))]
        let core = {
            use std::hash::BuildHasher;
            let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
            hasher.hash_one(std::thread::current().id()) as usize
        };
        // Affinity may have changed since the table was made: stay in bounds.
        topology.dense.get(core).map_or(core, |&dense| usize::from(dense)) % topology.count
    }
}
