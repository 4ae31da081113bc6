//! Virtual cores in virtual time (`--cfg sim`): runs the engine's own code on any number of cores.
//!
//! Threads are coroutines on one system thread. Everything that threads share passes through this
//! crate, and each such access is an *event*: it happens only when no other thread has a smaller clock,
//! so what a run does is what it would have done on cores with these costs. The same settings and seed
//! give the same run. A run can also choose the thread of each event by its seed ([`Schedule`]), to meet
//! interleavings that costs seldom allow.
//!
//! # State
//! Each run has a [`World`](world::World): the threads with their clocks, the lines of memory with the
//! cores that have them (`memory`), the costs of a [`MachineModel`], and the time that the code between two
//! events takes ([`Work`]). Outside a run, such as while statics are made, accesses cost nothing, and waiting for
//! a held lock is a deadlock.
//!
//! # Limits
//! Reference counts of [`Arc`](crate::Arc) and [`OnceLock`](crate::OnceLock) move no lines.

pub mod atomic;
mod barrier;
#[cfg(test)]
mod closed_forms;
mod condvar;
mod device;
mod local;
pub(crate) mod locks;
mod machine;
mod measure;
mod memory;
mod places;
pub mod thread;
mod work;
mod world;

pub use barrier::Barrier;
pub(crate) use condvar::Condvar;
pub use device::{DeviceModel, DeviceRequest, DeviceTime};
pub use local::{AccessError, LocalKey};
pub(crate) use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use machine::{CPUS_MAX, MachineModel};
pub use measure::{MeasuredMachine, clock_ghz, measure};
pub(crate) use places::SourceLine;
pub use places::{Costs, PlaceCosts};
pub use work::{MeasuredStretch, Site, Step, Work, WorkTable, WorkUse};
pub(crate) use world::set_place;
pub use world::{
    Schedule, SimulationReport, SimulationSettings, SpinLocks, costs, is_planted, run,
};

/// The virtual clock.
pub(crate) mod clock {
    use super::world;

    /// When virtual time began: a number that differs from 0 in every unit.
    const START_NS: u64 = 1_000_000_000_000;
    const PS_PER_NS: u64 = 1000;
    /// How often the coarse clocks change: a kernel with 250 ticks a second.
    const TICK_NS: u64 = 4_000_000;

    pub(crate) fn monotonic_ns() -> u64 {
        START_NS + world::clock_ps() / PS_PER_NS
    }

    pub(crate) fn monotonic_coarse_ns() -> u64 {
        monotonic_ns() / TICK_NS * TICK_NS
    }

    pub(crate) fn thread_cpu_ns() -> u64 {
        world::busy_ps() / PS_PER_NS
    }

    pub(crate) fn wall() -> (i64, u32) {
        since_1970(monotonic_ns())
    }

    pub(crate) fn wall_coarse() -> (i64, u32) {
        since_1970(monotonic_coarse_ns())
    }

    fn since_1970(now_ns: u64) -> (i64, u32) {
        // Below 2^34 seconds, and below 10^9 nanoseconds.
        (1_700_000_000 + (now_ns / 1_000_000_000) as i64, (now_ns % 1_000_000_000) as u32)
    }
}

/// The virtual core of the current thread.
pub(crate) mod core {
    pub(crate) fn count() -> usize {
        super::world::core_count()
    }

    pub(crate) fn current() -> usize {
        super::world::current_core()
    }
}
