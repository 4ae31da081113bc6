//! Requests that come through io_uring: one ring per thread, one pinned thread per core.
//!
//! A request is answered on the core where its caller runs, without a lock that cores share and
//! with one system call, which hands over the answer and waits for the next request. Data is read
//! into and written from the buffer that the kernel copies to and from.
//!
//! # State
//! A [`Queue`] is made before the kernel is told that there will be rings, so that a machine without
//! io_uring is noticed in time. Its ring lives on its thread. Every entry is either the kernel's
//! (from a command to its completion) or ours (from there to the next command).
//!
//! # Locking
//! None.
//!
//! # Reference
//! "FUSE-over-io-uring design documentation" of the kernel; io_uring(7).
#![allow(unsafe_code)]

mod buffers;
mod commands;

use crate::session::{self, Service, SessionOptions};
use crate::wire::ring::EntryHeaders;
use crate::wire::{Layouts, Operation, ReplyHeader, read_header};
use buffers::Entries;
use commands::{Completion, Ring};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::AsFd;
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
/// What the system says if there is no io_uring.
pub(crate) fn queues(options: &SessionOptions) -> io::Result<Vec<Queue>> {
    let entries = options.entries_per_ring.max(1);
    // That a ring can be made is tried here, where there is still a way back.
    drop(Ring::new(entries)?);
    let cores = possible_cores(&std::fs::read_to_string(POSSIBLE_CORES)?)
        .ok_or_else(|| io::Error::other(format!("can't understand {POSSIBLE_CORES}")))?;
    let per_core = options.threads_per_core.max(1);
    let payload_length = options.transfer_max as usize;
    Ok((0..cores)
        .flat_map(|number| std::iter::repeat_n(number, per_core))
        .map(|number| Queue { number, entries, payload_length })
        .collect())
}

/// The number of cores in a list like `0-3` or `0-3,8-11`: the kernel counts them all.
fn possible_cores(list: &str) -> Option<u16> {
    let numbers = list.trim().split([',', '-']);
    numbers
        .map(|number| number.parse::<u16>().ok())
        .try_fold(0, |most, number| Some(most.max(number?.checked_add(1)?)))
}

impl Queue {
    /// Answers requests of this queue until the mount is gone.
    ///
    /// # Errors
    ///
    /// Why the ring can't be set up; nothing has been served then.
    pub(crate) fn serve(
        self,
        device: impl AsFd,
        service: &dyn Service,
        layouts: Layouts,
    ) -> io::Result<()> {
        let mut core = CpuSet::new();
        core.set(usize::from(self.number));
        // A core that is offline, or that this process may not use, is served from another.
        let _ = rustix::thread::sched_setaffinity(None, &core);
        let mut ring = Ring::new(self.entries)?;
        ring.use_device(device.as_fd())?;
        let mut entries = Entries::new(self.entries, self.payload_length)?;
        for index in 0..self.entries {
            ring.register(index, self.number, &entries)?;
        }
        let result = self.answer_all(&mut ring, &mut entries, service, layouts);
        if result.is_err() {
            // The kernel may still hold entries, which it must be able to write to.
            std::mem::forget(entries);
        }
        result
    }

    fn answer_all(
        &self,
        ring: &mut Ring,
        entries: &mut Entries,
        service: &dyn Service,
        layouts: Layouts,
    ) -> io::Result<()> {
        let mut alive = self.entries;
        let mut served = false;
        while alive > 0 {
            ring.wait()?;
            while let Some(Completion { entry, result }) = ring.next_completion() {
                match result {
                    Ok(()) => {
                        served = true;
                        let commit_id = answer_one(entries, entry, service, layouts);
                        ring.commit(entry, self.number, commit_id);
                    }
                    // The mount is gone.
                    Err(Errno::NOTCONN) => alive -= 1,
                    Err(Errno::INTR | Errno::AGAIN) if !served => {
                        ring.register(entry, self.number, entries)?;
                    }
                    Err(errno) if !served => return Err(errno.into()),
                    Err(errno) => {
                        tracing::error!("queue {}, entry {entry}: {errno}", self.number);
                        alive -= 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Answers the request in an entry; gives what its answer is committed by.
fn answer_one(entries: &mut Entries, index: usize, service: &dyn Service, layouts: Layouts) -> u64 {
    let (EntryHeaders { header: area, fixed, state }, payload) = entries.ours(index);
    let used = (state.payload_length as usize).min(payload.len());
    let (unique, result) = match read_header(area) {
        Ok(header) => {
            let fixed_length = Operation::from_code(header.operation)
                .map_or(0, |operation| layouts.fixed_length(operation));
            let fixed = &fixed[..fixed_length.min(fixed.len())];
            // The thread that would wait for the writes is the one that answers them.
            let result = match service.needs_write_back(&header) {
                true => Err(-Errno::INVAL.raw_os_error()),
                false => session::answer(service, &header, fixed, payload, used),
            };
            (header.unique, result)
        }
        // The area is longer than a header.
        Err(_) => (0, Err(-Errno::IO.raw_os_error())),
    };
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
    fn cores_are_counted() {
        assert_eq!(possible_cores("0\n"), Some(1));
        assert_eq!(possible_cores("0-1\n"), Some(2));
        assert_eq!(possible_cores("0-3,8-11"), Some(12));
        assert_eq!(possible_cores("x"), None);
        assert_eq!(possible_cores("0-65535"), None);
    }
}
