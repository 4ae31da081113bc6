//! Requests that are read from the device, one at a time, and answers that are written to it.
//!
//! Without rings, everything comes this way. With rings, only what doesn't go through them:
//! forgets, interrupts, and requests from before the rings were ready.

use crate::backlog::Backlog;
use crate::busy_polling::BusyPolling;
use crate::leader_followers::LeaderFollowers;
use crate::long_requests::LongRequests;
use crate::service::{self, Service};
use crate::stand_ins::StandIns;
use crate::wire::{
    BUFFER_LENGTH_MIN, Layouts, Malformed, Message, Opcode, ReplyHeader, Request, RequestHeader,
    forgotten, read_header,
};
use crate::write_back::{Content, WriteBacks};
use drystone_sync::{Arc, clock, thread};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use zerocopy::IntoBytes;

/// How long forgets may gather when nothing else comes from the device. Otherwise each of them would
/// wake the thread, which costs more than serving it.
const GATHER: Duration = Duration::from_millis(1);

/// After how many answers a thread checks whether the next message waits already.
const SAMPLE: u32 = 4;

/// How often in a row a message must wait already before requests count as piled up. A single one
/// proves nothing: a program that gets its answer on another core may send its next request as fast.
const PILED_UP: u32 = 3;

/// Bytes in the longest payload of a request that waits for the kernel to write, and of its answer.
const PUT_ASIDE_LENGTH_MAX: usize = 64;

/// Waits for the next message.
pub(crate) fn read(device: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(&device, &mut *buffer) {
            // A request may be gone again before it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            result => return result,
        }
    }
}

/// Writes an answer; `error` is zero or an errno below zero.
pub(crate) fn reply(
    device: impl AsFd,
    unique: u64,
    error: i32,
    payload: &[u8],
) -> Result<(), Errno> {
    let length = size_of::<ReplyHeader>() + payload.len();
    let length = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
    let header = ReplyHeader { length, error, unique };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
    rustix::io::writev(&device, &parts).map(|_| ())
}

/// Requests that wait until the image is no longer frozen, each with what then lets it go on.
pub(crate) type Thaws = Backlog<Box<dyn FnOnce() + Send>>;

/// The state that the threads of a device share.
pub(crate) struct Readers<'s, 'a> {
    pub service: &'a dyn Service,
    pub layouts: Layouts,
    /// Bytes of the longest payload.
    pub payload_length: usize,
    /// Almost only forgets come, which may be batched.
    pub beside_rings: bool,
    /// Requests that were put aside.
    pub write_backs: &'s WriteBacks<'a>,
    /// Those of them that wait for the disk.
    pub long_requests: &'s LongRequests<'a>,
    /// Which of the threads waits for the next message.
    pub leader_followers: LeaderFollowers,
    /// What goes on when the image is no longer frozen.
    pub thaws: &'s Thaws,
    /// Threads beside those that are busy for long.
    pub stand_ins: Arc<StandIns>,
}

/// Answers messages until the mount is gone, or enough other threads wait for them.
pub(crate) fn serve<'a>(device: BorrowedFd<'a>, readers: &Readers<'_, 'a>) {
    let mut buffer = vec![0; readers.payload_length + BUFFER_LENGTH_MIN];
    let can_help = readers.leader_followers.can_help();
    let (mut count, mut in_a_row) = (0_u32, 0_u32);
    let (mut polling, mut answered) = (BusyPolling::default(), clock::now());
    readers.stand_ins.ask_before_waits();
    while readers.leader_followers.take() {
        if can_help && count >= SAMPLE {
            count = 0;
            in_a_row = if is_waiting(device) { in_a_row + 1 } else { 0 };
            if in_a_row >= PILED_UP {
                readers.leader_followers.help();
            }
        }
        if !readers.beside_rings && readers.leader_followers.is_alone() {
            polling.poll(|| is_waiting(device));
        }
        let length = match read(device, &mut buffer) {
            Ok(length) => length,
            Err(error) => {
                // Else the mount is gone, or another process ended the connection.
                if !matches!(error, Errno::NODEV | Errno::CONNABORTED) {
                    tracing::error!("can't read from the FUSE device: {error}");
                }
                readers.leader_followers.end();
                readers.stand_ins.end();
                return;
            }
        };
        polling.came_after(answered.elapsed());
        let operation = read_header(&buffer[..length]).map(|header| header.operation);
        let operation = operation.ok().and_then(Opcode::from_code);
        let moves_content = operation.is_some_and(moves_content);
        let takes_long = operation.is_some_and(takes_long);
        readers.leader_followers.leave(takes_long || (moves_content && polling.expects_long()));
        if readers.leader_followers.all_are_busy().is_some() {
            readers.stand_ins.watch();
        }
        let taken = clock::now();
        // Programs don't wait for the answer to a release, so the next message may come from the same
        // program. Only messages of other programs count.
        let is_awaited =
            |operation: Opcode| !operation.is_unanswered() && operation != Opcode::Release;
        count += u32::from(operation.is_some_and(is_awaited));
        match serve_one(device, readers, &mut buffer, length) {
            Ok(was_forget) if was_forget && readers.beside_rings => thread::sleep(GATHER),
            Ok(_) => {}
            Err(error) => tracing::warn!("a message from the kernel: {error}"),
        }
        answered = clock::now();
        polling.served(moves_content, answered.duration_since(taken));
    }
    readers.stand_ins.one_ends();
}

/// True if there is a message already.
fn is_waiting(device: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&device, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// True if a thread has much to copy and may have to wait for the disk until it has answered.
fn takes_long(operation: Opcode) -> bool {
    operation == Opcode::CopyFileRange
}

/// True if an answer takes long when there is much content or when the disk is slow.
fn moves_content(operation: Opcode) -> bool {
    matches!(operation, Opcode::Read | Opcode::Write)
}

/// Answers one message; tells whether it was a forget.
fn serve_one<'a>(
    device: BorrowedFd<'a>,
    readers: &Readers<'_, 'a>,
    buffer: &mut [u8],
    length: usize,
) -> Result<bool, Malformed> {
    let Readers { service, layouts, .. } = *readers;
    let message = Message::from_device(&buffer[..length], layouts)?;
    let header = message.header;
    match Opcode::from_code(header.operation) {
        Some(operation) if operation.is_unanswered() => {
            match message.request()? {
                Request::Forget(forget) => service::forget(service, header.node, forget.count),
                Request::BatchForget { nodes } => {
                    forgotten(nodes).for_each(|one| service::forget(service, one.node, one.count));
                }
                // No request here waits for another, so there is nothing to interrupt.
                _ => {}
            }
            return Ok(true);
        }
        operation => {
            let fixed = operation.map_or(0, |operation| layouts.fixed_length(operation));
            let (_, body) = buffer.split_at_mut(size_of::<RequestHeader>());
            let used = length - size_of::<RequestHeader>();
            let fixed_length = fixed.min(used);
            let (fixed, payload) = body.split_at_mut(fixed_length);
            let used = used - fixed_length;
            if service.needs_write_back(&header, fixed, &payload[..used]) {
                let used = used.min(PUT_ASIDE_LENGTH_MAX);
                let (fixed, mut put_aside) = (fixed.to_vec(), vec![0; PUT_ASIDE_LENGTH_MAX]);
                put_aside[..used].copy_from_slice(&payload[..used]);
                readers.write_backs.write_back(Content::all(header.node), move |written| {
                    let result = match written {
                        Ok(()) => service::answer(service, &header, &fixed, &mut put_aside, used),
                        Err(error) => service::without_write_back(&header, error),
                    };
                    send(device, &header, result, &put_aside);
                });
            } else if LongRequests::is_sync(&header) {
                readers.long_requests.put(header, (fixed.to_vec(), Vec::new()), move |answer| {
                    send(device, &header, answer.map(<[u8]>::len), answer.unwrap_or_default());
                });
            } else {
                let result = service::answer(service, &header, fixed, payload, used);
                let outdated = service::outdated(service, &header, fixed, result);
                match (outdated, result) {
                    (None, _) => send(device, &header, result, payload),
                    (Some(content), Ok(length)) => {
                        let payload = payload[..length].to_vec();
                        readers.write_backs.answer_after_drop(content, move || {
                            send(device, &header, result, &payload);
                        });
                    }
                    (Some(content), Err(_)) => {
                        send(device, &header, result, &[]);
                        readers.write_backs.drop_soon(content);
                    }
                }
            }
        }
    }
    Ok(false)
}

/// Sends an answer: the length of its payload, or an errno below zero.
fn send(
    device: BorrowedFd<'_>,
    header: &RequestHeader,
    result: Result<usize, i32>,
    payload: &[u8],
) {
    let written = match result {
        Ok(length) => reply(device, header.unique, 0, &payload[..length]),
        Err(errno) => reply(device, header.unique, errno, &[]),
    };
    match written {
        // The request was interrupted, or the mount is gone: no program waits any more.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(error) => tracing::error!("can't answer operation {}: {error}", header.operation),
    }
}
