//! The ring of one thread: commands in, completions out.

use super::buffers::Entries;
use crate::wire::ring::{
    BUFFERS_PER_ENTRY, COMMAND_COMMIT_AND_FETCH, COMMAND_REGISTER, RingCommand,
};
use drystone_sync::thread;
use io_uring::{IoUring, cqueue, opcode::PollAdd, opcode::UringCmd80, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The first file of the ring: the device.
const DEVICE: types::Fixed = types::Fixed(0);

/// The second: what wakes the ring's thread.
const WAKE: types::Fixed = types::Fixed(1);

/// In place of an entry's number, for the wait for the second file.
const WOKEN: u64 = u64::MAX;

/// Something that can be read (`POLLIN`).
const READABLE: u32 = 1;

/// Where `len` is in a submission entry (`struct io_uring_sqe`).
const LENGTH_OFFSET: usize = 24;

/// How long to wait before the next try if the kernel is short of memory, or of room for
/// completions.
const MOMENT: Duration = Duration::from_millis(1);

/// A ring whose commands are all about the FUSE device.
pub(super) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

/// True if a later try may succeed.
fn is_momentary(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::BUSY))
}

/// A command that the kernel has finished.
pub(super) enum Completion {
    /// A command of this entry, which now holds a request, or an error.
    Entry(usize, Result<(), Errno>),
    /// Another thread has something for this one.
    Woken,
}

impl Ring {
    /// Makes a ring with room for a command per entry, to be used by this thread only.
    pub(super) fn new(entries: usize) -> io::Result<Ring> {
        let size = u32::try_from((entries + 1).next_power_of_two()).map_err(|_| Errno::INVAL)?;
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(size)?;
        Ok(Ring { ring })
    }

    /// Sets the device that all commands are about, and the file by which others wake this thread.
    pub(super) fn use_files(
        &mut self,
        device: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.ring.submitter().register_files(&[device.as_raw_fd(), wake.as_raw_fd()])?;
        // Saves looking up the descriptor of the ring at each call; old kernels can't.
        let _ = self.ring.submitter().register_ring_fd();
        Ok(())
    }

    /// Offers an entry for the first time, at once.
    pub(super) fn register(
        &mut self,
        entry: usize,
        queue: u16,
        entries: &mut Entries,
    ) -> io::Result<()> {
        let mut command = self.command(COMMAND_REGISTER, entry, &RingCommand::new(queue, 0));
        self.set_buffers(&mut command, entries.lend(entry).addr() as u64);
        self.push(&command);
        // The kernel reads the description while it takes the command, which is now.
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_momentary(&error) => thread::sleep(MOMENT),
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands over the answer in an entry and offers the entry again, with the next wait.
    pub(super) fn commit(&mut self, entry: usize, queue: u16, commit_id: u64) {
        let command =
            self.command(COMMAND_COMMIT_AND_FETCH, entry, &RingCommand::new(queue, commit_id));
        self.push(&command);
    }

    /// Asks for one completion when this thread is woken.
    pub(super) fn await_waking(&mut self) {
        let command = PollAdd::new(WAKE, READABLE).build().user_data(WOKEN);
        self.push(&command.into());
    }

    /// Hands over all commands and waits until one is finished. If the kernel can't take them for the
    /// moment, possibly none is finished: completions have to be taken before the next try.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_momentary(&error) => {
                    thread::sleep(MOMENT);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next finished command, without waiting.
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        let completion = self.ring.completion().next()?;
        let result = match completion.result() {
            0.. => Ok(()),
            errno => Err(Errno::from_raw_os_error(-errno)),
        };
        Some(match completion.user_data() {
            WOKEN => Completion::Woken,
            // Only `command` sets this, from a `usize`.
            entry => Completion::Entry(entry as usize, result),
        })
    }

    fn command(&self, number: u32, entry: usize, command: &RingCommand) -> squeue::Entry128 {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        UringCmd80::new(DEVICE, number).cmd(bytes).build().user_data(entry as u64)
    }

    /// Points a command to the buffers of its entry, for which the library has no words.
    fn set_buffers(&self, command: &mut squeue::Entry128, description: u64) {
        const ADDRESS_OFFSET: usize = 16;
        let place = std::ptr::from_mut(command).cast::<u8>();
        // SAFETY: a submission entry is the kernel's structure of 128 bytes, as the library promises;
        // both fields are inside of it, and any bits are valid in them.
        unsafe {
            place.add(ADDRESS_OFFSET).cast::<u64>().write_unaligned(description);
            place.add(LENGTH_OFFSET).cast::<u32>().write_unaligned(BUFFERS_PER_ENTRY);
        }
    }

    fn push(&mut self, command: &squeue::Entry128) {
        // SAFETY: the files are registered with the ring, and the buffers of a `REGISTER` command stay
        // mapped until the kernel has given back all entries, or for ever (`Entries::lend`).
        let pushed = unsafe { self.ring.submission().push(command) };
        // An entry has one command at a time, and there is room for one per entry and the waking.
        assert!(pushed.is_ok(), "more commands than entries");
    }
}
