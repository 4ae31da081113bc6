//! Condition variables.

use super::locks::MutexGuard;
use super::memory::LineUse;
use super::world;
use std::fmt;
use std::time::Duration;

/// A condition variable: one word. Its waiting threads are kept by its address (`World::sleepers`).
#[derive(Default)]
pub(crate) struct Condvar {
    word: usize,
}

pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until(guard, None);
    }

    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        // A wait of more than 200 days doesn't end.
        let timeout = u64::try_from(timeout.as_nanos() * 1000).ok();
        WaitTimeoutResult(self.wait_until(guard, timeout))
    }

    fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, timeout_ps: Option<u64>) -> bool {
        assert!(world::is_inside(), "nothing runs beside a simulation that could end the wait");
        let me = world::with(|world| world.current());
        let at = world::place();
        let lock = match guard.0.take() {
            Some(held) => std::mem::ManuallyDrop::new(held).lock,
            None => unreachable!("a guard waits once at a time"),
        };
        // No event comes between the unlocking and the wait, or a notification could be lost.
        lock.event(at.releasing());
        let place = self.address();
        world::with(|world| world.sleepers(place).push_back(me));
        lock.release();
        let is_late = match timeout_ps {
            Some(timeout) => world::block_for(at, timeout),
            None => {
                world::block(at);
                false
            }
        };
        if is_late {
            world::with(|world| world.sleepers(place).retain(|&thread| thread != me));
        }
        guard.0 = Some(lock.lock_exclusively(at));
        is_late
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.word).addr()
    }

    fn wake(&self, count: usize) {
        world::event(world::place(), self.address(), size_of::<usize>(), LineUse::Read);
        if !world::is_inside() {
            return;
        }
        let mut woken = 0;
        while woken < count {
            let next = world::with(|world| world.sleepers(self.address()).pop_front());
            let Some(thread) = next else { return };
            woken += usize::from(world::with(|world| {
                let (wake, latency) = (world.machine().wake_ps, world.machine().wake_latency_ps);
                let at = world.clock_of(world.current()) + wake + latency;
                // A thread whose time has just run out doesn't hear it.
                let is_woken = world.wake(thread, at);
                world.spend(if is_woken { wake } else { 0 });
                is_woken
            }));
        }
    }

    pub(crate) fn notify_one(&self) {
        self.wake(1);
    }

    pub(crate) fn notify_all(&self) {
        self.wake(usize::MAX);
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Condvar")
    }
}
