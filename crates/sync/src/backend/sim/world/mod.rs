//! The threads of a run, and what they do: events, waits, sleep.
#![allow(unsafe_code)]

mod cpus;
mod events;
mod order;
mod run;

use super::locks::Waiters;
use super::machine::MachineModel;
use super::memory::{LineUse, Memory};
use super::places::{PlaceCosts, Places, SourceLine};
use super::work::{Mark, Step, Worker};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use cpus::{Admission, Cpus};
pub(super) use events::{aside, block, block_for, event, sleep, touch, turn, wait_until};
use order::Order;
pub use order::Schedule;
pub(super) use run::catch;
pub use run::{SimulationReport, SimulationSettings, SpinLocks, run};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;

/// Bytes of a thread's stack; memory is used only where it is touched.
const STACK_BYTES: usize = 1 << 20;

/// A thread's number.
pub(super) type ThreadId = usize;

/// Why a thread doesn't run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    /// It can go on, or does, or will when some time has passed.
    Ready,
    /// It waits to be woken.
    Blocked,
    Ended,
}

struct VirtualThread {
    coroutine: Option<Coroutine<(), (), ()>>,
    yielder: *const Yielder<(), ()>,
    name: String,
    /// The number of the name in [`Places`].
    group: usize,
    /// Where it last said that it uses a lock.
    at: SourceLine,
    /// Where the code began that it runs now.
    since: Mark,
    /// The processor that it was given at its start.
    home: usize,
    cpu: usize,
    clock_ps: u64,
    busy_ps: u64,
    state: ThreadState,
    /// Whether another thread has ended its wait.
    was_woken: bool,
    locals: BTreeMap<usize, Box<dyn Any>>,
    /// Threads that wait for its end.
    joiners: Vec<ThreadId>,
}

pub(super) struct World {
    machine: MachineModel,
    /// None where processors don't matter.
    cpus: Option<Cpus>,
    cpu_count: usize,
    spin_locks: SpinLocks,
    work: Worker,
    random: u64,
    memory: Memory,
    places: Places,
    threads: Vec<VirtualThread>,
    order: Order,
    /// Follows from all choices of threads.
    trace: u64,
    time_max_ps: u64,
    planted: Option<String>,
    events: u64,
    current: ThreadId,
    /// By the address that they wait at.
    waiters: HashMap<usize, Waiters>,
    sleepers: HashMap<usize, VecDeque<ThreadId>>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    /// Whether a virtual thread runs now.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is a virtual thread.
pub(super) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Runs `look` on the world of the run.
pub(super) fn with<T>(look: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| match world {
        Some(world) => look(world),
        None => unreachable!("a virtual thread without a world"),
    })
}

/// Notes where the current thread is about to use a lock.
pub(crate) fn set_place(place: SourceLine) {
    if is_inside() {
        with(|world| {
            let me = world.current;
            world.threads[me].at = place;
        });
    }
}

/// Where the current thread uses a lock.
pub(super) fn place() -> SourceLine {
    if is_inside() { with(|world| world.threads[world.current].at) } else { SourceLine::here() }
}

/// What places have cost until now.
#[must_use]
pub fn costs() -> Vec<PlaceCosts> {
    if is_inside() { with(|world| world.places.all()) } else { Vec::new() }
}

/// Whether the run has the defect of this name.
#[must_use]
pub fn is_planted(name: &str) -> bool {
    is_inside() && with(|world| world.planted.as_deref() == Some(name))
}

pub(super) fn clock_ps() -> u64 {
    if is_inside() { with(|world| world.threads[world.current].clock_ps) } else { 0 }
}

pub(super) fn busy_ps() -> u64 {
    if is_inside() { with(|world| world.threads[world.current].busy_ps) } else { 0 }
}

pub(super) fn core_count() -> usize {
    if is_inside() { with(|world| world.cpu_count) } else { 1 }
}

pub(super) fn current_core() -> usize {
    if is_inside() { with(|world| world.threads[world.current].cpu) } else { 0 }
}

impl World {
    pub fn current(&self) -> ThreadId {
        self.current
    }

    pub fn machine(&self) -> &MachineModel {
        &self.machine
    }

    pub fn spin_locks(&self) -> SpinLocks {
        self.spin_locks
    }

    /// The cost of a line of the current thread for another.
    pub fn transfer_ps(&self, to: ThreadId) -> u64 {
        self.machine.transfer_ps(self.threads[self.current].cpu, self.threads[to].cpu)
    }

    pub fn clock_of(&self, thread: ThreadId) -> u64 {
        self.threads[thread].clock_ps
    }

    pub fn has_ended(&self, thread: ThreadId) -> bool {
        self.threads[thread].state == ThreadState::Ended
    }

    pub fn join_later(&mut self, thread: ThreadId) {
        let me = self.current;
        self.threads[thread].joiners.push(me);
    }

    /// A random time below `bound_ps`.
    pub fn random_ps(&mut self, bound_ps: u64) -> u64 {
        random(&mut self.random) % bound_ps
    }

    /// Threads that wait for the lock at an address.
    pub fn waiters(&self, lock: usize) -> Option<&Waiters> {
        self.waiters.get(&lock)
    }

    pub fn waiters_mut(&mut self, lock: usize) -> &mut Waiters {
        self.waiters.entry(lock).or_default()
    }

    pub fn take_waiters(&mut self, lock: usize) -> Option<Waiters> {
        self.waiters.remove(&lock)
    }

    /// Threads that wait at the condition variable at an address.
    pub fn sleepers(&mut self, place: usize) -> &mut VecDeque<ThreadId> {
        self.sleepers.entry(place).or_default()
    }

    /// The current thread has come to an event: it has worked.
    fn work(&mut self, to: Mark) {
        let thread = &mut self.threads[self.current];
        let mut work = self.work.done(thread.since, to);
        thread.since = to;
        if let Some(cpus) = &self.cpus {
            work = work * self.machine.work_permille / 1000;
            if self.machine.siblings(thread.cpu).any(|cpu| cpus.is_busy(cpu)) {
                work = work * self.machine.shared_core_permille / 1000;
            }
        }
        self.spend(work);
    }

    /// Whether the current thread has to make room for one that waits for its processor.
    fn makes_room(&self) -> bool {
        let thread = &self.threads[self.current];
        self.cpus.as_ref().is_some_and(|cpus| cpus.is_preempted(thread.cpu, thread.clock_ps))
    }

    /// Lets the current thread wait for its processor, if it has to make room.
    fn preempt(&mut self) -> bool {
        if !self.makes_room() {
            return false;
        }
        let (me, cpu) = (self.current, self.threads[self.current].cpu);
        if let Some(cpus) = &mut self.cpus {
            cpus.put_last(me, cpu);
        }
        self.leave();
        true
    }

    /// The current thread gives its processor back.
    fn leave(&mut self) {
        let Some(cpus) = &mut self.cpus else { return };
        let thread = &self.threads[self.current];
        let (cpu, now) = (thread.cpu, thread.clock_ps);
        if let Some(next) = cpus.release(&self.machine, cpu, now) {
            self.threads[next].cpu = cpu;
            let at = self.threads[next].clock_ps.max(now + self.machine.switch_ps);
            self.make_ready(next, at);
        }
    }

    /// The current thread goes on after it was blocked or asleep.
    fn goes_on(&mut self, place: SourceLine) {
        self.threads[self.current].since = Mark::new(place, Step::Resume);
        self.work.resume();
    }

    /// The current thread works for some time.
    pub fn spend(&mut self, duration_ps: u64) {
        let thread = &mut self.threads[self.current];
        thread.clock_ps += duration_ps;
        thread.busy_ps += duration_ps;
    }

    fn touch(&mut self, place: SourceLine, address: usize, bytes: usize, how: LineUse) {
        if matches!(self.order, Order::Chosen(_)) {
            // Costs decide nothing then.
            return;
        }
        let thread = &mut self.threads[self.current];
        let now = thread.clock_ps;
        let paid = self.memory.touch(&self.machine, thread.cpu, address, bytes, how, now);
        thread.busy_ps += paid.end_ps - now;
        thread.clock_ps = paid.end_ps;
        if paid.transfers > 0 {
            let costs = self.places.at(thread.group, place);
            costs.transfers += paid.transfers;
            costs.queue_ps += paid.queue_ps;
            costs.transfer_ps += paid.transfer_ps;
        }
    }

    /// Notes how long a thread was blocked at a place.
    fn was_blocked(&mut self, place: SourceLine, since_ps: u64) {
        let thread = &self.threads[self.current];
        self.places.at(thread.group, place).blocked_ps += thread.clock_ps - since_ps;
        self.goes_on(place);
    }

    /// Whether the current thread goes on with its event.
    fn has_turn(&mut self) -> bool {
        self.order.stays(self.current, self.threads[self.current].clock_ps)
    }

    /// The current thread lets others go on.
    pub fn yields(&mut self) {
        self.order.yields(self.current);
        let cpu = self.threads[self.current].cpu;
        if let Some(cpus) = &mut self.cpus {
            cpus.end_slice(cpu);
        }
    }

    /// A thread goes on at `at_ps`, or when it is woken before.
    fn make_ready(&mut self, thread: ThreadId, at_ps: u64) {
        self.threads[thread].state = ThreadState::Ready;
        self.order.put(thread, at_ps);
    }

    /// Wakes a blocked thread, which goes on at `at_ps` or later. Returns whether it was blocked.
    pub fn wake(&mut self, thread: ThreadId, at_ps: u64) -> bool {
        if self.threads[thread].state != ThreadState::Blocked {
            return false;
        }
        let at = at_ps.max(self.threads[thread].clock_ps);
        self.threads[thread].was_woken = true;
        self.make_ready(thread, at);
        true
    }

    pub fn spawn(&mut self, name: String, body: Box<dyn FnOnce()>) -> ThreadId {
        let id = self.threads.len();
        let start = match self.threads.get(self.current) {
            Some(parent) => parent.clock_ps + self.machine.spawn_ps,
            None => 0,
        };
        let stack = match DefaultStack::new(STACK_BYTES) {
            Ok(stack) => stack,
            Err(error) => panic!("no memory for the stack of a virtual thread: {error}"),
        };
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            with(|world| {
                world.threads[id].yielder = std::ptr::from_ref(yielder);
                world.work.resume();
            });
            body();
        });
        let group = self.places.name(&name);
        self.threads.push(VirtualThread {
            coroutine: Some(coroutine),
            yielder: std::ptr::null(),
            name,
            group,
            at: SourceLine::here(),
            since: Mark::new(SourceLine::here(), Step::Start),
            // The first one prepares and waits, so it needs none of its own.
            home: id.saturating_sub(1) % self.cpu_count,
            cpu: id.saturating_sub(1) % self.cpu_count,
            clock_ps: start,
            busy_ps: 0,
            state: ThreadState::Blocked,
            was_woken: false,
            locals: BTreeMap::new(),
            joiners: Vec::new(),
        });
        self.make_ready(id, start);
        id
    }

    /// A thread's local value, by the address of its key.
    pub fn local(&mut self, key: usize) -> Option<*const ()> {
        let locals = &self.threads[self.current].locals;
        locals.get(&key).map(|value| std::ptr::from_ref(&**value).cast())
    }

    pub fn set_local(&mut self, key: usize, value: Box<dyn Any>) {
        let me = self.current;
        self.threads[me].locals.insert(key, value);
    }

    /// The thread that goes on.
    ///
    /// # Panics
    /// If there is none, or the run has lasted too long.
    fn next(&mut self) -> ThreadId {
        let thread = loop {
            let now = self.threads[self.current].clock_ps;
            let Some((thread, at)) = self.order.next(now) else {
                panic!("every thread waits:{}", self.waiting());
            };
            let entry = &mut self.threads[thread];
            entry.state = ThreadState::Ready;
            entry.clock_ps = entry.clock_ps.max(at);
            let Some(cpus) = &mut self.cpus else { break thread };
            match cpus.admit(&self.machine, thread, entry.home, entry.cpu, entry.clock_ps) {
                Admission::Runs { cpu, switches } => {
                    entry.cpu = cpu;
                    entry.clock_ps += u64::from(switches) * self.machine.switch_ps;
                    break thread;
                }
                Admission::Waits => {}
            }
        };
        let entry = &self.threads[thread];
        self.trace = self.trace.rotate_left(5) ^ thread as u64;
        self.trace = self.trace.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if entry.clock_ps > self.time_max_ps {
            panic!("the run doesn't end:{}", self.waiting());
        }
        thread
    }

    /// The threads that have not ended, and where they last used a lock.
    fn waiting(&self) -> String {
        let mut text = String::new();
        for thread in self.threads.iter().filter(|thread| thread.state != ThreadState::Ended) {
            // Writing to a string can't fail.
            let _ = write!(text, "\n  {} ({:?}) at {}", thread.name, thread.state, thread.at);
        }
        text
    }
}

/// The next random number (G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators").
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
