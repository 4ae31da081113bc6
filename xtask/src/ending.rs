//! Cleans up what this process sets up outside itself (mounts, kernel settings) when it is done, when
//! it fails, and when a signal ends it.
//!
//! # State
//! The list of what is still to be cleaned up. Whichever thread takes an item out of the list cleans it up:
//! that of the guard that goes out of scope, or the one that waits for a signal and then ends the process.
//!
//! # Locking
//! One lock around the list, not held while something is taken down.

use anyhow::Context;
use drystone_sync::{LazyLock, LockClass, Mutex, thread};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static CLASS: LockClass = LockClass::new("what is taken down at the end", 1);

static LIST: LazyLock<Mutex<CleanupList>> =
    LazyLock::new(|| Mutex::new(&CLASS, CleanupList::default()));

/// What a shell says of a process that a signal ended: this and the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

#[derive(Default)]
struct CleanupList {
    pieces: Vec<(u64, Box<dyn FnOnce() + Send>)>,
    count: u64,
}

/// Takes something down when it is dropped, or when a signal comes before.
pub struct AtEnd(u64);

/// Has `work` done at the end. What is put here last is taken down first.
pub fn at_end(work: impl FnOnce() + Send + 'static) -> anyhow::Result<AtEnd> {
    let mut list = LIST.lock();
    if list.count == 0 {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("can't handle signals")?;
        thread::spawn("signals", move || {
            if let Some(signal) = signals.forever().next() {
                eprintln!("xtask: signal {signal}: taking down what was set up");
                while let Some((_, work)) = pop() {
                    work();
                }
                std::process::exit(ENDED_BY_SIGNAL + signal);
            }
        })?;
    }
    list.count += 1;
    let number = list.count;
    list.pieces.push((number, Box::new(work)));
    Ok(AtEnd(number))
}

fn pop() -> Option<(u64, Box<dyn FnOnce() + Send>)> {
    LIST.lock().pieces.pop()
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        let mut list = LIST.lock();
        let place = list.pieces.iter().position(|(number, _)| *number == self.0);
        let piece = place.map(|place| list.pieces.remove(place));
        drop(list);
        if let Some((_, work)) = piece {
            work();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::Arc;
    use drystone_sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn what_goes_out_of_scope_is_taken_down_once() {
        let done = Arc::new(AtomicU32::new(0));
        let add = |number| {
            let done = Arc::clone(&done);
            let work = move || {
                done.fetch_add(number, Ordering::Relaxed);
            };
            at_end(work).unwrap()
        };
        let (first, second) = (add(1), add(10));
        drop(first);
        assert_eq!(done.load(Ordering::Relaxed), 1);
        drop(second);
        assert_eq!(done.load(Ordering::Relaxed), 11);
    }
}
