//! Time: a monotonic clock to measure with and the wall clock to stamp files with.

use crate::backend;
use std::ops::Add;
use std::time::Duration;

/// A point in time of a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    nanoseconds: u64,
}

/// The current point in time.
#[must_use]
pub fn now() -> Instant {
    Instant { nanoseconds: backend::clock::monotonic_ns() }
}

/// Seconds and nanoseconds (below 10⁹) since 1970 UTC; negative seconds before.
#[must_use]
pub fn wall() -> (i64, u32) {
    backend::clock::wall()
}

/// As [`wall`], from the kernel's last tick: up to some milliseconds old and several times
/// cheaper. What Linux stamps files with.
#[must_use]
pub fn wall_coarse() -> (i64, u32) {
    backend::clock::wall_coarse()
}

/// The clock of [`now`] in nanoseconds. The number means the same in all processes.
#[must_use]
pub fn now_ns() -> u64 {
    backend::clock::monotonic_ns()
}

/// As [`now_ns`], from the kernel's last tick: up to some milliseconds
/// old and several times cheaper. Not 0.
#[must_use]
pub fn coarse_ns() -> u64 {
    backend::clock::monotonic_coarse_ns().max(1)
}

/// Nanoseconds that the calling thread has spent on a core: the cost of its work, whatever else the
/// machine did. Unlike the other clocks this is a system call.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    backend::clock::thread_cpu_ns()
}

impl Instant {
    /// Nanoseconds that have passed since.
    #[must_use]
    pub fn elapsed_ns(self) -> u64 {
        now().nanoseconds.saturating_sub(self.nanoseconds)
    }

    /// Time that has passed since.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(self.elapsed_ns())
    }

    /// Time from `earlier` to this; zero if that is later.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(earlier.nanoseconds))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the far end of the clock, 584 years after boot.
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self { nanoseconds: self.nanoseconds.saturating_add(nanoseconds) }
    }
}
