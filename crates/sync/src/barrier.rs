//! A barrier for threads, for back ends that have none.

use crate::{Condvar, LockClass, Mutex};

static BARRIER: LockClass = LockClass::new("barrier", u16::MAX);

/// As `std::sync::Barrier`.
pub struct Barrier {
    threads: usize,
    /// How many threads wait, and how often all have met.
    state: Mutex<(usize, u64)>,
    met: Condvar,
}

impl Barrier {
    /// A barrier for so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, state: Mutex::new(&BARRIER, (0, 0)), met: Condvar::new() }
    }

    /// Waits until all threads have come.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.0 == self.threads {
            *state = (0, state.1 + 1);
            self.met.notify_all();
            return;
        }
        let round = state.1;
        self.met.wait_while(&mut state, |state| state.1 == round);
    }
}
