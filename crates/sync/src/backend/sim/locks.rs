//! Locks without classes, modelled on `parking_lot`: one word; a waiter spins for a while and then
//! sleeps; a released lock goes to the thread that comes first.
#![allow(unsafe_code)]

use super::super::lendable::Lendable;
use super::memory::LineUse;
use super::places::SourceLine;
use super::world::{self, SpinLocks, ThreadId, World};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Threads that wait for a lock, in order of arrival. They are kept outside the lock, by its address
/// (`World::waiters`), so that a lock is as large as a real one.
pub(super) type Waiters = VecDeque<Waiter>;

#[derive(Clone, Copy)]
pub(super) struct Waiter {
    thread: ThreadId,
    since_ps: u64,
    wants_write: bool,
    /// It is given the lock in its turn, still taken.
    is_in_turn: bool,
}

/// The state of a lock: how many read, or that one writes.
pub(crate) trait Word: Default {
    fn get(&self) -> usize;
    fn set(&self, state: usize);
}

impl Word for Cell<usize> {
    fn get(&self) -> usize {
        Cell::get(self)
    }

    fn set(&self, state: usize) {
        Cell::set(self, state);
    }
}

/// For locks without readers.
impl Word for Cell<u8> {
    fn get(&self) -> usize {
        if Cell::get(self) == 0 { 0 } else { WRITTEN }
    }

    fn set(&self, state: usize) {
        Cell::set(self, u8::from(state != 0));
    }
}

const WRITTEN: usize = usize::MAX;

/// Readers or a writer.
pub(crate) struct Lock<W, T> {
    word: W,
    value: UnsafeCell<T>,
}

// SAFETY: all virtual threads run on one system thread; the word keeps readers and writers apart.
unsafe impl<W, T: Send> Send for Lock<W, T> {}
// SAFETY: as above.
unsafe impl<W, T: Send + Sync> Sync for Lock<W, T> {}

pub(crate) type RwLock<T> = Lock<Cell<usize>, T>;

impl<W: Word, T> Lock<W, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { word: W::default(), value: UnsafeCell::new(value) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn event(&self, place: SourceLine) {
        world::event(place, std::ptr::from_ref(&self.word).addr(), size_of::<W>(), LineUse::Modify);
    }

    fn has_waiting_writer(&self) -> bool {
        world::is_inside()
            && world::with(|world| {
                world
                    .waiters(self.address())
                    .is_some_and(|all| all.iter().any(|one| one.wants_write))
            })
    }

    fn lock_shared_at_once(&self, place: SourceLine) -> bool {
        self.event(place);
        if self.word.get() == WRITTEN || self.has_waiting_writer() {
            return false;
        }
        self.word.set(self.word.get() + 1);
        world::touch(place, self.value.get().addr(), size_of::<T>(), LineUse::Read);
        true
    }

    fn try_lock_exclusively(&self, place: SourceLine) -> Option<LockGuard<'_, W, T>> {
        self.event(place);
        if self.word.get() != 0 {
            return None;
        }
        self.word.set(WRITTEN);
        world::touch(place, self.value.get().addr(), size_of::<T>(), LineUse::Write);
        Some(LockGuard { lock: self, place })
    }

    pub(super) fn lock_exclusively(&self, place: SourceLine) -> LockGuard<'_, W, T> {
        let since = world::clock_ps();
        loop {
            if let Some(guard) = self.try_lock_exclusively(place) {
                return guard;
            }
            self.wait(place, true, since);
        }
    }

    /// Waits until woken. The lock is tried again then, and may be taken.
    fn wait(&self, place: SourceLine, wants_write: bool, since_ps: u64) {
        assert!(world::is_inside(), "a lock is held for ever: nothing runs beside a simulation");
        world::with(|world| {
            let thread = world.current();
            let waiter = Waiter { thread, since_ps, wants_write, is_in_turn: false };
            world.waiters_mut(self.address()).push_back(waiter);
        });
        world::block(place);
    }

    /// Wakes threads that may have the lock now: one writer, or all readers.
    fn pass_on(&self) {
        if !world::is_inside() || self.word.get() == WRITTEN {
            return;
        }
        let is_free = self.word.get() == 0;
        world::with(|world| {
            let Some(mut waiters) = world.take_waiters(self.address()) else { return };
            let wakes_writer =
                is_free && wake_one(world, &mut waiters, |one| one.wants_write && !one.is_in_turn);
            if !wakes_writer && !waiters.iter().any(|waiter| waiter.wants_write) {
                while wake_one(world, &mut waiters, |_| true) {}
            }
            if !waiters.is_empty() {
                *world.waiters_mut(self.address()) = waiters;
            }
        });
    }

    fn unlock_shared(&self, place: SourceLine) {
        self.event(place.releasing());
        self.word.set(self.word.get() - 1);
        self.pass_on();
    }

    /// Without an event.
    pub(super) fn release(&self) {
        if self.hand_over() {
            return;
        }
        self.word.set(0);
        self.pass_on();
    }

    /// Takes the lock in the order of arrival, as a ticket or a queued spinlock does.
    fn lock_in_turn(&self, place: SourceLine) -> LockGuard<'_, W, T> {
        if let Some(guard) = self.try_lock_exclusively(place) {
            return guard;
        }
        world::with(|world| {
            let (thread, since_ps) = (world.current(), 0);
            let waiter = Waiter { thread, since_ps, wants_write: true, is_in_turn: true };
            world.waiters_mut(self.address()).push_back(waiter);
        });
        world::block(place);
        // It comes with its line.
        world::touch(place, std::ptr::from_ref(&self.word).addr(), size_of::<W>(), LineUse::Read);
        world::touch(place, self.value.get().addr(), size_of::<T>(), LineUse::Write);
        LockGuard { lock: self, place }
    }

    /// Gives the lock, still taken, to the first thread that waits in turn. Before it notices, the others that
    /// look at a ticket lock's line have got it again too, half of them on average.
    fn hand_over(&self) -> bool {
        world::is_inside()
            && world::with(|world| {
                let Some(waiters) = world.waiters(self.address()) else { return false };
                let count = waiters.len() as u64;
                let Some(first) = waiters.front().filter(|first| first.is_in_turn) else {
                    return false;
                };
                let thread = first.thread;
                let delay = match world.spin_locks() {
                    SpinLocks::Ticket => world.transfer_ps(thread) * (count - 1) / 2,
                    SpinLocks::Queued | SpinLocks::Sleeping => 0,
                };
                world.waiters_mut(self.address()).pop_front();
                if count == 1 {
                    world.take_waiters(self.address());
                }
                let now = world.clock_of(world.current());
                world.wake(thread, now + delay);
                true
            })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// Wakes a thread that may take the lock: one that still spins gets it at once; waking a sleeping one
/// also costs the current thread time.
fn wake_one(world: &mut World, waiters: &mut Waiters, is_able: impl Fn(&Waiter) -> bool) -> bool {
    let now = world.clock_of(world.current());
    let spin = world.machine().spin_ps;
    let spins = |waiter: &Waiter| now.saturating_sub(waiter.since_ps) < spin;
    let place = waiters
        .iter()
        .position(|waiter| is_able(waiter) && spins(waiter))
        .or_else(|| waiters.iter().position(&is_able));
    let Some(waiter) = place.and_then(|place| waiters.remove(place)) else { return false };
    if spins(&waiter) {
        world.wake(waiter.thread, now);
    } else {
        let (wake, latency) = (world.machine().wake_ps, world.machine().wake_latency_ps);
        world.spend(wake);
        world.wake(waiter.thread, now + latency);
    }
    true
}

impl<T> RwLock<T> {
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.read_at_once(world::place())
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_lock_exclusively(world::place())
    }

    fn read_at_once(&self, place: SourceLine) -> Option<RwLockReadGuard<'_, T>> {
        self.lock_shared_at_once(place).then(|| RwLockReadGuard { lock: self, place })
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        let (since, place) = (world::clock_ps(), world::place());
        loop {
            if let Some(guard) = self.read_at_once(place) {
                return guard;
            }
            // If readers only wait for a waiting writer, nothing else would wake it.
            self.pass_on();
            self.wait(place, false, since);
        }
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.lock_exclusively(world::place())
    }
}

pub(crate) type RwLockWriteGuard<'a, T> = LockGuard<'a, Cell<usize>, T>;

/// The one thread that may write.
pub(crate) struct LockGuard<'a, W: Word, T> {
    pub(super) lock: &'a Lock<W, T>,
    place: SourceLine,
}

pub(crate) struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    place: SourceLine,
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while a reader holds the lock no thread writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<W: Word, T> Deref for LockGuard<'_, W, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the writer is alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<W: Word, T> DerefMut for LockGuard<'_, W, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the writer is alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.unlock_shared(self.place);
    }
}

impl<W: Word, T> Drop for LockGuard<'_, W, T> {
    fn drop(&mut self) {
        self.lock.event(self.place.releasing());
        self.lock.release();
    }
}

pub(crate) struct Mutex<T>(Lock<Cell<u8>, T>);

// SAFETY: as above, and there are no readers at once.
unsafe impl<T: Send> Sync for Mutex<T> {}

pub(crate) type MutexGuard<'a, T> = Lendable<LockGuard<'a, Cell<u8>, T>>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Lock::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        Lendable::new(self.0.lock_exclusively(world::place()))
    }

    /// Takes the lock as the run's [`SpinLocks`] do.
    pub(crate) fn lock_spinning(&self) -> MutexGuard<'_, T> {
        let spin_locks = match world::is_inside() {
            true => world::with(|world| world.spin_locks()),
            false => SpinLocks::Sleeping,
        };
        match spin_locks {
            SpinLocks::Sleeping => self.lock(),
            SpinLocks::Ticket | SpinLocks::Queued => {
                Lendable::new(self.0.lock_in_turn(world::place()))
            }
        }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock_exclusively(world::place()).map(Lendable::new)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
