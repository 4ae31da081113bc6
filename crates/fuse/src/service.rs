//! The interface between transports and what answers their requests.

use crate::wire::{Opcode, RequestHeader};
use crate::write_back::Content;
use rustix::io::Errno;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The number of bytes that were put into the buffer.
    Payload(usize),
    /// An errno, above zero.
    Error(i32),
}

/// Answers requests. All calls may be made from many threads at once.
pub trait Service: Send + Sync {
    /// Answers a request. The first `used` bytes of `payload` are the request's payload; the
    /// answer's payload replaces it. It has room for the longest answer.
    fn serve(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        payload: &mut [u8],
        used: usize,
    ) -> Answer;

    /// Takes back references to a node.
    fn forget(&self, node: u64, count: u64);

    /// True if the kernel may still hold content of the file that has to be written before the request
    /// is served. The kernel doesn't write back by itself before it asks for data and holes, or makes a
    /// file immutable. `payload` is the request's.
    fn needs_write_back(&self, header: &RequestHeader, fixed: &[u8], payload: &[u8]) -> bool;

    /// True if the request changes something, and changes wait while the image is frozen. One that begins to
    /// wait after this was asked is served, and waits there.
    fn waits_for_thaw(&self, header: &RequestHeader, fixed: &[u8]) -> bool {
        let _ = (header, fixed);
        false
    }

    /// True if the request may take so long that those after it shouldn't wait for it. Neither it nor its
    /// answer has more than a short payload, and it [outdates](Service::outdated) nothing.
    fn takes_long(&self, header: &RequestHeader, fixed: &[u8]) -> bool {
        let _ = (header, fixed);
        false
    }

    /// Returns when changes don't wait any longer.
    fn wait_thawed(&self) {}

    /// For a request that succeeded: the bytes of its node that the kernel may have cached before
    /// the request changed them, and has to drop before it gets the answer.
    fn outdated(&self, header: &RequestHeader, fixed: &[u8]) -> Option<Range<u64>> {
        let _ = (header, fixed);
        None
    }

    /// For a request that failed with `errno`, above zero: the bytes of its node that the kernel has cached
    /// as the request would have changed them, and has to drop after the answer.
    fn outdated_by_refusal(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        errno: i32,
    ) -> Option<Range<u64>> {
        let _ = (header, fixed, errno);
        None
    }
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
        // The kernel accepts only such numbers as errors.
        Answer::Error(errno) => Err(-errno.clamp(1, 511)),
    }
}

/// The answer to a request that [needs a write-back](Service::needs_write_back) if the kernel couldn't
/// write, and why. `EINVAL` tells programs that data and holes aren't known, and they read everything.
pub(crate) fn without_write_back(header: &RequestHeader, errno: Errno) -> Result<usize, i32> {
    let is_seek = header.operation == Opcode::Seek as u32;
    let errno = if is_seek { Errno::INVAL } else { errno };
    Err(-errno.raw_os_error())
}

/// The content that the kernel has to drop because of a request: before it gets the answer to one that
/// succeeded, after the answer to one that failed.
pub(crate) fn outdated(
    service: &dyn Service,
    header: &RequestHeader,
    fixed: &[u8],
    result: Result<usize, i32>,
) -> Option<Content> {
    let bytes = match result {
        Ok(_) => service.outdated(header, fixed),
        Err(errno) => service.outdated_by_refusal(header, fixed, -errno),
    }?;
    Some(Content { node: header.node, bytes })
}

/// Takes back references to a node.
pub(crate) fn forget(service: &dyn Service, node: u64, count: u64) {
    surviving(|| service.forget(node, count));
}

/// Runs `work`; returns `None` if it panics. A panic is a bug, and the file system keeps half-done
/// changes out of the image. But a program waits for the answer and other requests for the thread, so
/// the thread goes on.
pub(crate) fn surviving<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.inspect_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!("a request met a bug: {}", text.unwrap_or("a panic"));
    })
    .ok()
}
