//! Locks, atomics, threads and the clock of Drystone: the only user of `std::sync`.
//!
//! The engine's source runs on more than one kind of thread. `--cfg loom` puts it under the
//! loom model checker, `--cfg sim` on virtual cores; otherwise the threads are real. The back end is a cfg and not a
//! Cargo feature because features unify across a workspace, and one test would then slow
//! down, or break, the release binary. A back end is one file in `backend/`; everything
//! else here is written once over it.
//!
//! # Locking
//!
//! Every lock is made with a [`LockClass`]: a name and a rank. Ranks are the lock order:
//! a thread takes locks by rising rank, and debug builds panic when it does not. The same
//! class gathers how often its locks were taken, how often a taker had to wait and for how
//! long ([`lock_statistics`]), in all builds.
//!
//! ```
//! use drystone_sync::{LockClass, Mutex};
//!
//! static GROUP: LockClass = LockClass::new("group", 60);
//!
//! let free_blocks = Mutex::new(&GROUP, 100_u64);
//! *free_blocks.lock() -= 1;
//! assert_eq!(free_blocks.into_inner(), 99);
//! ```
//!
//! [`PublishedValue`] needs no lock to be read. [`Process`] tells a process from those it has forked.
//!
//! # Limits under loom
//!
//! [`Arc`] and [`OnceLock`] are not modelled (loom's `Arc` can't hold a
//! trait object), there is no `thread::scope`, a wait never times out, and the clock
//! stands still.
#![deny(unsafe_code)]

/// Tells a simulation where a lock is used; does nothing otherwise.
macro_rules! note_place {
    ($class:expr) => {
        #[cfg(sim)]
        crate::backend::set_place(crate::backend::SourceLine::of($class.name()));
    };
}

/// Whether a simulation has planted the defect of this name at this place, to show that it would be found.
/// Never outside of simulations.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {{
        #[cfg(sim)]
        let is_planted = $crate::sim::is_planted($name);
        #[cfg(not(sim))]
        let is_planted = false;
        is_planted
    }};
}

mod backend;
mod class;
pub mod clock;
mod condvar;
mod held;
#[cfg(not(loom))]
mod in_order;
pub mod long_wait;
mod mutex;
mod per_core;
mod process;
mod published_value;
mod rwlock;
mod spin;
mod statistics;
pub mod thread;

pub use backend::atomic;
pub use class::LockClass;
pub use condvar::Condvar;
pub use held::{CallersLocks, assert_none_held};
#[cfg(not(loom))]
pub use in_order::{PIECES_AHEAD, in_order};
pub use mutex::{Mutex, MutexGuard};
pub use per_core::{BatchedCounter, PerCore, PerCoreCounter, core_slots, current_core};
pub use process::Process;
pub use published_value::PublishedValue;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use spin::{SpinLock, SpinLockGuard};
pub use statistics::{ClassStatistics, lock_statistics, statistics_between};
pub use std::sync::{Arc, LazyLock, OnceLock, Weak};

#[cfg(loom)]
pub use loom::{model, thread_local};
#[cfg(not(any(loom, sim)))]
pub use std::{sync::Barrier, thread_local};

/// A run in virtual time.
#[cfg(sim)]
pub mod sim {
    pub use crate::backend::{
        CPUS_MAX, Costs, DeviceModel, DeviceRequest, DeviceTime, MachineModel, MeasuredMachine,
        MeasuredStretch, PlaceCosts, Schedule, SimulationReport, SimulationSettings, Site,
        SpinLocks, Step, Work, WorkTable, WorkUse, clock_ghz, costs, is_planted, measure, run,
    };
}
#[cfg(sim)]
pub use backend::Barrier;
#[cfg(sim)]
#[doc(hidden)]
pub use backend::{AccessError, LocalKey};
