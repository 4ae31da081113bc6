//! A run from its start to its end: resumes one thread after the other.

use super::super::machine::MachineModel;
use super::super::memory::Memory;
use super::super::places::Places;
use super::super::work::{MeasuredStretch, Work, WorkUse, Worker};
use super::cpus::Cpus;
use super::order::{Order, Schedule};
use super::{IS_INSIDE, ThreadState, WORLD, World, is_inside, with};
use corosensei::CoroutineResult;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct SimulationSettings {
    /// The machine.
    pub machine: MachineModel,
    /// Processors that may be used.
    pub cpus: usize,
    /// What work between events takes.
    pub work: Work,
    /// How spinlocks are passed on.
    pub spin_locks: SpinLocks,
    /// Chooses how threads that start together are shifted against each other, and what the schedule
    /// leaves to chance.
    pub seed: u64,
    /// Which thread goes on.
    pub schedule: Schedule,
    /// The most virtual time that a run may take.
    pub time_max: Duration,
    /// The defect that [`planted`](crate::planted) finds.
    pub planted: Option<String>,
}

impl SimulationSettings {
    /// A run on some processors of a machine, in the order of the clocks, without a bound on its time.
    #[must_use]
    pub fn new(machine: MachineModel, cpus: usize, work: Work) -> SimulationSettings {
        SimulationSettings {
            machine,
            cpus,
            work,
            spin_locks: SpinLocks::default(),
            seed: 0,
            schedule: Schedule::SmallestClock,
            time_max: Duration::MAX,
            planted: None,
        }
    }
}

/// How a [`SpinLock`](crate::SpinLock) goes from one thread to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpinLocks {
    /// As in the engine: a thread that is late sleeps, and one that comes may be first.
    #[default]
    Sleeping,
    /// In the order of arrival; all that wait look at one line, as in Linux before 4.2.
    Ticket,
    /// In the order of arrival; each looks at a line of its own, as in Linux since.
    Queued,
}

/// The cost of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationReport {
    /// Events.
    pub events: u64,
    /// Virtual time from the start to the end, in nanoseconds.
    pub virtual_ns: u64,
    /// Follows from the order in which threads went on: equal runs have equal ones.
    pub trace: u64,
    /// How the work before events was found.
    pub work: WorkUse,
    /// What was measured of stretches.
    pub stretches: Vec<MeasuredStretch>,
}

/// Ends the current thread's locals, while it is still there for their destructors.
fn drop_locals() {
    let locals = with(|world| {
        let me = world.current;
        std::mem::take(&mut world.threads[me].locals)
    });
    drop(locals);
}

/// Runs `body` as the first of the virtual threads that it starts, and returns what it returns. Threads
/// that are left then are abandoned where they are.
///
/// # Panics
/// If `body` does, if all threads wait, and if the run takes more than its time.
pub fn run<T>(settings: &SimulationSettings, body: impl FnOnce() -> T) -> (T, SimulationReport) {
    assert!(!is_inside(), "a simulation inside a simulation");
    let result = std::rc::Rc::new(Cell::new(None));
    let slot = std::rc::Rc::clone(&result);
    let body: Box<dyn FnOnce() + '_> = Box::new(move || slot.set(Some(catch(body))));
    // SAFETY: only the lifetime changes, and the first thread has ended, or has been given up, before
    // this function does.
    let body: Box<dyn FnOnce()> =
        unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(body) };
    WORLD.set(Some(World {
        machine: settings.machine.clone(),
        // A schedule that is chosen knows no processors.
        cpus: (settings.schedule == Schedule::SmallestClock)
            .then(|| Cpus::new(settings.cpus.max(1))),
        cpu_count: settings.cpus.max(1),
        spin_locks: settings.spin_locks,
        work: Worker::new(settings.work.clone()),
        random: settings.seed,
        memory: Memory::default(),
        places: Places::default(),
        threads: Vec::new(),
        order: Order::new(settings.schedule, settings.seed),
        trace: 0,
        time_max_ps: u64::try_from(settings.time_max.as_nanos() * 1000).unwrap_or(u64::MAX),
        planted: settings.planted.clone(),
        events: 0,
        current: 0,
        waiters: HashMap::new(),
        sleepers: HashMap::new(),
    }));
    let first = with(|world| world.spawn("main".to_string(), body));
    loop {
        let thread = with(World::next);
        let Some(mut coroutine) = with(|world| {
            world.current = thread;
            world.threads[thread].coroutine.take()
        }) else {
            unreachable!("thread {thread} runs and is ready")
        };
        IS_INSIDE.set(true);
        let resumed = coroutine.resume(());
        IS_INSIDE.set(false);
        match resumed {
            CoroutineResult::Yield(()) => {
                with(|world| world.threads[thread].coroutine = Some(coroutine));
            }
            CoroutineResult::Return(()) => {
                let has_ended = with(|world| {
                    let at = world.threads[thread].clock_ps;
                    world.threads[thread].state = ThreadState::Ended;
                    world.leave();
                    for joiner in std::mem::take(&mut world.threads[thread].joiners) {
                        world.wake(joiner, at);
                    }
                    thread == first
                });
                if has_ended {
                    break;
                }
            }
        }
    }
    let Some(mut world) = WORLD.take() else { unreachable!("the run has a world") };
    for thread in &mut world.threads {
        if let Some(coroutine) = &mut thread.coroutine {
            // SAFETY: only threads that are abandoned with it refer to its stack.
            unsafe { coroutine.force_reset() };
        }
    }
    let (work, stretches) = world.work.finish();
    let report = SimulationReport {
        events: world.events,
        virtual_ns: world.threads[first].clock_ps / 1000,
        trace: world.trace,
        work,
        stretches,
    };
    match result.take() {
        Some(Ok(value)) => (value, report),
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => unreachable!("the first thread has ended"),
    }
}

/// Runs the body of a thread to its end, panic or not, with its locals.
pub(in super::super) fn catch<T>(body: impl FnOnce() -> T) -> std::thread::Result<T> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    drop_locals();
    result
}
