//! Where the threads of a measurement wait for each other.

use super::memory::LineUse;
use super::places::SourceLine;
use super::world::{self, ThreadId};
use std::sync::{Mutex, PoisonError};

/// The most that a thread goes on after the first one.
const SHIFT_MAX_PS: u64 = 1_000_000;

/// As `std::sync::Barrier`, but all threads go on within [`SHIFT_MAX_PS`], shifted at random: what is
/// measured shall not begin with the time that it takes to wake them one after the other.
pub struct Barrier {
    threads: usize,
    waiting: Mutex<Vec<ThreadId>>,
}

impl Barrier {
    /// A barrier for so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, waiting: Mutex::default() }
    }

    /// Waits until all have come.
    #[track_caller]
    pub fn wait(&self) {
        assert!(world::is_inside(), "nothing runs beside a simulation that could come");
        let place = SourceLine::of("barrier");
        // Nobody who came earlier by the clock may come later.
        world::event(place, 0, 0, LineUse::Read);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + 1 < self.threads {
            waiting.push(world::with(|world| world.current()));
            drop(waiting);
            world::block(place);
            return;
        }
        let all = std::mem::take(&mut *waiting);
        world::with(|world| {
            let now = world.clock_of(world.current());
            for thread in all {
                let shift = world.random_ps(SHIFT_MAX_PS);
                world.wake(thread, now + shift);
            }
        });
    }
}
