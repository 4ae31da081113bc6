//! Panics that tests plant in a handle's calls, to see that unwinding from any of them is safe.
//! Nothing of it is in a build without the feature `planted-panics`, or without debug assertions.
//!
//! # Locking
//! All of it is the thread's own.

use drystone_sync::thread_local;
use std::cell::Cell;

/// None is planted.
const NONE: u64 = u64::MAX;

thread_local! {
    /// Calls that go well before the panic.
    static LEFT: Cell<u64> = const { Cell::new(NONE) };
}

/// Lets the next `calls` calls that this thread makes to handles go well, and the one after that
/// panic, silently. `u64::MAX` takes back what was planted.
pub fn plant(calls: u64) {
    LEFT.set(calls);
}

/// How many calls would still go well.
#[must_use]
pub fn left() -> u64 {
    LEFT.get()
}

/// A call.
#[inline]
pub(crate) fn call() {
    match LEFT.get() {
        NONE => {}
        0 => {
            LEFT.set(NONE);
            // Without a message of the panic hook.
            std::panic::resume_unwind(Box::new("planted in a call of a journal handle"));
        }
        left => LEFT.set(left - 1),
    }
}
