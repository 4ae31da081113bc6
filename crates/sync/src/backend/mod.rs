//! The kinds of thread that the engine can run on, one module each.
//!
//! A back end supplies `Mutex`, `RwLock` and `Condvar` without classes, `atomic`, `thread`,
//! the clock's three readings, and the number of the current core. A lock's `try_` forms
//! return `Option`; a condition variable takes the guard by `&mut`.

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod real;

#[cfg(loom)]
pub use model::{atomic, thread};
#[cfg(not(loom))]
pub use real::{atomic, thread};

#[cfg(loom)]
pub(crate) use model::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, clock, core,
};
#[cfg(not(loom))]
pub(crate) use real::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, clock, core,
};
