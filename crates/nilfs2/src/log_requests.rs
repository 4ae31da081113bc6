//! Requests to the log writer's thread, and the threads that wait for them.
//!
//! # State
//! Requests are numbered. A checkpoint that begins after a request for a log fulfils it. While the thread ends, it
//! serves what was requested before; later requests fail.
//!
//! # Locking
//! One lock around the numbers, held briefly.

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lock_classes::REQUESTS;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::clock::Instant;
use drystone_sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default)]
struct RequestState {
    /// Number of the newest request for a checkpoint, and of the newest that was served.
    requested: u64,
    served: u64,
    /// Inodes whose data is to be logged, and how many were.
    data: Vec<Arc<Inode>>,
    data_requested: u64,
    data_served: u64,
    /// Number of the newest request for room, and of the newest that was served.
    space_requested: u64,
    space_served: u64,
    /// What those that weren't begun want to add.
    space_blocks: u64,
    /// A checkpoint is to be written though nothing waits for it: much is dirty, or a waiting inode was deleted.
    is_woken: bool,
    is_stopping: bool,
    failure: Option<Error>,
}

impl RequestState {
    fn begin_checkpoint(&mut self) -> Task {
        self.is_woken = false;
        self.data.clear();
        Task::Checkpoint { number: self.requested, data: self.data_requested }
    }

    fn check_running(&self) -> Result<()> {
        match &self.failure {
            Some(stopped @ Error::LogStopped(_)) => Err(stopped.clone()),
            Some(failure) => Err(Error::LogStopped(failure.to_string())),
            None => Ok(()),
        }
    }

    /// Fails if a request made now would not be served.
    fn check_serving(&self) -> Result<()> {
        self.check_running()?;
        if self.is_stopping { Err(unmounted()) } else { Ok(()) }
    }

    /// Whether nothing is left to do that was asked for.
    fn is_idle(&self) -> bool {
        self.served == self.requested
            && !self.is_woken
            && self.data.is_empty()
            && self.space_served == self.space_requested
    }
}

fn unmounted() -> Error {
    Error::LogStopped("the volume was unmounted".to_owned())
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LogRequests {
    state: Mutex<RequestState>,
    changed: Condvar,
    served: Condvar,
    /// Read without the lock by every change.
    has_failed: AtomicBool,
}

/// What the thread does next.
#[derive(Debug)]
pub(crate) enum Task {
    /// The numbers of the requests for checkpoints and for data logs that it fulfils.
    Checkpoint {
        number: u64,
        data: u64,
    },
    Data(Vec<Arc<Inode>>, u64),
    /// The number of the request, and blocks.
    Space(u64, u64),
    Stop,
}

impl LogRequests {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(&REQUESTS, RequestState::default()),
            changed: Condvar::new(),
            served: Condvar::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Fails if a log couldn't be written, or the volume was unmounted.
    pub(crate) fn check_running(&self) -> Result<()> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.state.lock().check_running()
    }

    /// Returns when everything that was changed before is in a durable checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check_serving()?;
        state.requested += 1;
        let number = state.requested;
        self.changed.notify_one();
        while state.served < number && state.failure.is_none() {
            self.served.wait(&mut state);
        }
        state.check_running()
    }

    /// Returns when the data of an inode is in a durable log.
    pub(crate) fn data_log(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut state = self.state.lock();
        state.check_serving()?;
        state.data.push(Arc::clone(inode));
        state.data_requested += 1;
        let number = state.data_requested;
        self.changed.notify_one();
        while state.data_served < number && state.failure.is_none() {
            self.served.wait(&mut state);
        }
        state.check_running()
    }

    /// Returns when the cleaner has made room for so many blocks more, or found that it can't.
    pub(crate) fn make_space(&self, blocks: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.check_serving()?;
        state.space_requested += 1;
        state.space_blocks += blocks;
        let number = state.space_requested;
        self.changed.notify_one();
        while state.space_served < number && state.failure.is_none() {
            self.served.wait(&mut state);
        }
        state.check_running()
    }

    /// Notes that nothing can be written any more.
    pub(crate) fn fail(&self, error: Error) {
        self.finish(Err(error), |_| ());
    }

    /// Has a checkpoint written soon, unless the thread is about to end: changes would keep it for ever.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.is_stopping {
            state.is_woken = true;
            self.changed.notify_one();
        }
    }

    /// Has the thread, which calls this, write another checkpoint before it ends.
    pub(crate) fn go_on(&self) {
        self.state.lock().is_woken = true;
    }

    /// Has the thread end, after what was asked for. Threads that go on asking can't keep it.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
    }

    /// Has every later request and change fail. Fails itself if a log couldn't be written.
    pub(crate) fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        let running = state.check_running();
        state.failure.get_or_insert_with(unmounted);
        self.has_failed.store(true, Ordering::Release);
        self.served.notify_all();
        running
    }

    /// Waits for the next task. When `interval` has passed since the last checkpoint, if there is one, the
    /// next is due, whatever else is asked for.
    pub(crate) fn next_task(&self, last: Instant, interval: Option<Duration>) -> Task {
        let mut state = self.state.lock();
        loop {
            if state.failure.is_some() {
                // Nobody is served any more.
                if state.is_stopping {
                    return Task::Stop;
                }
                self.changed.wait(&mut state);
                continue;
            }
            if state.is_stopping && state.is_idle() {
                return Task::Stop;
            }
            let left = interval.map(|interval| interval.saturating_sub(last.elapsed()));
            if left == Some(Duration::ZERO) {
                return state.begin_checkpoint();
            }
            // Before data logs, which threads may ask for all the time; a checkpoint serves these requests, too.
            if state.requested > state.served || state.is_woken {
                return state.begin_checkpoint();
            }
            if !state.data.is_empty() {
                let inodes = std::mem::take(&mut state.data);
                return Task::Data(inodes, state.data_requested);
            }
            if state.space_requested > state.space_served {
                let blocks = std::mem::take(&mut state.space_blocks);
                return Task::Space(state.space_requested, blocks);
            }
            match left {
                Some(left) => {
                    self.changed.wait_timeout(&mut state, left);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn finish_checkpoint(&self, result: Result<()>, number: u64, data: u64) {
        self.finish(result, |state| {
            state.served = number;
            state.data_served = data;
        });
    }

    pub(crate) fn finish_data(&self, result: Result<()>, number: u64) {
        self.finish(result, |state| state.data_served = number);
    }

    pub(crate) fn finish_space(&self, result: Result<()>, number: u64) {
        self.finish(result, |state| state.space_served = number);
    }

    /// Notes what came of a task.
    fn finish(&self, result: Result<()>, note: impl FnOnce(&mut RequestState)) {
        let mut state = self.state.lock();
        match result {
            Ok(()) => note(&mut state),
            Err(error) => {
                tracing::error!("the log has stopped: {error}");
                state.failure.get_or_insert(error);
                self.has_failed.store(true, Ordering::Release);
            }
        }
        self.served.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::inode::Record;
    use drystone_nilfs2_format::InodeNumber;
    use drystone_sync::{clock, thread};

    #[test]
    fn room_is_made_for_all_that_wait() {
        let requests = LogRequests::new();
        thread::scope(|scope| {
            let waiting = [5, 7].map(|blocks| {
                let requests = &requests;
                scope.spawn(move || requests.make_space(blocks))
            });
            while requests.state.lock().space_requested < 2 {
                thread::yield_now();
            }
            let task = requests.next_task(clock::now(), None);
            // First, for a thread that waited on would never end.
            requests.finish_space(Ok(()), 2);
            waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
            assert!(matches!(task, Task::Space(2, 12)), "{task:?}");
        });
    }

    #[test]
    fn a_checkpoint_that_is_due_serves_syncs_of_data() {
        let requests = LogRequests::new();
        let record = Record { mode: 0o100_644, ..Record::metadata_file() };
        let inode = Arc::new(Inode::new(InodeNumber(11), record, true, 1024).unwrap());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| requests.data_log(&inode));
            while requests.state.lock().data_requested < 1 {
                thread::yield_now();
            }
            let Task::Checkpoint { number, data } =
                requests.next_task(clock::now(), Some(Duration::ZERO))
            else {
                panic!("a checkpoint is due")
            };
            requests.finish_checkpoint(Ok(()), number, data);
            let served = requests.state.lock().data_served;
            // A thread that waited on would never end.
            requests.stop();
            requests.fail(Error::Errno(drystone_vfs::Errno::EIO));
            let _ = waiting.join().unwrap();
            assert_eq!(served, 1);
        });
    }

    #[test]
    fn a_checkpoint_does_not_wait_for_syncs_of_data() {
        let requests = LogRequests::new();
        let record = Record { mode: 0o100_644, ..Record::metadata_file() };
        let inode = Arc::new(Inode::new(InodeNumber(11), record, true, 1024).unwrap());
        {
            let mut state = requests.state.lock();
            state.data.push(inode);
            state.data_requested = 1;
            state.requested = 1;
        }
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Checkpoint { number: 1, data: 1 }), "{task:?}");
        requests.finish_checkpoint(Ok(()), 1, 1);
        requests.stop();
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Stop), "{task:?}");
    }

    /// The unmount would leave what it is for in memory.
    #[test]
    fn a_checkpoint_that_nothing_waits_for_is_written_before_the_end() {
        let requests = LogRequests::new();
        requests.stop();
        requests.go_on();
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Checkpoint { .. }), "{task:?}");
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Stop), "{task:?}");
    }

    #[test]
    fn changes_do_not_keep_the_thread() {
        let requests = LogRequests::new();
        requests.wake();
        requests.stop();
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Checkpoint { .. }), "{task:?}");
        requests.wake();
        let task = requests.next_task(clock::now(), None);
        assert!(matches!(task, Task::Stop), "{task:?}");
    }

    #[test]
    fn requests_do_not_keep_the_thread() {
        let requests = LogRequests::new();
        let record = Record { mode: 0o100_644, ..Record::metadata_file() };
        let inode = Arc::new(Inode::new(InodeNumber(11), record, true, 1024).unwrap());
        requests.stop();
        let asks: [&(dyn Fn() -> Result<()> + Sync); 3] =
            [&|| requests.checkpoint(), &|| requests.data_log(&inode), &|| requests.make_space(1)];
        for ask in asks {
            let has_answer = AtomicBool::new(false);
            thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    let answer = ask();
                    has_answer.store(true, Ordering::Release);
                    answer
                });
                while !has_answer.load(Ordering::Acquire) {
                    match requests.next_task(clock::now(), None) {
                        Task::Checkpoint { number, data } => {
                            requests.finish_checkpoint(Ok(()), number, data);
                        }
                        Task::Data(_, number) => requests.finish_data(Ok(()), number),
                        Task::Space(number, _) => requests.finish_space(Ok(()), number),
                        Task::Stop => thread::yield_now(),
                    }
                }
                let answer = asking.join().unwrap();
                assert!(matches!(answer, Err(Error::LogStopped(_))), "{answer:?}");
            });
        }
    }

    #[test]
    fn the_thread_ends_though_a_checkpoint_is_always_due() {
        let requests = LogRequests::new();
        requests.stop();
        let task = requests.next_task(clock::now(), Some(Duration::ZERO));
        assert!(matches!(task, Task::Stop), "{task:?}");
    }
}
