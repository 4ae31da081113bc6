//! A mount from the first request to the last: what is agreed on, which threads serve it, and how
//! they end.
//!
//! # State
//! The session has no state that requests share. The first request is answered once all threads are
//! there (`serving`); then those of each core answer what comes through their rings, and threads read
//! the rest from the device: everything if there are no rings.
//!
//! # Locking
//! One lock around what the thread that serves the session and its owner tell each other, taken alone.
//!
//! # Reference
//! "FUSE-over-io-uring design documentation" of the kernel.

use crate::Capabilities;
use crate::serving;
use crate::uring::{self, Queue};
use crate::wire::init::{InitializeIn, InitializeOut, VERSION_MAJOR, VERSION_MINOR_MIN};
use crate::wire::{Layouts, Malformed, Message, Operation, RequestHeader};
use crate::{device, wire};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, thread};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zerocopy::{FromBytes, IntoBytes};

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// That many bytes, which have been put into the buffer.
    Payload(usize),
    /// An errno, above zero.
    Error(i32),
}

/// Answers requests. All calls may be made from many threads at once.
pub trait Service: Send + Sync {
    /// Answers a request. `payload` holds that of the request in its first `used` bytes, and takes
    /// that of the answer; it has room for the longest that may be asked for.
    fn serve(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        payload: &mut [u8],
        used: usize,
    ) -> Answer;

    /// Takes back references to a node.
    fn forget(&self, node: u64, count: u64);

    /// True if an answer needs all that has been written to a file, of which the kernel may still
    /// hold a part. It doesn't write it back by itself before it asks for data and holes.
    fn needs_write_back(&self, header: &RequestHeader) -> bool;

    /// Of a request that was answered well: the bytes of its node that the kernel may have read
    /// before the answer changed them, and has to drop before it gets the answer.
    fn outdated(&self, header: &RequestHeader, fixed: &[u8]) -> Option<Range<u64>> {
        let _ = (header, fixed);
        None
    }
}

/// How requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rings {
    /// Through rings where the kernel offers them, from the device otherwise.
    #[default]
    WhereOffered,
    /// From the device.
    Never,
    /// Through rings; a kernel that doesn't offer them is an error.
    Required,
}

/// How a session is run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How requests come.
    pub rings: Rings,
    /// Threads that read from the device when there are no rings.
    pub device_threads: usize,
    /// Threads per core that answer requests from rings, each with a ring of its own: while one
    /// waits for the disk, another goes on.
    pub threads_per_core: usize,
    /// Requests that a ring holds at a time, with those that wait for a sync. They take no memory
    /// before they are used, and the kernel uses first what it got back last.
    pub entries_per_ring: usize,
    /// Bytes in a read or write.
    pub transfer_max: u32,
    /// Requests that may be under way without a program waiting for them.
    pub background_max: u16,
    /// What is asked of the kernel.
    pub capabilities: Capabilities,
    /// Resolution of times in nanoseconds.
    pub time_granularity_ns: u32,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            rings: Rings::default(),
            device_threads: thread::available_parallelism().map_or(2, usize::from).clamp(2, 16),
            threads_per_core: 2,
            entries_per_ring: 7,
            transfer_max: 1 << 20,
            background_max: 64,
            capabilities: Capabilities::ASYNC_READ
                | Capabilities::BIG_WRITES
                | Capabilities::PARALLEL_DIROPS
                | Capabilities::MAX_PAGES,
            time_granularity_ns: 1,
        }
    }
}

/// Why a session can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device can't be read from or written to.
    #[error("the FUSE device: {0}")]
    Device(#[source] Errno),
    /// What the kernel sends can't be understood.
    #[error("a message from the kernel: {0}")]
    Malformed(#[from] Malformed),
    /// Something came before the first request.
    #[error("the kernel began with {0} instead of an introduction")]
    NotInitialized(u32),
    /// The kernel is too old.
    #[error(
        "the kernel speaks version {major}.{minor} of the FUSE protocol; \
         {VERSION_MAJOR}.{VERSION_MINOR_MIN} is the oldest that is served"
    )]
    Version {
        /// The kernel's.
        major: u32,
        /// The kernel's.
        minor: u32,
    },
    /// Rings are wanted and there are none.
    #[error(
        "the kernel doesn't offer FUSE over io_uring (/sys/module/fuse/parameters/enable_uring)"
    )]
    NotOffered,
    /// Rings are wanted and can't be made.
    #[error("can't set up io_uring: {0}")]
    Rings(#[source] std::io::Error),
    /// The system has no more threads.
    #[error("can't start the threads that answer requests: {0}")]
    Threads(#[source] std::io::Error),
}

static AGREEMENT: LockClass = LockClass::new("beginning of a mount", 5);

/// A mount whose first request has been answered.
pub struct Session {
    thread: Option<thread::JoinHandle<()>>,
    agreement: Arc<Agreement>,
    agreed: Agreed,
}

/// What kernel and server agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    capabilities: Capabilities,
    uses_rings: bool,
    /// Threads that take requests.
    threads: usize,
}

/// What the thread that serves a session and its owner tell each other.
struct Agreement {
    state: Mutex<AgreementState>,
    changed: Condvar,
}

#[derive(Default)]
struct AgreementState {
    /// From the thread, once.
    begun: Option<Result<Agreed, SessionError>>,
    /// From the owner: whether to serve.
    goes_on: Option<bool>,
}

impl Session {
    /// Makes all threads and answers the first request, after which the mount can be used as soon as
    /// [`run`](Session::run) is called. If it is dropped instead, the mount ends.
    ///
    /// # Errors
    ///
    /// Kernel and server don't come to terms, or the system lacks something for the threads.
    pub fn begin(
        device: OwnedFd,
        options: SessionOptions,
        service: Arc<dyn Service>,
    ) -> Result<Session, SessionError> {
        let introduction = Introduction::hear(&device)?;
        let state = Mutex::new(&AGREEMENT, AgreementState::default());
        let agreement = Arc::new(Agreement { state, changed: Condvar::new() });
        let ours = Arc::clone(&agreement);
        let serve = move || {
            if let Err(error) = introduction.serve(&device, &*service, &options, &ours) {
                refuse(&device, introduction.unique);
                ours.tell(Err(error));
            }
        };
        let thread = Some(thread::spawn("session", serve).map_err(SessionError::Threads)?);
        // Its end is waited for here, too, if it couldn't begin.
        let none = Agreed { capabilities: Capabilities::empty(), uses_rings: false, threads: 0 };
        let mut session = Session { thread, agreement, agreed: none };
        session.agreed = session.agreement.hear()?;
        Ok(session)
    }

    /// What kernel and server agreed on.
    pub fn capabilities(&self) -> Capabilities {
        self.agreed.capabilities
    }

    /// True if requests come through rings.
    pub fn uses_rings(&self) -> bool {
        self.agreed.uses_rings
    }

    /// How many threads take requests.
    pub fn threads(&self) -> usize {
        self.agreed.threads
    }

    /// Answers requests until the mount is gone.
    pub fn run(mut self) {
        self.end(true);
    }

    fn end(&mut self, goes_on: bool) {
        let Some(thread) = self.thread.take() else { return };
        self.agreement.decide(goes_on);
        if let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Agreement {
    fn tell(&self, begun: Result<Agreed, SessionError>) {
        self.state.lock().begun = Some(begun);
        self.changed.notify_all();
    }

    fn hear(&self) -> Result<Agreed, SessionError> {
        let mut state = self.state.lock();
        loop {
            if let Some(begun) = state.begun.take() {
                return begun;
            }
            self.changed.wait(&mut state);
        }
    }

    fn decide(&self, goes_on: bool) {
        self.state.lock().goes_on = Some(goes_on);
        self.changed.notify_all();
    }

    fn decision(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if let Some(goes_on) = state.goes_on {
                return goes_on;
            }
            self.changed.wait(&mut state);
        }
    }
}

/// The first request.
#[derive(Clone, Copy)]
struct Introduction {
    unique: u64,
    minor: u32,
    read_ahead_max: u32,
    offered: Capabilities,
}

impl Introduction {
    /// Waits for it.
    fn hear(device: &OwnedFd) -> Result<Introduction, SessionError> {
        let mut buffer = vec![0; wire::BUFFER_LENGTH_MIN.max(1 << 16)];
        loop {
            let length = device::read(device, &mut buffer).map_err(SessionError::Device)?;
            let message = Message::from_device(&buffer[..length], Layouts::default())?;
            if Operation::from_code(message.header.operation) != Some(Operation::Initialize) {
                return Err(SessionError::NotInitialized(message.header.operation));
            }
            let Ok((request, _)) = InitializeIn::read_from_prefix(message.fixed) else {
                return Err(Malformed::Fixed { operation: Operation::Initialize, length }.into());
            };
            let (major, minor) = (request.major, request.minor);
            let unique = message.header.unique;
            if major > VERSION_MAJOR {
                // A newer kernel begins again with what we speak.
                let ours = InitializeOut::agreeing_on(Capabilities::empty());
                reply(device, unique, ours.as_bytes())?;
                continue;
            }
            if major < VERSION_MAJOR || minor < VERSION_MINOR_MIN {
                refuse(device, unique);
                return Err(SessionError::Version { major, minor });
            }
            let read_ahead_max = request.read_ahead_max;
            let offered = request.offered(message.payload);
            return Ok(Introduction { unique, minor, read_ahead_max, offered });
        }
    }

    /// Answers it and serves the session: from the device if there are no rings, or not enough of what
    /// they take.
    fn serve(
        &self,
        device: &OwnedFd,
        service: &dyn Service,
        options: &SessionOptions,
        agreement: &Agreement,
    ) -> Result<(), SessionError> {
        let serve = |queues: Vec<Queue>| {
            let mut capabilities = self.offered & (options.capabilities | Capabilities::INIT_EXT);
            let uses_rings = !queues.is_empty();
            let threads = queues.len() + serving::device_threads(options, uses_rings);
            capabilities.set(Capabilities::OVER_IO_URING, uses_rings);
            let layouts = Layouts::of(capabilities);
            serving::serve(device.as_fd(), service, options, layouts, queues, || {
                reply(device, self.unique, self.answer(options, capabilities).as_bytes())?;
                agreement.tell(Ok(Agreed { capabilities, uses_rings, threads }));
                Ok(agreement.decision())
            })
        };
        match self.queues(options).and_then(serve) {
            Err(error @ (SessionError::Rings(_) | SessionError::Threads(_)))
                if options.rings == Rings::WhereOffered =>
            {
                tracing::warn!("{error}; without rings, then");
                serve(Vec::new())
            }
            served => served,
        }
    }

    /// The queues to use: none where there are no rings.
    fn queues(&self, options: &SessionOptions) -> Result<Vec<Queue>, SessionError> {
        let are_offered = self.offered.contains(Capabilities::OVER_IO_URING);
        match options.rings {
            Rings::Required if !are_offered => Err(SessionError::NotOffered),
            Rings::WhereOffered | Rings::Required if are_offered => {
                uring::queues(options).map_err(SessionError::Rings)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn answer(&self, options: &SessionOptions, capabilities: Capabilities) -> InitializeOut {
        InitializeOut {
            minor: self.minor.min(wire::init::VERSION_MINOR),
            read_ahead_max: self.read_ahead_max.max(options.transfer_max),
            background_max: options.background_max,
            congestion_threshold: options.background_max / 4 * 3,
            write_max: options.transfer_max,
            time_granularity: options.time_granularity_ns,
            pages_max: u16::try_from(options.transfer_max / PAGE_LENGTH).unwrap_or(u16::MAX),
            ..InitializeOut::agreeing_on(capabilities)
        }
    }
}

/// The unit of the longest request.
const PAGE_LENGTH: u32 = 4096;

fn reply(device: &OwnedFd, unique: u64, payload: &[u8]) -> Result<(), SessionError> {
    device::reply(device, unique, 0, payload).map_err(SessionError::Device)
}

/// Ends the mount that is about to begin; that nobody may be there to hear it is fine.
fn refuse(device: &OwnedFd, unique: u64) {
    let _ = device::reply(device, unique, -Errno::PROTO.raw_os_error(), &[]);
}

/// Answers one request that has been cut into its parts; the errno is below zero.
pub(crate) fn answer(
    service: &dyn Service,
    header: &RequestHeader,
    fixed: &[u8],
    payload: &mut [u8],
    used: usize,
) -> Result<usize, i32> {
    let room = payload.len();
    let served = surviving(|| service.serve(header, fixed, payload, used));
    match served.unwrap_or(Answer::Error(Errno::IO.raw_os_error())) {
        Answer::Payload(length) => Ok(length.min(room)),
        // The kernel takes nothing else for an error.
        Answer::Error(errno) => Err(-errno.clamp(1, 511)),
    }
}

/// Takes back references to a node.
pub(crate) fn forget(service: &dyn Service, node: u64, count: u64) {
    surviving(|| service.forget(node, count));
}

/// Does what a request asks for; nothing is returned if it panics. That is a bug, and the file system sees
/// to it that nothing half done gets into the image. But whoever asked waits for an answer, and all
/// others for the thread.
pub(crate) fn surviving<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.inspect_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!("a request met a bug: {}", text.unwrap_or("a panic"));
    })
    .ok()
}

#[cfg(test)]
mod tests;
