//! Requests that come through io_uring: one ring per thread, and one or more pinned threads per core.
//!
//! A request is answered on the core where its caller runs, without a lock that cores share and
//! with one system call, which hands over the answer and waits for the next request. Data is read
//! into and written from the buffer that the kernel copies to and from. While much is written, a
//! thread may leave its core ([`CoreAffinity`]).
//!
//! # State
//! All rings are made, each on its thread, before the kernel is told that there will be rings: it lets
//! every request wait until each queue has one. Every entry is either the kernel's (from a command to
//! its completion) or ours (from there to the next command).
//!
//! The kernel never moves a request to another entry, and gives a thread's entries to most requests of its core, one
//! after the other. So a thread doesn't do what may take long: the request stays in its entry, which stays ours,
//! and the thread goes on with the others. That holds for requests that wait for the kernel to write, for the end of
//! a freeze or for another thread that [serves](LongRequests) them. Syncs
//! may take all entries, since they end by themselves. What the kernel writes needs an entry, so not all
//! entries wait for that. The kernel gets all entries at the start: an entry that it gets later serves only
//! requests that come after it, not those that wait already.
//!
//! # Locking
//! None but that of the [mailbox](mailbox::Mailbox), for requests that have waited.
//!
//! # Reference
//! "FUSE-over-io-uring design documentation" of the kernel; io_uring(7).
#![allow(unsafe_code)]

mod affinity;
mod buffers;
mod commands;
mod mailbox;

use crate::device::Readers;
use crate::long_requests::{LongRequests, PAYLOAD_LENGTH_MAX};
use crate::service;
use crate::session_options::SessionOptions;
use crate::wire::ring::EntryHeaders;
use crate::wire::{Opcode, ReplyHeader, RequestHeader, read_header};
use crate::write_back::Content;
use affinity::CoreAffinity;
use buffers::Entries;
use commands::{Completion, Ring};
use drystone_sync::Arc;
use mailbox::{Mailbox, Waited};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use zerocopy::IntoBytes;

/// Where the system says which cores there may be.
const POSSIBLE_CORES: &str = "/sys/devices/system/cpu/possible";

/// The part of a session that one thread serves.
pub(crate) struct Queue {
    number: u16,
    entries: usize,
    payload_length: usize,
}

/// The queues for all cores that the machine may have: the kernel uses rings only when each of them
/// has one.
///
/// # Errors
///
/// The number of possible cores can't be read.
pub(crate) fn queues(options: &SessionOptions) -> io::Result<Vec<Queue>> {
    let entries = options.entries_per_ring.max(1);
    let cores = core_count()?;
    let per_core = options.threads_per_core.max(1);
    let payload_length = options.payload_length(rustix::param::page_size());
    Ok((0..cores)
        .flat_map(|number| std::iter::repeat_n(number, per_core))
        .map(|number| Queue { number, entries, payload_length })
        .collect())
}

/// The number of cores that the machine may have, each of which needs a ring: more than this process may use
/// where it is kept to some of them.
///
/// # Errors
///
/// It can't be read.
pub(crate) fn core_count() -> io::Result<u16> {
    possible_cores(&std::fs::read_to_string(POSSIBLE_CORES)?)
        .ok_or_else(|| io::Error::other(format!("can't understand {POSSIBLE_CORES}")))
}

/// The number of cores in a list like `0-3` or `0-3,8-11`: the kernel counts them all.
fn possible_cores(list: &str) -> Option<u16> {
    let numbers = list.trim().split([',', '-']);
    numbers
        .map(|number| number.parse::<u16>().ok())
        .try_fold(0, |most, number| Some(most.max(number?.checked_add(1)?)))
}

impl Queue {
    /// Makes the ring of this queue, which the calling thread is to serve.
    ///
    /// # Errors
    ///
    /// What the system says if it has no io_uring, or no more descriptors or memory for one.
    pub(crate) fn make(self, device: BorrowedFd<'_>) -> io::Result<Made> {
        let affinity = CoreAffinity::on_core(self.number);
        let mailbox = Arc::new(Mailbox::new()?);
        let mut ring = Ring::new(self.entries)?;
        ring.use_files(device, mailbox.wake())?;
        let entries = Entries::new(self.entries, self.payload_length)?;
        Ok(Made { number: self.number, affinity, ring, entries, mailbox })
    }
}

/// A queue with its ring, of which the kernel knows nothing yet.
pub(crate) struct Made {
    number: u16,
    affinity: CoreAffinity,
    ring: Ring,
    entries: Entries,
    mailbox: Arc<Mailbox>,
}

impl Made {
    /// Answers requests of this queue until the mount is gone.
    ///
    /// # Errors
    ///
    /// The kernel doesn't take the ring.
    pub(crate) fn serve(self, readers: &Readers<'_, '_>) -> io::Result<()> {
        let Made { number, affinity, ring, entries, mailbox } = self;
        let alive = entries.count();
        let waits = vec![None; alive];
        let mut serving =
            ServedQueue { number, affinity, ring, entries, readers, mailbox, alive, waits };
        for index in 0..alive {
            serving.ring.register(index, number, &mut serving.entries)?;
        }
        serving.answer_all()?;
        serving.entries.are_back();
        Ok(())
    }
}

/// What a request waits for that stays in its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// A sync.
    Sync,
    /// Another thread that serves it.
    LongRequest,
    /// The kernel to write what it has gathered.
    WriteBack,
    /// The end of a freeze.
    Thaw,
    /// The kernel to drop what it has cached, but not for long.
    Drop,
}

/// Whether a request may wait for something in its entry. `waits` is for each entry what it waits for;
/// `alive` of them are in use.
fn may_wait(waits: &[Option<WaitsFor>], alive: usize, waits_for: WaitsFor) -> bool {
    let others = || waits.iter().flatten();
    match waits_for {
        WaitsFor::Sync => true,
        // All other entries come back in any case.
        WaitsFor::WriteBack | WaitsFor::Thaw | WaitsFor::LongRequest => {
            let is_open_ended =
                |other: &&WaitsFor| **other != WaitsFor::Sync && **other != WaitsFor::Drop;
            others().filter(is_open_ended).count() + 1 < alive
        }
        WaitsFor::Drop => others().count() + 1 < alive,
    }
}

/// A queue while it is served.
struct ServedQueue<'r, 'a> {
    number: u16,
    affinity: CoreAffinity,
    ring: Ring,
    entries: Entries,
    readers: &'r Readers<'r, 'a>,
    mailbox: Arc<Mailbox>,
    /// Entries that the kernel hasn't given back for good.
    alive: usize,
    /// For each entry what its request waits for, if it does.
    waits: Vec<Option<WaitsFor>>,
}

impl ServedQueue<'_, '_> {
    fn answer_all(&mut self) -> io::Result<()> {
        let mut served = false;
        self.ring.await_waking();
        while self.alive > 0 {
            self.ring.wait()?;
            while let Some(completion) = self.ring.next_completion() {
                match completion {
                    Completion::Woken => {
                        for (entry, waited) in self.mailbox.take() {
                            self.waits[entry] = None;
                            let waited = match waited {
                                Waited::Thawed => self.answer_or_wait(entry),
                                waited => Some(waited),
                            };
                            if let Some(waited) = waited {
                                self.answer(entry, waited);
                            }
                        }
                        self.ring.await_waking();
                    }
                    Completion::Entry(entry, Ok(())) => {
                        served = true;
                        if let Some(waited) = self.answer_or_wait(entry) {
                            self.answer(entry, waited);
                        }
                    }
                    // The mount is gone.
                    Completion::Entry(_, Err(Errno::NOTCONN)) => self.alive -= 1,
                    Completion::Entry(entry, Err(Errno::INTR | Errno::AGAIN)) if !served => {
                        self.ring.register(entry, self.number, &mut self.entries)?;
                    }
                    Completion::Entry(_, Err(errno)) if !served => return Err(errno.into()),
                    Completion::Entry(entry, Err(errno)) => {
                        tracing::error!("queue {}, entry {entry}: {errno}", self.number);
                        self.alive -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// The answer to the request in an entry; `None` if it waits.
    fn answer_or_wait(&mut self, entry: usize) -> Option<Waited> {
        let (EntryHeaders { header, fixed, state }, payload) = self.entries.ours(entry);
        let Ok(header) = read_header(header) else { return Some(Waited::GoesOn) };
        let used = (state.payload_length as usize).min(payload.len());
        let fixed = &fixed[..fixed_length(&header, self.readers).min(fixed.len())];
        let service = self.readers.service;
        let waits_for_thaw = service.waits_for_thaw(&header, fixed);
        let is_sync = LongRequests::is_sync(&header);
        let takes_long = || service.takes_long(&header, fixed);
        let takes_long = service::surviving(takes_long).unwrap_or(false);
        let needs_write_back = service.needs_write_back(&header, fixed, &payload[..used]);
        if !waits_for_thaw && !is_sync && !takes_long && !needs_write_back {
            return Some(Waited::GoesOn);
        }
        let (fixed, payload) = (fixed.to_vec(), payload[..used.min(PAYLOAD_LENGTH_MAX)].to_vec());
        let mailbox = Arc::clone(&self.mailbox);
        // If no entry would be left, the request waits in this thread.
        if waits_for_thaw && self.put_aside(entry, WaitsFor::Thaw) {
            self.readers.thaws.put(Box::new(move || mailbox.put(entry, Waited::Thawed)));
            return None;
        }
        if (is_sync && self.put_aside(entry, WaitsFor::Sync))
            || (takes_long && self.put_aside(entry, WaitsFor::LongRequest))
        {
            self.readers.long_requests.put(header, (fixed, payload), move |answer| {
                mailbox.put(entry, Waited::Served(answer.map(Box::from)));
            });
            return None;
        }
        if !needs_write_back {
            return Some(Waited::GoesOn);
        }
        let failed = move |errno| Waited::Answered(service::without_write_back(&header, errno));
        if !self.put_aside(entry, WaitsFor::WriteBack) {
            return Some(failed(Errno::BUSY));
        }
        self.readers.write_backs.write_back(Content::all(header.node), move |written| {
            mailbox.put(entry, written.map_or_else(failed, |()| Waited::GoesOn));
        });
        None
    }

    /// Notes that the request in an entry waits; false if it [may not](may_wait).
    fn put_aside(&mut self, entry: usize, waits_for: WaitsFor) -> bool {
        let may_wait = may_wait(&self.waits, self.alive, waits_for);
        self.waits[entry] = may_wait.then_some(waits_for);
        may_wait
    }

    /// Answers the request in an entry and offers the entry again, unless the answer has to wait.
    fn answer(&mut self, entry: usize, waited: Waited) {
        let (EntryHeaders { state, .. }, payload) = self.entries.ours(entry);
        self.affinity.took(state.payload_length as usize);
        let result = match waited {
            Waited::Answered(result) => result,
            Waited::Served(answer) => answer.map(|answer| {
                payload[..answer.len()].copy_from_slice(&answer);
                answer.len()
            }),
            Waited::GoesOn | Waited::Thawed => {
                let (result, outdated) = serve_one(&mut self.entries, entry, self.readers);
                if let Some(content) = outdated
                    && self.answers_after_drop(entry, content, result)
                {
                    return;
                }
                result
            }
        };
        let commit_id = put_answer(&mut self.entries, entry, result);
        self.ring.commit(entry, self.number, commit_id);
    }

    /// Has the kernel drop content, and puts the answer of a request that succeeded aside until it has. False
    /// if the content is dropped after the answer, also because no entry would be left for other requests.
    fn answers_after_drop(
        &mut self,
        entry: usize,
        content: Content,
        result: Result<usize, i32>,
    ) -> bool {
        if result.is_err() || !self.put_aside(entry, WaitsFor::Drop) {
            self.readers.write_backs.drop_soon(content);
            return false;
        }
        let mailbox = Arc::clone(&self.mailbox);
        self.readers.write_backs.answer_after_drop(content, move || {
            mailbox.put(entry, Waited::Answered(result));
        });
        true
    }
}

/// Bytes of the fixed part of a request.
fn fixed_length(header: &RequestHeader, readers: &Readers<'_, '_>) -> usize {
    Opcode::from_code(header.operation)
        .map_or(0, |operation| readers.layouts.fixed_length(operation))
}

/// Carries out the request in an entry. Returns its answer, and the content that the kernel has to drop
/// because of it ([`service::outdated`]).
fn serve_one(
    entries: &mut Entries,
    index: usize,
    readers: &Readers<'_, '_>,
) -> (Result<usize, i32>, Option<Content>) {
    let (EntryHeaders { header: area, fixed, state }, payload) = entries.ours(index);
    // The area is longer than a header.
    let Ok(header) = read_header(area) else { return (Err(-Errno::IO.raw_os_error()), None) };
    let used = (state.payload_length as usize).min(payload.len());
    let fixed = &fixed[..fixed_length(&header, readers).min(fixed.len())];
    let result = service::answer(readers.service, &header, fixed, payload, used);
    (result, service::outdated(readers.service, &header, fixed, result))
}

/// Puts the answer to a request into its entry, where the payload is already, and returns the number
/// by which it is committed.
fn put_answer(entries: &mut Entries, index: usize, result: Result<usize, i32>) -> u64 {
    let (EntryHeaders { header: area, state, .. }, _) = entries.ours(index);
    let unique = read_header(area).map_or(0, |header| header.unique);
    let (error, length) = match result {
        Ok(length) => (0, length),
        Err(errno) => (errno, 0),
    };
    // A payload is at most as long as its buffer, which is below 4 GiB.
    state.payload_length = length as u32;
    let length = (size_of::<ReplyHeader>() + length) as u32;
    let reply = ReplyHeader { length, error, unique };
    area[..size_of::<ReplyHeader>()].copy_from_slice(reply.as_bytes());
    state.commit_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_left_or_comes_back() {
        use WaitsFor::{Drop, LongRequest, Sync, Thaw, WriteBack};
        let may = |waits: [Option<WaitsFor>; 3]| {
            for open_ended in [Thaw, LongRequest] {
                assert_eq!(may_wait(&waits, 3, WriteBack), may_wait(&waits, 3, open_ended));
            }
            [Sync, WriteBack, Drop].map(|waits_for| may_wait(&waits, 3, waits_for))
        };
        assert_eq!(may([None, None, None]), [true, true, true]);
        assert_eq!(may([Some(WriteBack), None, None]), [true, true, true]);
        assert_eq!(may([Some(WriteBack), Some(Thaw), None]), [true, false, false]);
        assert_eq!(may([Some(WriteBack), Some(Sync), None]), [true, true, false]);
        assert_eq!(may([Some(Drop), Some(Sync), None]), [true, true, false]);
        assert!(!may_wait(&[None], 1, WriteBack));
    }

    #[test]
    fn cores_are_counted() {
        assert_eq!(possible_cores("0\n"), Some(1));
        assert_eq!(possible_cores("0-1\n"), Some(2));
        assert_eq!(possible_cores("0-3,8-11"), Some(12));
        assert_eq!(possible_cores("x"), None);
        assert_eq!(possible_cores("0-65535"), None);
    }
}
