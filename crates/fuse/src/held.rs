//! Answers that are held back until the kernel has dropped the cached content that they make stale.
//!
//! To drop content the kernel may have to write it first, or to wait for a read of it. It delays such
//! requests while too many others are in flight, and requests whose answers are held count as in
//! flight. So only a few answers are held, and none for long; the others are given before their
//! content is dropped.
//!
//! # State
//!
//! The answers in order of arrival, each with the time at which it is given at the latest.
//!
//! # Locking
//!
//! One lock, with nothing taken under it. Answers are given without it.

use drystone_sync::clock::{self, Instant};
use drystone_sync::{Condvar, LockClass, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;

static HELD: LockClass = LockClass::new("answers that are held", 5);

/// How long an answer is held at most: longer than most reads take, because the kernel waits for those.
const LONGEST: Duration = Duration::from_secs(1);

/// Gives an answer.
type Answer<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Names an answer that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Answers that are held.
pub(crate) struct HeldAnswers<'a> {
    most: usize,
    held: Mutex<Held<'a>>,
    changed: Condvar,
}

struct Held<'a> {
    answers: BTreeMap<Ticket, (Instant, Answer<'a>)>,
    next: Ticket,
    /// The watching thread will look again soon by itself.
    is_watched: bool,
    is_ended: bool,
}

impl<'a> HeldAnswers<'a> {
    /// Holds at most `most` answers.
    pub fn at_most(most: usize) -> HeldAnswers<'a> {
        let (answers, next) = (BTreeMap::new(), Ticket(0));
        let held = Held { answers, next, is_watched: false, is_ended: false };
        HeldAnswers { most, held: Mutex::new(&HELD, held), changed: Condvar::new() }
    }

    /// Holds an answer; gives it back if too many are held.
    pub fn hold<T: FnOnce() + Send + 'a>(&self, answer: T) -> Result<Ticket, T> {
        let mut held = self.held.lock();
        if held.answers.len() >= self.most {
            return Err(answer);
        }
        let ticket = held.next;
        held.next.0 += 1;
        held.answers.insert(ticket, (clock::now(), Box::new(answer)));
        if !held.is_watched {
            held.is_watched = true;
            self.changed.notify_one();
        }
        Ok(ticket)
    }

    /// Gives an answer, unless it was held too long.
    pub fn give(&self, ticket: Ticket) {
        let answer = self.held.lock().answers.remove(&ticket);
        if let Some((_, answer)) = answer {
            answer();
        }
    }

    /// Gives answers that have been held too long, until [`end`](HeldAnswers::end).
    pub fn watch(&self) {
        let mut held = self.held.lock();
        loop {
            while let Some(first) = held.answers.first_entry()
                && first.get().0.elapsed() >= LONGEST
            {
                let (_, answer) = first.remove();
                drop(held);
                answer();
                held = self.held.lock();
            }
            if held.answers.is_empty() {
                if held.is_ended {
                    return;
                }
                held.is_watched = false;
                self.changed.wait(&mut held);
            } else {
                self.changed.wait_timeout(&mut held, LONGEST / 4);
            }
        }
    }

    /// No more answers are held from now on.
    pub fn end(&self) {
        self.held.lock().is_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_sync::atomic::{AtomicU64, Ordering};
    use drystone_sync::thread;

    #[test]
    fn answers_are_given_once_and_not_too_late() {
        let given = [const { AtomicU64::new(0) }; 3];
        let answers = HeldAnswers::at_most(2);
        let count = |number: usize| {
            let given = &given[number];
            move || {
                given.fetch_add(1, Ordering::SeqCst);
            }
        };
        let start = clock::now();
        thread::scope(|scope| {
            scope.spawn(|| answers.watch());
            let dropped = answers.hold(count(0)).ok().unwrap();
            let late = answers.hold(count(1)).ok().unwrap();
            assert!(answers.hold(count(2)).is_err());
            answers.give(dropped);
            assert_eq!(given[0].load(Ordering::SeqCst), 1);
            while given[1].load(Ordering::SeqCst) == 0 {
                thread::sleep(LONGEST / 20);
                assert!(start.elapsed() < 60 * LONGEST, "nobody gives the answer");
            }
            assert!(start.elapsed() >= LONGEST);
            answers.give(late);
            // There is room again.
            answers.give(answers.hold(count(2)).ok().unwrap());
            answers.end();
        });
        let times = given.each_ref().map(|times| times.load(Ordering::SeqCst));
        assert_eq!(times, [1, 1, 1]);
    }
}
