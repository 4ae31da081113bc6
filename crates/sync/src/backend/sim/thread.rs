//! Threads of a run.
#![allow(unsafe_code)]

use super::memory::LineUse;
use super::places::SourceLine;
use super::world::{self, ThreadId};
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
pub use std::thread::{current, panicking};
use std::time::Duration;

/// The time that the scheduler takes to switch threads.
const YIELD_PS: u64 = 300_000;

type Outcome<T> = Arc<Mutex<Option<std::thread::Result<T>>>>;

/// A handle to wait for a thread.
pub struct JoinHandle<T> {
    thread: ThreadId,
    outcome: Outcome<T>,
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        wait_for(self.thread);
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        match outcome {
            Some(outcome) => outcome,
            None => unreachable!("a thread that has ended has an outcome"),
        }
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        world::with(|world| world.has_ended(self.thread))
    }
}

fn wait_for(thread: ThreadId) {
    while !world::with(|world| world.has_ended(thread)) {
        world::with(|world| world.join_later(thread));
        world::block(SourceLine::of("end of a thread"));
    }
}

/// Starts a thread that ends before what it borrows.
fn start<T: Send>(name: String, body: impl FnOnce() -> T + Send) -> JoinHandle<T> {
    assert!(world::is_inside(), "a thread outside of a simulation");
    let outcome: Outcome<T> = Arc::default();
    let slot = Arc::clone(&outcome);
    let body: Box<dyn FnOnce() + '_> = Box::new(move || {
        let result = world::catch(body);
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    // SAFETY: only the lifetime changes. `spawn` requires `'static`; a scope waits for its threads
    // before what they borrow ends, also in a panic.
    let body: Box<dyn FnOnce()> =
        unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(body) };
    JoinHandle { thread: world::with(|world| world.spawn(name, body)), outcome }
}

/// Starts a thread with a name.
///
/// # Errors
/// None here.
pub fn spawn<F, T>(name: impl Into<String>, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Ok(start(name.into(), body))
}

/// Threads that end before what they borrow.
pub struct Scope<'scope, 'env: 'scope> {
    threads: RefCell<Vec<ThreadId>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

// SAFETY: all virtual threads run on one system thread.
unsafe impl Sync for Scope<'_, '_> {}

/// A thread of a scope.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        self.handle.join()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<F, T>(&'scope self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let handle = start("scoped".to_string(), body);
        self.threads.borrow_mut().push(handle.thread);
        ScopedJoinHandle { handle, scope: PhantomData }
    }
}

/// Starts a thread with a name that ends before the scope does.
///
/// # Errors
/// None here.
pub fn spawn_in<'scope, F, T>(
    scope: &'scope Scope<'scope, '_>,
    _: &str,
    body: F,
) -> io::Result<ScopedJoinHandle<'scope, T>>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    Ok(scope.spawn(body))
}

/// Gives `body` a scope for threads, and waits for all that it starts.
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { threads: RefCell::default(), scope: PhantomData, environment: PhantomData };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&scope)));
    let mut waited = 0;
    loop {
        // A thread may have started others.
        let Some(&thread) = scope.threads.borrow().get(waited) else { break };
        wait_for(thread);
        waited += 1;
    }
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Cores of the run.
///
/// # Errors
/// None here.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    Ok(NonZeroUsize::new(world::core_count()).unwrap_or(NonZeroUsize::MIN))
}

/// Passes time without work.
#[track_caller]
pub fn sleep(duration: Duration) {
    // A sleep of more than 200 days doesn't end.
    let duration_ps = u64::try_from(duration.as_nanos() * 1000).unwrap_or(u64::MAX);
    world::sleep(SourceLine::here(), duration_ps);
}

/// Lets other threads run.
pub fn yield_now() {
    if world::is_inside() {
        world::with(|world| {
            world.spend(YIELD_PS);
            world.yields();
        });
        world::event(SourceLine::here(), 0, 0, LineUse::Read);
    }
}
