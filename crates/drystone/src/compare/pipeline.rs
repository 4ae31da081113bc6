//! Jobs that several threads do and whose results are wanted in the order of the jobs.
//!
//! # State
//!
//! A window of jobs that wait, are done, or have been done; results leave it at its front. Its
//! size bounds what is held at a time.
//!
//! # Locking
//!
//! One lock, held for moments, never while a job is done.

use drystone_sync::{Condvar, LockClass, Mutex, thread};
use std::collections::VecDeque;

static WINDOW: LockClass = LockClass::new("compare window", 7);

/// Jobs in flight.
const WINDOW_MAX: usize = 512;

struct PipelineState<J, R> {
    waiting: VecDeque<(u64, J)>,
    /// Results by their place after `begin`; none for those to come.
    results: VecDeque<Option<R>>,
    /// The number of the first of them.
    begin: u64,
    is_complete: bool,
    /// A job panicked, so that its result won't come.
    has_panicked: bool,
}

/// The window.
pub(super) struct Pipeline<J, R> {
    state: Mutex<PipelineState<J, R>>,
    /// There is work, or an end of it.
    work: Condvar,
    /// The first result is there.
    done: Condvar,
}

impl<J, R> Pipeline<J, R> {
    pub fn new() -> Pipeline<J, R> {
        let state = PipelineState {
            waiting: VecDeque::new(),
            results: VecDeque::new(),
            begin: 0,
            is_complete: false,
            has_panicked: false,
        };
        Pipeline { state: Mutex::new(&WINDOW, state), work: Condvar::new(), done: Condvar::new() }
    }

    /// Adds a job.
    pub fn add(&self, job: J) {
        let mut state = self.state.lock();
        let number = state.begin + state.results.len() as u64;
        state.results.push_back(None);
        state.waiting.push_back((number, job));
        self.work.notify_one();
    }

    /// Adds a result that needs no work.
    pub fn add_result(&self, result: R) {
        self.state.lock().results.push_back(Some(result));
    }

    /// The next result in order. Waits for it if `is_last_call` or the window is full; otherwise
    /// there may be none yet.
    ///
    /// # Panics
    /// If a job has.
    pub fn next(&self, is_last_call: bool) -> Option<R> {
        let mut state = self.state.lock();
        loop {
            assert!(!state.has_panicked, "a thread that compares panicked");
            let must_wait = is_last_call || state.results.len() >= WINDOW_MAX;
            match state.results.front() {
                None => return None,
                Some(None) if !must_wait => return None,
                Some(None) => self.done.wait(&mut state),
                Some(Some(_)) => {
                    state.begin += 1;
                    return state.results.pop_front().flatten();
                }
            }
        }
    }

    /// There are no more jobs to come.
    pub fn complete(&self) {
        self.state.lock().is_complete = true;
        self.work.notify_all();
    }

    /// Does jobs until there are none to come.
    pub fn work(&self, mut body: impl FnMut(J) -> R) {
        let _end = thread::at_end(|| {
            if thread::panicking() {
                self.state.lock().has_panicked = true;
                self.done.notify_all();
            }
        });
        let mut state = self.state.lock();
        loop {
            if let Some((number, job)) = state.waiting.pop_front() {
                drop(state);
                let result = body(job);
                state = self.state.lock();
                // A result leaves the window only when it is there, so its place is still in it.
                let place = (number - state.begin) as usize;
                state.results[place] = Some(result);
                if place == 0 {
                    self.done.notify_one();
                }
            } else if state.is_complete {
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let pipeline = Pipeline::new();
        let mut results = Vec::new();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| pipeline.work(|number: u64| number * 2));
            }
            for number in 0..5000 {
                match number % 7 {
                    0 => pipeline.add_result(number * 2),
                    _ => pipeline.add(number),
                }
                while let Some(result) = pipeline.next(false) {
                    results.push(result);
                }
            }
            pipeline.complete();
            while let Some(result) = pipeline.next(true) {
                results.push(result);
            }
        });
        assert_eq!(results, (0..5000).map(|number| number * 2).collect::<Vec<_>>());
    }
    #[test]
    fn nobody_waits_for_a_job_that_panicked() {
        let pipeline = Pipeline::new();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            thread::scope(|scope| {
                let _end = thread::at_end(|| pipeline.complete());
                scope.spawn(|| pipeline.work(|number: u64| -> u64 { panic!("job {number}") }));
                pipeline.add(1);
                pipeline.next(true)
            })
        }));
        ended.unwrap_err();
    }
}
