//! A session with a socket in place of the kernel.

use super::*;
use crate::wire::{GetAttributesIn, ReplyHeader, RequestHeader};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;
use std::os::fd::{AsFd, AsRawFd};

/// Set in a child that runs with few resources.
const WITH_LITTLE_LEFT: &str = "DRYSTONE_TEST_WITH_LITTLE_LEFT";

/// A kernel that sends messages and receives answers: the other end of a socket.
fn kernel_and_device() -> (OwnedFd, OwnedFd) {
    let kind = SocketType::SEQPACKET;
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn send(kernel: impl AsFd, operation: Opcode, body: &[u8]) {
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
    offering(minor, KernelCapabilities::empty())
}

fn offering(minor: u32, more: KernelCapabilities) -> Vec<u8> {
    let offered = (KernelCapabilities::ASYNC_READ | KernelCapabilities::INIT_EXT | more).bits();
    let fixed =
        InitializeIn { major: 7, minor, read_ahead_max: 4096, capabilities: offered as u32 };
    [fixed.as_bytes(), &((offered >> 32) as u32).to_ne_bytes(), &[0; 44]].concat()
}

/// A file system that panics in `attributes` and `forget`, and has nothing else.
struct Buggy;

impl Service for Buggy {
    fn serve(&self, header: &RequestHeader, _: &[u8], _: &mut [u8], _: usize) -> Answer {
        assert!(header.operation != Opcode::GetAttributes as u32, "a bug");
        Answer::Error(Errno::NODATA.raw_os_error())
    }

    fn forget(&self, _node: u64, _count: u64) {
        panic!("another");
    }

    fn needs_write_back(&self, _: &RequestHeader, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

#[test]
fn a_request_that_panics_fails_and_others_go_on() {
    let (kernel, device) = kernel_and_device();
    send(&kernel, Opcode::Initialize, &introduction(40));
    // One thread: if it ended, nothing would answer.
    let options = SessionOptions { device_threads: 1, ..SessionOptions::default() };
    let session = Session::begin(device, options, Arc::new(Buggy)).unwrap();
    receive(&kernel);
    thread::scope(|scope| {
        scope.spawn(|| session.run());
        for _ in 0..3 {
            send(&kernel, Opcode::Forget, &[0; 8]);
            send(&kernel, Opcode::GetAttributes, GetAttributesIn::default().as_bytes());
            assert_eq!(receive(&kernel).0.error, -Errno::IO.raw_os_error());
            send(&kernel, Opcode::ReadLink, &[]);
            assert_eq!(receive(&kernel).0.error, -Errno::NODATA.raw_os_error());
        }
        // One that goes away with an answer unread is an error to the other end, where the session ends.
        send(&kernel, Opcode::ReadLink, &[]);
        let mut polled = [PollFd::new(&kernel, PollFlags::IN)];
        rustix::event::poll(&mut polled, None).unwrap();
        drop(kernel);
    });
}

#[test]
fn only_what_both_sides_have_is_agreed_on() {
    let (kernel, device) = kernel_and_device();
    send(&kernel, Opcode::Initialize, &introduction(40));
    let session = Session::begin(device, SessionOptions::default(), Arc::new(Buggy)).unwrap();
    assert!(!session.uses_rings());
    let (header, payload) = receive(&kernel);
    let answer = InitializeOut::read_from_bytes(&payload).unwrap();
    assert_eq!((header.error, answer.major, answer.minor), (0, 7, 40));
    let agreed = KernelCapabilities::ASYNC_READ | KernelCapabilities::INIT_EXT;
    assert_eq!((session.capabilities(), answer.capabilities), (agreed, agreed.bits() as u32));
    assert_eq!((answer.write_max, answer.pages_max), (1 << 20, 256));
}

#[test]
fn transfers_are_counted_in_pages_of_the_machine() {
    let introduction = Introduction {
        unique: 3,
        minor: 42,
        read_ahead_max: 0,
        offered: KernelCapabilities::empty(),
    };
    // Bytes of a transfer and of a page; pages of a transfer, and bytes of a buffer.
    let cases = [
        (1 << 20, 4096, 256, 1 << 20),
        (1 << 20, 16 << 10, 64, 1 << 20),
        (1 << 20, 64 << 10, 16, 1 << 20),
        (4096, 4096, 1, 8192),
        (4096, 64 << 10, 1, 64 << 10),
        (100_000, 16 << 10, 6, 100_000),
    ];
    for (transfer_max, page_length, pages, buffer_length) in cases {
        let options = SessionOptions { transfer_max, ..SessionOptions::default() };
        let answer = introduction.answer(&options, KernelCapabilities::empty(), page_length);
        assert_eq!((answer.pages_max, answer.write_max), (pages, transfer_max));
        let length = options.payload_length(page_length);
        assert_eq!(length, buffer_length, "{transfer_max} bytes in pages of {page_length}");
    }
}

#[test]
fn other_versions_are_refused_or_begun_again() {
    let (kernel, device) = kernel_and_device();
    send(&kernel, Opcode::Initialize, &introduction(27));
    let error = Session::begin(device, SessionOptions::default(), Arc::new(Buggy)).err();
    assert!(matches!(error, Some(SessionError::Version { major: 7, minor: 27 })), "{error:?}");
    assert_eq!(receive(&kernel).0.error, -Errno::PROTO.raw_os_error());

    let (kernel, device) = kernel_and_device();
    let newer = InitializeIn { major: 8, ..InitializeIn::default() };
    send(&kernel, Opcode::Initialize, newer.as_bytes());
    send(&kernel, Opcode::Initialize, &introduction(36));
    assert!(Session::begin(device, SessionOptions::default(), Arc::new(Buggy)).is_ok());
    assert_eq!(InitializeOut::read_from_bytes(&receive(&kernel).1).unwrap().major, 7);
    assert_eq!(InitializeOut::read_from_bytes(&receive(&kernel).1).unwrap().minor, 36);
}

#[test]
fn a_session_begins_with_an_introduction() {
    let (kernel, device) = kernel_and_device();
    let other = Opcode::GetAttributes;
    send(&kernel, other, GetAttributesIn::default().as_bytes());
    let error = Session::begin(device, SessionOptions::default(), Arc::new(Buggy)).err();
    assert!(matches!(error, Some(SessionError::NotInitialized(3))), "{error:?}");

    let (kernel, device) = kernel_and_device();
    send(&kernel, Opcode::Initialize, &[0; 4]);
    let error = Session::begin(device, SessionOptions::default(), Arc::new(Buggy)).err();
    assert!(matches!(error, Some(SessionError::Malformed(_))), "{error:?}");
}

#[test]
fn rings_that_are_required_must_be_offered() {
    let (kernel, device) = kernel_and_device();
    send(&kernel, Opcode::Initialize, &introduction(42));
    let options = SessionOptions { rings: Rings::Required, ..SessionOptions::default() };
    let error = Session::begin(device, options, Arc::new(Buggy)).err();
    assert!(matches!(error, Some(SessionError::NotOffered)), "{error:?}");
    assert!(receive(&kernel).0.error < 0);
}

/// Not a test: a process that may have hardly any more descriptors, and then hardly any more memory.
#[test]
fn with_little_left() {
    if std::env::var_os(WITH_LITTLE_LEFT).is_none() {
        return;
    }
    let begin = |rings, prepare: &dyn Fn()| {
        let (kernel, device) = kernel_and_device();
        send(&kernel, Opcode::Initialize, &offering(42, KernelCapabilities::OVER_IO_URING));
        // More stacks than the C library keeps of threads that have ended.
        let device_threads = 64;
        let options = SessionOptions { rings, device_threads, ..SessionOptions::default() };
        prepare();
        let session = Session::begin(device, options, Arc::new(Buggy));
        (session, receive(&kernel).0.error)
    };
    let limit = |resource, most| {
        let limits = rustix::process::getrlimit(resource);
        let limits = rustix::process::Rlimit { current: Some(most), ..limits };
        rustix::process::setrlimit(resource, limits).unwrap();
    };
    let few_descriptors = || {
        let next = rustix::io::dup(std::io::stdin()).unwrap();
        // Enough to look how many cores there may be.
        limit(Resource::Nofile, next.as_raw_fd() as u64 + 2);
    };
    let refusal = -Errno::PROTO.raw_os_error();
    let (session, answer) = begin(Rings::Required, &few_descriptors);
    let error = session.err();
    assert!(matches!(error, Some(SessionError::Rings(_))), "{error:?}");
    assert_eq!(answer, refusal);
    let (session, answer) = begin(Rings::WhereOffered, &|| {});
    assert!(!session.unwrap().uses_rings());
    assert_eq!(answer, 0);
    let (session, answer) = begin(Rings::WhereOffered, &|| {
        let memory = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = memory.split(' ').next().unwrap().parse().unwrap();
        limit(Resource::As, pages * 4096 + (16 << 20));
    });
    let error = session.err();
    assert!(matches!(error, Some(SessionError::Threads(_))), "{error:?}");
    assert_eq!(answer, refusal);
}

/// Lack of resources is noticed before the kernel is told that the mount can be used.
#[test]
fn a_machine_with_little_left_serves_from_the_device_or_says_why_not() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "session::tests::with_little_left", "--nocapture"]);
    let output = child.env(WITH_LITTLE_LEFT, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{failed}");
}
