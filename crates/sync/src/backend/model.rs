//! Loom's threads: every interleaving of a small test.
//!
//! Used inside [`loom::model`] only. Five threads at most; loads with `SeqCst` are modelled
//! weaker than they are, so that algorithms that need them use fences.

use super::lendable::Lendable;
use loom::sync::LockResult;
use std::fmt;
use std::time::Duration;

/// Loom poisons a lock only when a thread panics, which ends the test.
fn healthy<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = Lendable<loom::sync::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        Lendable::new(healthy(self.0.lock()))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(Lendable::new)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        healthy(self.0.get_mut())
    }

    pub(crate) fn into_inner(self) -> T {
        healthy(self.0.into_inner())
    }
}

pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

pub(crate) use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        healthy(self.0.read())
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        healthy(self.0.write())
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        healthy(self.0.get_mut())
    }

    pub(crate) fn into_inner(self) -> T {
        healthy(self.0.into_inner())
    }
}

#[derive(Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|guard| healthy(self.0.wait(guard)));
    }

    /// Loom has no time: waits until notified.
    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _: Duration,
    ) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult(false)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Condvar")
    }
}

/// Atomic integers, flags and fences.
pub mod atomic {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
        AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads.
pub mod thread {
    pub use loom::thread::{JoinHandle, yield_now};
    pub use std::thread::{available_parallelism, current, panicking};

    /// Starts a thread with a name.
    ///
    /// # Errors
    ///
    /// None under loom.
    pub fn spawn<F, T>(name: impl Into<String>, body: F) -> std::io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        loom::thread::Builder::new().name(name.into()).spawn(body)
    }

    /// Lets the other threads run: loom has no time.
    pub fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// A clock that stands still, because executions must repeat exactly.
pub(crate) mod clock {
    pub(crate) fn monotonic_ns() -> u64 {
        0
    }

    pub(crate) fn monotonic_coarse_ns() -> u64 {
        monotonic_ns()
    }

    pub(crate) fn thread_cpu_ns() -> u64 {
        0
    }

    pub(crate) fn wall() -> (i64, u32) {
        (0, 0)
    }

    pub(crate) fn wall_coarse() -> (i64, u32) {
        wall()
    }
}

/// Two cores; threads alternate in the order of their start.
pub(crate) mod core {
    const CORES: usize = 2;

    pub(crate) fn count() -> usize {
        CORES
    }

    pub(crate) fn current() -> usize {
        // Loom shows a thread's number only in this form.
        let id = format!("{:?}", loom::thread::current().id());
        let digits = id.bytes().filter(u8::is_ascii_digit);
        digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')) % CORES
    }
}
