//! Ends the test program when something hangs.

use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use std::time::Duration;

/// The interval of the guard's checks.
const STEP: Duration = Duration::from_millis(100);

/// The time runs until this is dropped.
pub struct Watch(Arc<AtomicBool>);

/// Ends the program if the result lives longer than `seconds`.
pub fn watch(seconds: u64, what: impl Into<String>) -> Watch {
    let (is_done, what) = (Arc::new(AtomicBool::new(false)), what.into());
    let seen = Arc::clone(&is_done);
    let guard = move || {
        for _ in 0..seconds * 10 {
            thread::sleep(STEP);
            if seen.load(Ordering::Acquire) {
                return;
            }
        }
        eprintln!("HANGS for {seconds} seconds: {what}");
        std::process::abort();
    };
    thread::spawn("watch", guard).unwrap();
    Watch(is_done)
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
