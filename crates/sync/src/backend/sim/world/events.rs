//! What the current thread does at events, and how it waits.
#![allow(unsafe_code)]

use super::super::memory::LineUse;
use super::super::places::SourceLine;
use super::super::work::{Mark, Step};
use super::{ThreadState, clock_ps, is_inside, with};
use std::cell::Cell;

thread_local! {
    /// Whether what the current thread does takes no virtual time.
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// An event: the current thread accesses bytes at an address, when its turn has come.
#[inline]
pub(in super::super) fn event(place: SourceLine, address: usize, bytes: usize, how: LineUse) {
    if !is_inside() || IS_ASIDE.get() {
        return;
    }
    let is_done = with(|world| {
        world.events += 1;
        world.work(Mark::new(place, Step::of(place, how)));
        let has_turn = !world.makes_room() && world.has_turn();
        if has_turn {
            world.touch(place, address, bytes, how);
            world.work.resume();
        }
        has_turn
    });
    if !is_done {
        give_way();
        with(|world| {
            world.touch(place, address, bytes, how);
            world.work.resume();
        });
    }
}

/// An event without memory, before what depends on the order of threads.
pub(in super::super) fn turn(place: SourceLine) {
    event(place, 0, 0, LineUse::Read);
}

/// Runs `body`, which doesn't wait for other threads, in no virtual time.
pub(in super::super) fn aside<T>(body: impl FnOnce() -> T) -> T {
    IS_ASIDE.set(true);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    IS_ASIDE.set(false);
    with(|world| world.work.resume());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Uses bytes at once, as part of an event.
pub(in super::super) fn touch(place: SourceLine, address: usize, bytes: usize, how: LineUse) {
    if is_inside() && !IS_ASIDE.get() {
        with(|world| world.touch(place, address, bytes, how));
    }
}

/// Lets threads run that have smaller clocks. The current one goes on when it has the smallest.
fn give_way() {
    with(|world| {
        let me = world.current;
        let clock = world.threads[me].clock_ps;
        if !world.preempt() {
            world.make_ready(me, clock);
        }
    });
    suspend();
}

/// Stops the current thread, which was put in the queue or will be woken.
fn suspend() {
    let yielder = with(|world| world.threads[world.current].yielder);
    // SAFETY: the yielder lives on the stack of the coroutine that runs now.
    unsafe { (*yielder).suspend(()) };
}

/// Blocks the current thread at a place until it is woken.
pub(in super::super) fn block(place: SourceLine) {
    let since = with(|world| {
        let me = world.current;
        world.threads[me].state = ThreadState::Blocked;
        world.leave();
        world.threads[me].clock_ps
    });
    suspend();
    with(|world| world.was_blocked(place, since));
}

/// Blocks the current thread at a place until it is woken, or some time has passed. Returns whether it has.
pub(in super::super) fn block_for(place: SourceLine, timeout_ps: u64) -> bool {
    let since = clock_ps();
    with(|world| {
        let me = world.current;
        let deadline = world.threads[me].clock_ps.saturating_add(timeout_ps);
        world.make_ready(me, deadline);
        world.threads[me].state = ThreadState::Blocked;
        world.threads[me].was_woken = false;
        world.leave();
    });
    suspend();
    with(|world| {
        world.was_blocked(place, since);
        !world.threads[world.current].was_woken
    })
}

/// The current thread passes some time without work.
pub(in super::super) fn sleep(place: SourceLine, duration_ps: u64) {
    if !is_inside() {
        return;
    }
    with(|world| {
        let me = world.current;
        let until = world.threads[me].clock_ps.saturating_add(duration_ps);
        world.make_ready(me, until);
        world.leave();
    });
    suspend();
    with(|world| world.goes_on(place));
}

/// The current thread waits at a place until a point in time, and is counted as blocked.
pub(in super::super) fn wait_until(place: SourceLine, until_ps: u64) {
    let since = clock_ps();
    sleep(place, until_ps.saturating_sub(since));
    with(|world| world.was_blocked(place, since));
}
