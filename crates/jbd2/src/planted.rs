//! Panics that tests plant in a handle's calls, to check that unwinding from each of them is safe.
//! Only in builds with the feature `planted-panics` and debug assertions.
//!
//! # Locking
//! All state is thread-local.

use drystone_sync::thread_local;
use std::cell::Cell;

/// None is planted.
const NONE: u64 = u64::MAX;

thread_local! {
    /// Calls that succeed before the panic.
    static LEFT: Cell<u64> = const { Cell::new(NONE) };
}

/// Lets this thread's next `calls` calls to handles succeed, and the one after panic, silently.
/// `u64::MAX` removes the planted panic.
pub fn plant(calls: u64) {
    LEFT.set(calls);
}

/// How many calls would still succeed.
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
