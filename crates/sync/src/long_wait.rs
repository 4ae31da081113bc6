//! Waits that may last as long as somebody likes, such as for the end of a freeze.
//!
//! A server whose threads all wait so long would answer nothing. So such a wait is announced before it
//! begins, and the server lets another thread stand in for the one that waits.
//!
//! # State
//!
//! What each thread wants to have called. Nothing under loom and in a simulation, whose threads serve nobody.

use crate::Arc;

/// Does what is needed before a thread waits for long. It is called with any locks held.
pub type BeforeWait = Arc<dyn Fn() + Send + Sync>;

#[cfg(not(any(loom, sim)))]
std::thread_local! {
    static BEFORE: std::cell::RefCell<Option<BeforeWait>> = const { std::cell::RefCell::new(None) };
}

/// Has `before` called whenever the calling thread announces a long wait.
pub fn call_before(before: BeforeWait) {
    #[cfg(not(any(loom, sim)))]
    BEFORE.set(Some(before));
    #[cfg(any(loom, sim))]
    drop(before);
}

/// The calling thread is about to wait for long.
pub fn announce() {
    #[cfg(not(any(loom, sim)))]
    {
        let before = BEFORE.with_borrow(Option::clone);
        if let Some(before) = before {
            before();
        }
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_thread_has_its_own() {
        announce();
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        call_before(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        announce();
        crate::thread::spawn("other", announce).unwrap().join().unwrap();
        announce();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
