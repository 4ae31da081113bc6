//! Which process something belongs to.
//!
//! A child that `fork` made has a copy of all that its parent holds, but only one thread, and its parent goes on
//! writing to the same images. So what is open belongs to the process that has opened it: a child may neither use
//! nor close it.
//!
//! # State
//!
//! How many forks lie between this process and the first one that asked. The C library counts them, so that a look
//! costs no system call, and a child in a PID namespace of its own, whose number may be that of its parent, is
//! another process. A child made by the bare system call isn't noticed.
//!
//! # Locking
//!
//! None: a lock may be held, while another thread forks, by a thread that the child doesn't have.
#![allow(unsafe_code, reason = "only the C library tells of forks")]

// A model checker's atomics can't be static, and nothing here depends on an order.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);
/// Set when forks are counted. Children inherit that.
static ARE_COUNTED: AtomicBool = AtomicBool::new(false);

/// Runs in a child that was just made.
extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A process: this one, or one that this one was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The one that calls.
    #[must_use]
    pub fn current() -> Process {
        if !ARE_COUNTED.load(Ordering::Relaxed) {
            // Two threads may both ask for it. Then each fork counts twice, which does as well.
            // SAFETY: the function only changes an atomic.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            ARE_COUNTED.store(failed == 0, Ordering::Relaxed);
        }
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is the one that calls.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
