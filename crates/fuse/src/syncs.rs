//! Syncs, which wait for the disk on threads of their own.
//!
//! If the threads that take requests waited for syncs, the requests after a sync would wait for the disk
//! too. And syncs that wait together share a commit.

use crate::backlog::Backlog;
use crate::service::{self, Service};
use crate::wire::{Opcode, RequestHeader};

/// The fewest and the most threads that sync.
const THREADS_MIN: usize = 32;
const THREADS_MAX: usize = 64;

/// Continues a finished sync: its answer is zero bytes long, or an errno below zero.
type GoOn<'a> = Box<dyn FnOnce(Result<usize, i32>) + Send + 'a>;

struct Sync<'a> {
    header: RequestHeader,
    fixed: Vec<u8>,
    go_on: GoOn<'a>,
}

/// Syncs that wait for a thread.
pub(crate) struct Syncs<'a>(Backlog<Sync<'a>>);

impl<'a> Syncs<'a> {
    pub fn new() -> Syncs<'a> {
        Syncs(Backlog::new())
    }

    /// How many threads are to [`run`](Syncs::run) beside `others` that take requests.
    pub fn threads_beside(others: usize) -> usize {
        (2 * others).clamp(THREADS_MIN, THREADS_MAX)
    }

    /// Whether a request is a sync.
    pub fn is_sync(header: &RequestHeader) -> bool {
        let syncs = [Opcode::Sync, Opcode::SyncDirectory, Opcode::SyncFileSystem];
        syncs.iter().any(|operation| header.operation == *operation as u32)
    }

    /// Answers a sync on another thread, and calls `go_on` there.
    pub fn put(
        &self,
        header: RequestHeader,
        fixed: Vec<u8>,
        go_on: impl FnOnce(Result<usize, i32>) + Send + 'a,
    ) {
        self.0.put(Sync { header, fixed, go_on: Box::new(go_on) });
    }

    /// Answers syncs until no more come.
    pub fn run(&self, service: &dyn Service) {
        while let Some(Sync { header, fixed, go_on }) = self.0.next() {
            go_on(service::answer(service, &header, &fixed, &mut [], 0));
        }
    }

    /// No more come once the returned value is dropped.
    pub fn ends(&self) -> impl Sized {
        self.0.ends()
    }
}
