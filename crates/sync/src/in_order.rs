//! Work in pieces, done by several threads, whose results are taken in the order of the pieces.
//!
//! # Locks and state
//!
//! One lock guards which piece is next and what is done but not taken yet. A thread begins no piece that is far
//! ahead of the next to be taken, so that results wait in bounded memory. A panic of a piece is passed on where its
//! result would be taken.

use crate::thread::{at_end, scope, spawn_several};
use crate::{Condvar, LockClass, Mutex};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Pieces for each thread that are worked on, or done and not taken.
pub const PIECES_AHEAD: usize = 4;

static PIECES: LockClass = LockClass::new("pieces in order", 5);

struct Queue<T> {
    next: usize,
    taken: usize,
    done: BTreeMap<usize, Result<T, Box<dyn Any + Send>>>,
    /// Nothing more is wanted.
    is_over: bool,
}

/// Does `work` for the pieces `0..count` on so many threads with this name, or with one on this thread, and calls
/// `take` with each result on this one, in order, until it fails.
///
/// # Errors
///
/// That of `take`.
pub fn in_order<T: Send, E>(
    name: &str,
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    if threads == 1 || count <= 1 {
        return (0..count).try_for_each(|piece| take(piece, work(piece)));
    }
    let queue = Queue { next: 0, taken: 0, done: BTreeMap::new(), is_over: false };
    let queue = Mutex::new(&PIECES, queue);
    let (has_room, has_more) = (Condvar::new(), Condvar::new());
    let worker = || {
        loop {
            let piece = {
                let mut queue = queue.lock();
                while !queue.is_over && queue.next >= queue.taken + threads * PIECES_AHEAD {
                    has_room.wait(&mut queue);
                }
                if queue.is_over || queue.next == count {
                    return;
                }
                queue.next += 1;
                queue.next - 1
            };
            // Whoever takes the result panics in its place.
            let result = catch_unwind(AssertUnwindSafe(|| work(piece)));
            queue.lock().done.insert(piece, result);
            has_more.notify_all();
        }
    };
    scope(|scope| {
        let _guard = at_end(|| {
            queue.lock().is_over = true;
            has_room.notify_all();
        });
        if spawn_several(scope, name, threads.min(count), worker).is_err() {
            // This thread is enough.
            return (0..count).try_for_each(|piece| take(piece, work(piece)));
        }
        for piece in 0..count {
            let result = {
                let mut queue = queue.lock();
                loop {
                    if let Some(result) = queue.done.remove(&piece) {
                        queue.taken = piece + 1;
                        break result;
                    }
                    has_more.wait(&mut queue);
                }
            };
            has_room.notify_all();
            take(piece, result.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
        Ok(())
    })
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_until_one_fails() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let double = |piece| piece * 2;
            let all = in_order("test", 100, threads, double, |piece, result| {
                taken.push((piece, result));
                Ok::<(), ()>(())
            });
            assert_eq!(all, Ok(()));
            assert_eq!(taken, (0..100).map(|piece| (piece, piece * 2)).collect::<Vec<_>>());
            let mut count = 0;
            let failed = in_order("test", 1000, threads, double, |piece, _| {
                count += 1;
                if piece == 20 { Err(piece) } else { Ok(()) }
            });
            assert_eq!((failed, count), (Err(20), 21));
        }
    }

    #[test]
    #[should_panic(expected = "piece 5 is bad")]
    fn a_panic_is_passed_on() {
        let work = |piece| assert!(piece < 5, "piece {piece} is bad");
        let _ = in_order("test", 100, 2, work, |_, ()| Ok::<(), ()>(()));
    }
}
