//! The kinds of thread that the engine can run on, one module each.
//!
//! A back end supplies `Mutex`, `RwLock` and `Condvar` without classes, `atomic`, `thread`,
//! the clock's three readings, and the number of the current core. A lock's `try_` forms
//! return `Option`; a condition variable takes the guard by `&mut`.

#[cfg(any(loom, sim))]
mod lendable;

#[cfg(loom)]
#[path = "model.rs"]
mod chosen;
#[cfg(sim)]
#[path = "sim/mod.rs"]
mod chosen;
#[cfg(not(any(loom, sim)))]
#[path = "real.rs"]
mod chosen;

#[cfg(sim)]
pub use chosen::{
    AccessError, Barrier, CPUS_MAX, Costs, DeviceModel, DeviceRequest, DeviceTime, LocalKey,
    MachineModel, MeasuredMachine, MeasuredStretch, PlaceCosts, Schedule, SimulationReport,
    SimulationSettings, Site, SpinLocks, Step, Work, WorkTable, WorkUse, clock_ghz, costs,
    is_planted, measure, run,
};
pub(crate) use chosen::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, clock, core,
};
#[cfg(sim)]
pub(crate) use chosen::{SourceLine, set_place};
pub use chosen::{atomic, thread};
