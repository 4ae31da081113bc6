//! What answers requests, and how a transport calls it.

use crate::wire::RequestHeader;
use rustix::io::Errno;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Runs `work`; returns nothing if it panics. A panic is a bug, and the file system keeps half-done
/// changes out of the image. But a program waits for the answer, and other requests wait for the thread.
pub(crate) fn surviving<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.inspect_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!("a request met a bug: {}", text.unwrap_or("a panic"));
    })
    .ok()
}
