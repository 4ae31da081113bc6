//! A mount from the first request to the last: negotiation, threads and end.
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

use crate::KernelCapabilities;
pub use crate::service::{Answer, Service};
use crate::serving;
pub use crate::session_options::{Rings, SessionError, SessionOptions};
use crate::uring::{self, Queue};
use crate::wire::init::{InitializeIn, InitializeOut, VERSION_MAJOR, VERSION_MINOR_MIN};
use crate::wire::{Layouts, Malformed, Message, Opcode};
use crate::{device, wire};
use drystone_sync::{Arc, Condvar, LockClass, Mutex, thread};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use zerocopy::{FromBytes, IntoBytes};

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
    capabilities: KernelCapabilities,
    uses_rings: bool,
    /// Threads that take requests.
    threads: usize,
}

/// Messages between the thread that serves a session and the session's owner.
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
    /// Kernel and server can't agree, or the system can't start the threads.
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
        // Also waits for its end if it couldn't begin.
        let none =
            Agreed { capabilities: KernelCapabilities::empty(), uses_rings: false, threads: 0 };
        let mut session = Session { thread, agreement, agreed: none };
        session.agreed = session.agreement.hear()?;
        Ok(session)
    }

    /// What kernel and server agreed on.
    pub fn capabilities(&self) -> KernelCapabilities {
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
    offered: KernelCapabilities,
}

impl Introduction {
    /// Waits for the first request.
    fn hear(device: &OwnedFd) -> Result<Introduction, SessionError> {
        let mut buffer = vec![0; wire::BUFFER_LENGTH_MIN.max(1 << 16)];
        loop {
            let length = device::read(device, &mut buffer).map_err(SessionError::Device)?;
            let message = Message::from_device(&buffer[..length], Layouts::default())?;
            if Opcode::from_code(message.header.operation) != Some(Opcode::Initialize) {
                return Err(SessionError::NotInitialized(message.header.operation));
            }
            let Ok((request, _)) = InitializeIn::read_from_prefix(message.fixed) else {
                return Err(Malformed::Fixed { operation: Opcode::Initialize, length }.into());
            };
            let (major, minor) = (request.major, request.minor);
            let unique = message.header.unique;
            if major > VERSION_MAJOR {
                // A newer kernel starts again with our version.
                let ours = InitializeOut::agreeing_on(KernelCapabilities::empty());
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

    /// Answers the first request and serves the session: from the device if there are no rings, or not enough
    /// resources for them.
    fn serve(
        &self,
        device: &OwnedFd,
        service: &dyn Service,
        options: &SessionOptions,
        agreement: &Agreement,
    ) -> Result<(), SessionError> {
        let serve = |queues: Vec<Queue>| {
            let mut capabilities =
                self.offered & (options.capabilities | KernelCapabilities::INIT_EXT);
            let uses_rings = !queues.is_empty();
            let threads = queues.len() + serving::device_threads(options, uses_rings);
            capabilities.set(KernelCapabilities::OVER_IO_URING, uses_rings);
            let layouts = Layouts::of(capabilities);
            serving::serve(device.as_fd(), service, options, layouts, queues, || {
                let answer = self.answer(options, capabilities, rustix::param::page_size());
                reply(device, self.unique, answer.as_bytes())?;
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
        let are_offered = self.offered.contains(KernelCapabilities::OVER_IO_URING);
        match options.rings {
            Rings::Required if !are_offered => Err(SessionError::NotOffered),
            Rings::WhereOffered | Rings::Required if are_offered => {
                uring::queues(options).map_err(SessionError::Rings)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn answer(
        &self,
        options: &SessionOptions,
        capabilities: KernelCapabilities,
        page_length: usize,
    ) -> InitializeOut {
        InitializeOut {
            minor: self.minor.min(wire::init::VERSION_MINOR),
            read_ahead_max: self.read_ahead_max.max(options.transfer_max),
            background_max: options.background_max,
            congestion_threshold: options.background_max / 4 * 3,
            write_max: options.transfer_max,
            time_granularity: options.time_granularity_ns,
            pages_max: options.pages_max(page_length),
            ..InitializeOut::agreeing_on(capabilities)
        }
    }
}

fn reply(device: &OwnedFd, unique: u64, payload: &[u8]) -> Result<(), SessionError> {
    device::reply(device, unique, 0, payload).map_err(SessionError::Device)
}

/// Ends the mount that is about to begin. The kernel may be gone already, so errors are ignored.
fn refuse(device: &OwnedFd, unique: u64) {
    let _ = device::reply(device, unique, -Errno::PROTO.raw_os_error(), &[]);
}

#[cfg(test)]
mod tests;
