//! Writes from a thread of its own, so that reading the image and writing go on at the same time.
//!
//! # State
//!
//! A few buffers of fixed size go round: one is filled, full ones wait, one is written.
//!
//! # Locking
//!
//! The lock is held for moments, never while anything is written.

use crate::transfer::problem::{Cause, CopyProblem, Side};
use drystone_sources::tar;
use drystone_sync::{Condvar, LockClass, Mutex, thread};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;

static BUFFERS: LockClass = LockClass::new("archive buffers", 6);

/// The size of a buffer.
const BUFFER_BYTES: usize = 1 << 20;
/// How many there are.
const BUFFERS_MAX: usize = 4;
/// Tapes were written in records of this size; tar still fills the last one up.
const RECORD_BYTES: u64 = 10_240;
/// What follows the last entry: two blocks of zeros.
const END_BYTES: u64 = 1024;

struct BufferState {
    /// Buffers to be written, with the length of what is in them.
    full: VecDeque<(Vec<u8>, usize)>,
    empty: Vec<Vec<u8>>,
    error: Option<io::Error>,
    is_complete: bool,
}

/// What both threads see.
struct ArchiveBuffers {
    state: Mutex<BufferState>,
    changed: Condvar,
}

/// The side that is written to.
pub(super) struct ArchiveOutput<'o> {
    shared: &'o ArchiveBuffers,
    current: Vec<u8>,
    used: usize,
    bytes: u64,
}

/// Runs `body` with something to write to, and writes that to `out` meanwhile.
pub(super) fn run<T>(
    out: &mut (dyn Write + Send),
    body: impl FnOnce(&mut ArchiveOutput<'_>) -> Result<T, CopyProblem>,
) -> Result<T, CopyProblem> {
    let empty = vec![vec![0; BUFFER_BYTES]; BUFFERS_MAX - 1];
    let state = BufferState { full: VecDeque::new(), empty, error: None, is_complete: false };
    let shared = ArchiveBuffers { state: Mutex::new(&BUFFERS, state), changed: Condvar::new() };
    let value = thread::scope(|scope| {
        let _end = thread::at_end(|| {
            shared.state.lock().is_complete = true;
            shared.changed.notify_all();
        });
        thread::spawn_in(scope, "archive", || shared.write_all(out)).map_err(|error| {
            let cause = Cause::of_host(&error);
            CopyProblem::new(Side::Target, "start a thread to write", Path::new(""), cause)
        })?;
        let current = vec![0; BUFFER_BYTES];
        let mut output = ArchiveOutput { shared: &shared, current, used: 0, bytes: 0 };
        body(&mut output).and_then(|value| output.send().map(|()| value))
    });
    match shared.state.into_inner().error {
        Some(error) => Err(problem(&error)),
        None => value,
    }
}

impl ArchiveBuffers {
    /// Writes what is full until there is no more to come.
    fn write_all(&self, out: &mut (dyn Write + Send)) {
        let _end = thread::at_end(|| {
            if thread::panicking() {
                self.state.lock().error = Some(io::Error::other("the writing thread panicked"));
                self.changed.notify_all();
            }
        });
        loop {
            let next = {
                let mut state = self.state.lock();
                while state.full.is_empty() && !state.is_complete {
                    self.changed.wait(&mut state);
                }
                state.full.pop_front()
            };
            let Some((buffer, used)) = next else { break };
            let result = out.write_all(&buffer[..used]);
            let mut state = self.state.lock();
            state.empty.push(buffer);
            if let Err(error) = result {
                state.error = Some(error);
            }
            let has_failed = state.error.is_some();
            drop(state);
            self.changed.notify_all();
            if has_failed {
                return;
            }
        }
        if let Err(error) = out.flush() {
            self.state.lock().error = Some(error);
        }
    }
}

impl ArchiveOutput<'_> {
    /// Writes all of `data`.
    pub fn write(&mut self, mut data: &[u8]) -> Result<(), CopyProblem> {
        while !data.is_empty() {
            let space = self.space()?;
            let length = space.len().min(data.len());
            space[..length].copy_from_slice(&data[..length]);
            self.advance(length);
            data = &data[length..];
        }
        Ok(())
    }

    /// Where the next bytes may be put; at least one.
    pub fn space(&mut self) -> Result<&mut [u8], CopyProblem> {
        if self.used == self.current.len() {
            self.send()?;
        }
        Ok(&mut self.current[self.used..])
    }

    /// So many bytes were put there.
    pub fn advance(&mut self, length: usize) {
        self.used += length;
        self.bytes += length as u64;
    }

    /// Ends the archive.
    pub fn end(&mut self) -> Result<(), CopyProblem> {
        let bytes = (self.bytes + END_BYTES).next_multiple_of(RECORD_BYTES) - self.bytes;
        (0..bytes / END_BYTES).try_for_each(|_| self.write(&[0; END_BYTES as usize]))?;
        self.write(&[0; END_BYTES as usize][..(bytes % END_BYTES) as usize])
    }

    /// Cuts the archive off before its time, and gives the error for that.
    pub fn cut(&mut self, is_between_entries: bool) -> CopyProblem {
        let missing = match is_between_entries {
            true => self.write(&tar::cut_off()),
            false => Ok(()),
        };
        missing.and_then(|()| self.send()).err().unwrap_or_else(cancelled)
    }

    /// Hands the buffer over and waits for an empty one.
    fn send(&mut self) -> Result<(), CopyProblem> {
        let mut state = self.shared.state.lock();
        while state.empty.is_empty() && state.error.is_none() {
            self.shared.changed.wait(&mut state);
        }
        if let Some(error) = &state.error {
            return Err(problem(error));
        }
        let Some(next) = state.empty.pop() else { return Ok(()) };
        let full = std::mem::replace(&mut self.current, next);
        state.full.push_back((full, std::mem::take(&mut self.used)));
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }
}

/// The error for an end before its time.
pub(super) fn cancelled() -> CopyProblem {
    CopyProblem::new(Side::Target, "write", Path::new(""), Errno::INTR.into())
}

fn problem(error: &io::Error) -> CopyProblem {
    CopyProblem::new(Side::Target, "write", Path::new(""), Cause::of_host(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_arrives_in_order() {
        let mut out = Vec::new();
        let data: Vec<u8> = (0..7 * BUFFER_BYTES / 2).map(|at| (at / 1000) as u8).collect();
        run(&mut out, |output| {
            data.chunks(70_001).try_for_each(|chunk| output.write(chunk))?;
            output.end()
        })
        .unwrap();
        assert_eq!(out.len() as u64 % RECORD_BYTES, 0);
        assert!(out.starts_with(&data));
        assert!(out[data.len()..].iter().all(|&byte| byte == 0));
        assert!(out.len() - data.len() >= 1024);
    }

    #[test]
    fn an_error_ends_it() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(28))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut rounds = 0;
        let result = run(&mut Full, |output| {
            loop {
                rounds += 1;
                output.write(&[1; BUFFER_BYTES])?;
            }
        });
        let result: Result<(), CopyProblem> = result;
        assert_eq!(result.unwrap_err().cause, Cause::Host(Errno::NOSPC));
        assert!(rounds < 10);
    }
}
