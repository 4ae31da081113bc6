//! The threads of a session.
//!
//! All threads and their rings are made before the kernel is told how requests will come. If the machine
//! runs out of threads, descriptors or memory, the session can still do without rings. The threads
//! answer requests once all are there and the session goes on, and end with the mount. The calling thread then
//! starts others beside those that are busy for long.
//!
//! # Locking
//! One lock around the state of the start, taken alone.

use crate::device::{self, Readers, Thaws};
use crate::leader_followers::LeaderFollowers;
use crate::long_requests::LongRequests;
use crate::service::Service;
use crate::session_options::{SessionError, SessionOptions};
use crate::stand_ins::StandIns;
use crate::uring::Queue;
use crate::wire::Layouts;
use crate::write_back::{WriteBacks, drop_content};
use drystone_sync::thread::{self, Scope};
use drystone_sync::{Condvar, LockClass, Mutex};
use std::io;
use std::os::fd::BorrowedFd;

static START: LockClass = LockClass::new("start of the threads of a mount", 5);

/// Answers requests until the mount is gone. Calls `begin` when all threads are there; it tells the
/// kernel, and says whether to go on.
///
/// # Errors
/// What `begin` fails with, or why the threads can't be made; nothing has been served then, and all
/// threads have ended.
pub(crate) fn serve(
    device: BorrowedFd<'_>,
    service: &dyn Service,
    options: &SessionOptions,
    layouts: Layouts,
    queues: Vec<Queue>,
    begin: impl FnOnce() -> Result<bool, SessionError>,
) -> Result<(), SessionError> {
    let beside_rings = !queues.is_empty();
    let device_threads = device_threads(options, beside_rings);
    let write_backs = WriteBacks::beside(options.background_max);
    let (long_requests, thaws) = (LongRequests::new(), Thaws::new());
    let long_threads = LongRequests::threads_beside(queues.len() + device_threads);
    let readers = Readers {
        service,
        layouts,
        payload_length: options.payload_length(rustix::param::page_size()),
        beside_rings,
        write_backs: &write_backs,
        long_requests: &long_requests,
        leader_followers: LeaderFollowers::among(device_threads),
        thaws: &thaws,
        stand_ins: StandIns::new(),
    };
    let start = Start::new();
    thread::scope(|scope| {
        let _ends = (write_backs.ends(), long_requests.ends(), thaws.ends());
        spawn(scope, "write-back", || write_backs.run(|content| drop_content(device, content)))?;
        spawn(scope, "held answers", || write_backs.watch())?;
        if beside_rings {
            spawn(scope, "thaw", || {
                while let Some(go_on) = thaws.next() {
                    service.wait_thawed();
                    go_on();
                }
            })?;
        }
        for _ in 0..long_threads {
            spawn(scope, "long requests", || long_requests.run(service))?;
        }
        thread::scope(|scope| {
            let (start, readers) = (&start, &readers);
            let opening = start.opening();
            let rings = queues.len();
            for queue in queues {
                let serve = move || serve_ring(queue, device, readers, start);
                thread::spawn_in(scope, "ring", serve).map_err(SessionError::Rings)?;
            }
            start.wait_for_rings(rings).map_err(SessionError::Rings)?;
            let start_device_thread = || {
                let serve = || {
                    if start.wait() {
                        device::serve(device, readers);
                    }
                };
                thread::spawn_in(scope, "device", serve).map(drop)
            };
            for _ in 0..device_threads {
                start_device_thread().map_err(SessionError::Threads)?;
            }
            if begin()? {
                opening.open();
                readers.stand_ins.run(&readers.leader_followers, start_device_thread);
            }
            Ok(())
        })
    })
}

/// How many threads read from the device.
pub(crate) fn device_threads(options: &SessionOptions, beside_rings: bool) -> usize {
    if beside_rings { 1 } else { options.device_threads.max(1) }
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), SessionError> {
    thread::spawn_in(scope, name, work).map(drop).map_err(SessionError::Threads)
}

/// Makes the ring of a queue, and answers its requests once all is there.
fn serve_ring<'a>(queue: Queue, device: BorrowedFd<'a>, readers: &Readers<'_, 'a>, start: &Start) {
    let made = match queue.make(device) {
        Ok(made) => made,
        Err(error) => return start.ring_is_made(Err(error)),
    };
    start.ring_is_made(Ok(()));
    if start.wait()
        && let Err(error) = made.serve(readers)
    {
        tracing::error!(
            "the kernel doesn't take a ring, and goes on with the device unless it has begun to use other \
             rings: {error}"
        );
        readers.leader_followers.add();
        device::serve(device, readers);
    }
}

/// The state of the start.
struct Start {
    state: Mutex<ServingState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServingState {
    rings: usize,
    /// Why one of them can't be made.
    failure: Option<io::Error>,
    /// Whether requests are to be answered, once that is known.
    opens: Option<bool>,
}

impl Start {
    fn new() -> Start {
        Start { state: Mutex::new(&START, ServingState::default()), changed: Condvar::new() }
    }

    fn ring_is_made(&self, made: io::Result<()>) {
        let mut state = self.state.lock();
        match made {
            Ok(()) => state.rings += 1,
            Err(error) => state.failure = Some(error),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns when this many rings are made, or one can't be.
    fn wait_for_rings(&self, count: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            if state.rings >= count {
                return Ok(());
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits for the decision whether requests are to be answered, and returns it.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if let Some(opens) = state.opens {
                return opens;
            }
            self.changed.wait(&mut state);
        }
    }

    /// No thread answers requests if this is dropped before it is opened.
    fn opening(&self) -> Opening<'_> {
        Opening(self)
    }

    fn decide(&self, opens: bool) {
        self.state.lock().opens.get_or_insert(opens);
        self.changed.notify_all();
    }
}

struct Opening<'s>(&'s Start);

impl Opening<'_> {
    /// Lets requests be answered.
    fn open(&self) {
        self.0.decide(true);
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.decide(false);
    }
}
