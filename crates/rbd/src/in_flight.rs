//! Requests that are under way.
//!
//! A write returns as soon as it is sent, as it does on a disk with a cache. A change waits for those that it
//! overlaps, and so does a read: they happen in the order in which they were asked for. The time limit of a
//! request counts from its sending.
//!
//! # State
//!
//! The ranges of all changes under way, which don't overlap, and the first failure. After a change has failed
//! nothing is read or written any more: what was reported as written isn't there. Where nothing is written, only
//! the request fails that isn't answered.
//!
//! # Locking
//!
//! [`RBD_IN_FLIGHT`] is held to look and to change the list. A thread of librbd takes it when a change is
//! answered, then [`RBD_ANSWER`] of the request.

use crate::image::{Image, RequestKind};
use drystone_blockdev::OpenMode;
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, Condvar, LockClass, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

static RBD_IN_FLIGHT: LockClass = LockClass::new("rbd requests", 955);
static RBD_ANSWER: LockClass = LockClass::new("rbd answer", 960);

/// Bytes of changes that may be under way at once.
const BYTES_MAX: usize = 64 << 20;
/// Changes that may be under way at once. Those without data count as no bytes.
const CHANGES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct InFlight {
    image: Arc<Image>,
    mode: OpenMode,
    timeout: Duration,
    changes: Arc<Mutex<ChangesInFlight>>,
}

#[derive(Debug, Default)]
struct ChangesInFlight {
    by_offset: BTreeMap<u64, Arc<ChangeInFlight>>,
    bytes: usize,
    /// What every request is told since one has failed.
    failed: Option<String>,
}

/// A change of a range.
#[derive(Debug)]
struct ChangeInFlight {
    end: u64,
    sent: Instant,
    answer: Answer<()>,
}

/// The result of a request, when it is there.
#[derive(Debug)]
struct Answer<T> {
    result: Mutex<Option<io::Result<T>>>,
    arrived: Condvar,
}

impl<T> Answer<T> {
    fn new() -> Answer<T> {
        Answer { result: Mutex::new(&RBD_ANSWER, None), arrived: Condvar::new() }
    }

    fn set(&self, result: io::Result<T>) {
        *self.result.lock() = Some(result);
        self.arrived.notify_all();
    }

    /// Waits; `None` if it takes too long.
    fn wait(&self, timeout: Duration) -> Option<io::Result<T>> {
        let mut result = self.result.lock();
        self.arrived.wait_while_timeout(&mut result, timeout, |result| result.is_none());
        result.take()
    }

    fn wait_until_there(&self, timeout: Duration) -> bool {
        let mut result = self.result.lock();
        !self.arrived.wait_while_timeout(&mut result, timeout, |result| result.is_none())
    }
}

impl InFlight {
    pub fn new(image: Arc<Image>, mode: OpenMode, timeout: Duration) -> InFlight {
        let changes = Arc::new(Mutex::new(&RBD_IN_FLIGHT, ChangesInFlight::default()));
        InFlight { image, mode, timeout, changes }
    }

    /// Whether nothing is read or written any more.
    pub fn has_failed(&self) -> bool {
        self.changes.lock().failed.is_some()
    }

    /// Reads a range.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        while let Some(change) = self.look(|changes| changes.overlapping(offset, end))? {
            self.await_change(&change)?;
        }
        let data = self.ask(RequestKind::Read, offset, buffer.len())?;
        buffer.copy_from_slice(&data);
        Ok(())
    }

    /// Sends a change of a range. If it is to be durable, waits for it.
    pub fn change(
        &self,
        kind: RequestKind,
        offset: u64,
        length: usize,
        data: Vec<u8>,
    ) -> io::Result<()> {
        let end = offset + length as u64;
        let bytes = data.len();
        let change = loop {
            match self.look(|changes| changes.add(offset, end, bytes))? {
                Ok(change) => break change,
                Err(in_way) => self.await_change(&in_way)?,
            }
        };
        let (changes, answered) = (Arc::clone(&self.changes), Arc::clone(&change));
        self.image.begin_request(kind, offset, length, data, move |result| {
            let result = match result {
                // A hint: the medium may not be able to.
                Err(error) if kind == RequestKind::Discard && is_unsupported(&error) => Ok(()),
                result => result.map(drop),
            };
            let mut changes = changes.lock();
            changes.by_offset.remove(&offset);
            changes.bytes -= bytes;
            if let Err(error) = &result {
                changes.fail(error);
            }
            answered.answer.set(result);
        });
        if kind == RequestKind::WriteDurably {
            self.await_change(&change)?;
            self.look(|_| ())?;
        }
        Ok(())
    }

    /// Waits until all changes so far are durable.
    pub fn flush(&self) -> io::Result<()> {
        let changes =
            self.look(|changes| changes.by_offset.values().cloned().collect::<Vec<_>>())?;
        for change in changes {
            self.await_change(&change)?;
        }
        let flushed = self.ask(RequestKind::Flush, 0, 0);
        if let Err(error) = &flushed {
            self.changes.lock().fail(error);
        }
        self.look(|_| ())?;
        flushed.map(drop)
    }

    /// Sends a request that changes nothing, and waits for it.
    fn ask(&self, kind: RequestKind, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let answer = Arc::new(Answer::new());
        let answered = Arc::clone(&answer);
        let done = move |result| answered.set(result);
        self.image.begin_request(kind, offset, length, Vec::new(), done);
        answer.wait(self.timeout).unwrap_or_else(|| Err(self.give_up()))
    }

    fn await_change(&self, change: &ChangeInFlight) -> io::Result<()> {
        let left = self.timeout.saturating_sub(change.sent.elapsed());
        match change.answer.wait_until_there(left) {
            true => Ok(()),
            false => Err(self.give_up()),
        }
    }

    /// Looks at what is under way, unless something has failed.
    fn look<T>(&self, look: impl FnOnce(&mut ChangesInFlight) -> T) -> io::Result<T> {
        let mut changes = self.changes.lock();
        match &changes.failed {
            Some(error) => Err(io::Error::other(error.clone())),
            None => Ok(look(&mut changes)),
        }
    }

    /// Ends all use of the image, if it is written: the cluster doesn't answer.
    fn give_up(&self) -> io::Error {
        let problem = format!("no answer of the cluster for {} s", self.timeout.as_secs());
        let error = io::Error::new(io::ErrorKind::TimedOut, problem);
        if self.mode == OpenMode::ReadWrite {
            self.changes.lock().fail(&error);
        }
        error
    }
}

impl ChangesInFlight {
    fn overlapping(&self, offset: u64, end: u64) -> Option<Arc<ChangeInFlight>> {
        // They don't overlap each other, so the last that begins before the end also ends last.
        let (_, change) = self.by_offset.range(..end).next_back()?;
        (change.end > offset).then(|| Arc::clone(change))
    }

    /// A change to wait for before so many bytes more are sent.
    fn first_if_full(&self, bytes: usize) -> Option<Arc<ChangeInFlight>> {
        let first = self.by_offset.values().next()?;
        let is_full = self.bytes + bytes > BYTES_MAX || self.by_offset.len() >= CHANGES_MAX;
        is_full.then(|| Arc::clone(first))
    }

    /// Adds a change that is sent now; an error is one to wait for first.
    fn add(
        &mut self,
        offset: u64,
        end: u64,
        bytes: usize,
    ) -> Result<Arc<ChangeInFlight>, Arc<ChangeInFlight>> {
        let in_way = self.overlapping(offset, end).or_else(|| self.first_if_full(bytes));
        if let Some(in_way) = in_way {
            return Err(in_way);
        }
        let change = Arc::new(ChangeInFlight { end, sent: clock::now(), answer: Answer::new() });
        self.by_offset.insert(offset, Arc::clone(&change));
        self.bytes += bytes;
        Ok(change)
    }

    fn fail(&mut self, error: &io::Error) {
        if self.failed.is_none() {
            let until = "until the image is opened again";
            let problem = format!("nothing more is read or written {until}: {error}");
            tracing::error!("{problem}");
            self.failed = Some(problem);
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_bounded_by_their_number_and_bytes() {
        let mut changes = ChangesInFlight::default();
        for number in 0..CHANGES_MAX as u64 {
            assert!(changes.add(number * 8, number * 8 + 8, 0).is_ok());
        }
        let end = CHANGES_MAX as u64 * 8;
        let first = changes.add(end, end + 8, 0).expect_err("too many");
        assert_eq!(first.end, 8);

        let mut changes = ChangesInFlight::default();
        assert!(changes.add(0, 8, BYTES_MAX).is_ok());
        assert!(changes.add(8, 16, 1).is_err());
        assert!(changes.add(8, 16, 0).is_ok());
        assert_eq!(changes.add(12, 20, 0).expect_err("they overlap").end, 16);
    }
}
