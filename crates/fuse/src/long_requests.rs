//! Requests that may take long, which threads of their own answer.
//!
//! If the threads that take requests answered them, the requests after one of them would wait for the disk too.
//! Syncs come here from both transports, and syncs that wait together share a commit. From a ring the
//! [other long ones](Service::takes_long) come as well: no thread can stand in for that of a ring.

use crate::backlog::Backlog;
use crate::service::{self, Service};
use crate::wire::{Opcode, RequestHeader};

/// The fewest and the most threads that answer such requests.
const THREADS_MIN: usize = 32;
const THREADS_MAX: usize = 64;

/// Bytes in the longest payload of such a request, and of its answer.
pub(crate) const PAYLOAD_LENGTH_MAX: usize = 256;

/// Continues with the answer: its payload, or an errno below zero.
type GoOn<'a> = Box<dyn FnOnce(Result<&[u8], i32>) + Send + 'a>;

struct LongRequest<'a> {
    header: RequestHeader,
    fixed: Vec<u8>,
    payload: Vec<u8>,
    go_on: GoOn<'a>,
}

/// Long requests that wait for a thread.
pub(crate) struct LongRequests<'a>(Backlog<LongRequest<'a>>);

impl<'a> LongRequests<'a> {
    pub fn new() -> LongRequests<'a> {
        LongRequests(Backlog::new())
    }

    /// How many threads are to [`run`](LongRequests::run) beside `others` that take requests.
    pub fn threads_beside(others: usize) -> usize {
        (2 * others).clamp(THREADS_MIN, THREADS_MAX)
    }

    /// Whether a request is a sync.
    pub fn is_sync(header: &RequestHeader) -> bool {
        let syncs = [Opcode::Sync, Opcode::SyncDirectory, Opcode::SyncFileSystem];
        syncs.iter().any(|operation| header.operation == *operation as u32)
    }

    /// Answers a request on another thread, and calls `go_on` there. The payload has at most
    /// [`PAYLOAD_LENGTH_MAX`] bytes.
    pub fn put(
        &self,
        header: RequestHeader,
        (fixed, payload): (Vec<u8>, Vec<u8>),
        go_on: impl FnOnce(Result<&[u8], i32>) + Send + 'a,
    ) {
        self.0.put(LongRequest { header, fixed, payload, go_on: Box::new(go_on) });
    }

    /// Answers requests until no more come.
    pub fn run(&self, service: &dyn Service) {
        while let Some(LongRequest { header, fixed, mut payload, go_on }) = self.0.next() {
            let used = payload.len();
            payload.resize(PAYLOAD_LENGTH_MAX, 0);
            let answer = service::answer(service, &header, &fixed, &mut payload, used);
            go_on(answer.map(|length| &payload[..length]));
        }
    }

    /// No more come once the returned value is dropped.
    pub fn ends(&self) -> impl Sized {
        self.0.ends()
    }
}
