//! A mount from the first request to the last: what is agreed on, which threads serve it, and how
//! they end.
//!
//! # State
//! The session has no state that requests share. The first request is answered on the thread that
//! runs the session; then one thread per core answers those that come through its ring, and threads
//! read the rest from the device: all of them if there are no rings.
//!
//! # Reference
//! "FUSE-over-io-uring design documentation" of the kernel.

use crate::Capabilities;
use crate::device::Readers;
use crate::syncs::Syncs;
use crate::turns::Turns;
use crate::uring::{self, Queue};
use crate::wire::init::{InitializeIn, InitializeOut, VERSION_MAJOR, VERSION_MINOR_MIN};
use crate::wire::{Layouts, Malformed, Message, Operation, RequestHeader};
use crate::write_back::{WriteBacks, drop_content};
use crate::{device, wire};
use drystone_sync::thread;
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
}

/// A mount whose first request has been answered.
pub struct Session {
    device: OwnedFd,
    queues: Vec<Queue>,
    options: SessionOptions,
    capabilities: Capabilities,
}

impl Session {
    /// Answers the first request, after which the mount can be used as soon as
    /// [`run`](Session::run) is called.
    pub fn begin(device: OwnedFd, options: SessionOptions) -> Result<Session, SessionError> {
        let mut buffer = vec![0; wire::BUFFER_LENGTH_MIN.max(1 << 16)];
        loop {
            let length = device::read(&device, &mut buffer).map_err(SessionError::Device)?;
            let message = Message::from_device(&buffer[..length], Layouts::default())?;
            if Operation::from_code(message.header.operation) != Some(Operation::Initialize) {
                return Err(SessionError::NotInitialized(message.header.operation));
            }
            let Ok((request, _)) = InitializeIn::read_from_prefix(message.fixed) else {
                return Err(Malformed::Fixed { operation: Operation::Initialize, length }.into());
            };
            let (major, minor) = (request.major, request.minor);
            if major > VERSION_MAJOR {
                // A newer kernel begins again with what we speak.
                let ours = InitializeOut::agreeing_on(Capabilities::empty());
                reply(&device, message.header.unique, ours.as_bytes())?;
                continue;
            }
            if major < VERSION_MAJOR || minor < VERSION_MINOR_MIN {
                refuse(&device, message.header.unique);
                return Err(SessionError::Version { major, minor });
            }
            let offered = request.offered(message.payload);
            let unique = message.header.unique;
            let queues = match queues(offered, &options) {
                Ok(queues) => queues,
                Err(error) => {
                    refuse(&device, unique);
                    return Err(error);
                }
            };
            let mut capabilities = offered & (options.capabilities | Capabilities::INIT_EXT);
            capabilities.set(Capabilities::OVER_IO_URING, !queues.is_empty());
            let answer = InitializeOut {
                minor: minor.min(wire::init::VERSION_MINOR),
                read_ahead_max: request.read_ahead_max.max(options.transfer_max),
                background_max: options.background_max,
                congestion_threshold: options.background_max / 4 * 3,
                write_max: options.transfer_max,
                time_granularity: options.time_granularity_ns,
                pages_max: u16::try_from(options.transfer_max / PAGE_LENGTH).unwrap_or(u16::MAX),
                ..InitializeOut::agreeing_on(capabilities)
            };
            reply(&device, unique, answer.as_bytes())?;
            return Ok(Session { device, queues, options, capabilities });
        }
    }

    /// What kernel and server agreed on.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// True if requests come through rings.
    pub fn uses_rings(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Answers requests until the mount is gone.
    pub fn run(self, service: &dyn Service) {
        let Session { device, queues, options, capabilities } = self;
        let layouts = Layouts::of(capabilities);
        let has_rings = !queues.is_empty();
        let device_threads = if has_rings { 1 } else { options.device_threads.max(1) };
        let device = device.as_fd();
        let (write_backs, syncs) = (WriteBacks::beside(options.background_max), Syncs::new());
        let sync_threads = Syncs::threads_beside(queues.len() + device_threads);
        let readers = Readers {
            service,
            layouts,
            payload_length: options.transfer_max as usize,
            beside_rings: has_rings,
            write_backs: &write_backs,
            syncs: &syncs,
            turns: Turns::among(device_threads),
        };
        thread::scope(|scope| {
            scope.spawn(|| write_backs.run(|content| drop_content(device, content)));
            scope.spawn(|| write_backs.watch());
            for _ in 0..sync_threads {
                scope.spawn(|| syncs.run(service));
            }
            let _ends = (write_backs.ends(), syncs.ends());
            thread::scope(|scope| {
                for queue in queues {
                    let readers = &readers;
                    scope.spawn(move || {
                        if let Err(error) = queue.serve(device, readers) {
                            // Without all of its queues the kernel falls back to the device, too.
                            tracing::warn!(
                                "a ring can't be used, reading from the device: {error}"
                            );
                            device::serve(device, readers);
                        }
                    });
                }
                for _ in 1..device_threads {
                    scope.spawn(|| device::serve(device, &readers));
                }
                device::serve(device, &readers);
            });
        });
    }
}

/// The unit of the longest request.
const PAGE_LENGTH: u32 = 4096;

/// The queues to use: none where there are no rings.
fn queues(offered: Capabilities, options: &SessionOptions) -> Result<Vec<Queue>, SessionError> {
    match options.rings {
        Rings::Never => return Ok(Vec::new()),
        Rings::Required if !offered.contains(Capabilities::OVER_IO_URING) => {
            return Err(SessionError::NotOffered);
        }
        _ if !offered.contains(Capabilities::OVER_IO_URING) => return Ok(Vec::new()),
        _ => {}
    }
    match uring::queues(options) {
        Ok(queues) => Ok(queues),
        Err(error) if options.rings == Rings::Required => Err(SessionError::Rings(error)),
        Err(error) => {
            tracing::warn!("can't set up io_uring, reading from the device: {error}");
            Ok(Vec::new())
        }
    }
}

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
fn surviving<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.inspect_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!("a request met a bug: {}", text.unwrap_or("a panic"));
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{GetAttributesIn, ReplyHeader};
    use rustix::event::{PollFd, PollFlags};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::os::fd::AsFd;

    /// A kernel that sends messages and receives answers: the other end of a socket.
    fn kernel_and_device() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn send(kernel: impl AsFd, operation: Operation, body: &[u8]) {
        let length = (size_of::<RequestHeader>() + body.len()) as u32;
        let operation = operation as u32;
        let header = RequestHeader { length, operation, unique: 3, ..RequestHeader::default() };
        rustix::io::write(kernel, &[header.as_bytes(), body].concat()).unwrap();
    }

    fn receive(kernel: impl AsFd) -> (ReplyHeader, Vec<u8>) {
        let mut bytes = vec![0; 4096];
        let length = rustix::io::read(kernel, &mut bytes[..]).unwrap();
        let (header, payload) = ReplyHeader::read_from_prefix(&bytes[..length]).unwrap();
        assert_eq!((header.length as usize, header.unique), (length, 3));
        (header, payload.to_vec())
    }

    fn introduction(minor: u32) -> Vec<u8> {
        let capabilities = Capabilities::ASYNC_READ | Capabilities::INIT_EXT;
        let fixed = InitializeIn {
            major: 7,
            minor,
            read_ahead_max: 4096,
            capabilities: capabilities.bits() as u32,
        };
        [fixed.as_bytes(), &[0; 48]].concat()
    }

    /// Panics when it is asked for attributes or to forget, and has nothing else.
    struct Buggy;

    impl Service for Buggy {
        fn serve(&self, header: &RequestHeader, _: &[u8], _: &mut [u8], _: usize) -> Answer {
            assert!(header.operation != Operation::GetAttributes as u32, "a bug");
            Answer::Error(Errno::NODATA.raw_os_error())
        }

        fn forget(&self, _node: u64, _count: u64) {
            panic!("another");
        }

        fn needs_write_back(&self, _header: &RequestHeader) -> bool {
            false
        }
    }

    #[test]
    fn a_request_that_panics_fails_and_others_go_on() {
        let (kernel, device) = kernel_and_device();
        send(&kernel, Operation::Initialize, &introduction(40));
        // One thread: if it ended, nobody would answer.
        let options = SessionOptions { device_threads: 1, ..SessionOptions::default() };
        let session = Session::begin(device, options).unwrap();
        receive(&kernel);
        thread::scope(|scope| {
            scope.spawn(|| session.run(&Buggy));
            for _ in 0..3 {
                send(&kernel, Operation::Forget, &[0; 8]);
                send(&kernel, Operation::GetAttributes, GetAttributesIn::default().as_bytes());
                assert_eq!(receive(&kernel).0.error, -Errno::IO.raw_os_error());
                send(&kernel, Operation::ReadLink, &[]);
                assert_eq!(receive(&kernel).0.error, -Errno::NODATA.raw_os_error());
            }
            // One that goes away with an answer unread is an error to the other end, where the session ends.
            send(&kernel, Operation::ReadLink, &[]);
            let mut polled = [PollFd::new(&kernel, PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
            drop(kernel);
        });
    }

    #[test]
    fn only_what_both_sides_have_is_agreed_on() {
        let (kernel, device) = kernel_and_device();
        send(&kernel, Operation::Initialize, &introduction(40));
        let session = Session::begin(device, SessionOptions::default()).unwrap();
        assert!(!session.uses_rings());
        let (header, payload) = receive(&kernel);
        let answer = InitializeOut::read_from_bytes(&payload).unwrap();
        assert_eq!((header.error, answer.major, answer.minor), (0, 7, 40));
        let agreed = Capabilities::ASYNC_READ | Capabilities::INIT_EXT;
        assert_eq!((session.capabilities(), answer.capabilities), (agreed, agreed.bits() as u32));
        assert_eq!((answer.write_max, answer.pages_max), (1 << 20, 256));
    }

    #[test]
    fn other_versions_are_refused_or_begun_again() {
        let (kernel, device) = kernel_and_device();
        send(&kernel, Operation::Initialize, &introduction(27));
        let error = Session::begin(device, SessionOptions::default()).err();
        assert!(matches!(error, Some(SessionError::Version { major: 7, minor: 27 })), "{error:?}");
        assert_eq!(receive(&kernel).0.error, -Errno::PROTO.raw_os_error());

        let (kernel, device) = kernel_and_device();
        let newer = InitializeIn { major: 8, ..InitializeIn::default() };
        send(&kernel, Operation::Initialize, newer.as_bytes());
        send(&kernel, Operation::Initialize, &introduction(36));
        assert!(Session::begin(device, SessionOptions::default()).is_ok());
        assert_eq!(InitializeOut::read_from_bytes(&receive(&kernel).1).unwrap().major, 7);
        assert_eq!(InitializeOut::read_from_bytes(&receive(&kernel).1).unwrap().minor, 36);
    }

    #[test]
    fn a_session_begins_with_an_introduction() {
        let (kernel, device) = kernel_and_device();
        let other = Operation::GetAttributes;
        send(&kernel, other, GetAttributesIn::default().as_bytes());
        let error = Session::begin(device, SessionOptions::default()).err();
        assert!(matches!(error, Some(SessionError::NotInitialized(3))), "{error:?}");

        let (kernel, device) = kernel_and_device();
        send(&kernel, Operation::Initialize, &[0; 4]);
        let error = Session::begin(device, SessionOptions::default()).err();
        assert!(matches!(error, Some(SessionError::Malformed(_))), "{error:?}");
    }

    #[test]
    fn rings_that_are_required_must_be_offered() {
        let (kernel, device) = kernel_and_device();
        send(&kernel, Operation::Initialize, &introduction(42));
        let options = SessionOptions { rings: Rings::Required, ..SessionOptions::default() };
        let error = Session::begin(device, options).err();
        assert!(matches!(error, Some(SessionError::NotOffered)), "{error:?}");
        assert!(receive(&kernel).0.error < 0);
    }
}
