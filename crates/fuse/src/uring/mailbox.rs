//! What other threads have for the thread of a ring, which waits in its ring.

use drystone_sync::{LockClass, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

static MAILBOX: LockClass = LockClass::new("requests of a ring that have waited", 5);

/// Requests that have waited, and how their wait ended.
pub(super) struct Mailbox {
    wake: OwnedFd,
    written: Mutex<Vec<(usize, Result<(), Errno>)>>,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { wake, written: Mutex::new(&MAILBOX, Vec::new()) })
    }

    /// Can be read while there is something.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Tells how the wait of the request in an entry ended.
    pub(super) fn put(&self, entry: usize, written: Result<(), Errno>) {
        self.written.lock().push((entry, written));
        // It can't fail: the counter is far from full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Everything that has come.
    pub(super) fn take(&self) -> Vec<(usize, Result<(), Errno>)> {
        // First, so that what comes meanwhile wakes the thread again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.written.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_can_be_taken_once() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.put(1, Ok(()));
        mailbox.put(0, Err(Errno::INVAL));
        assert_eq!(mailbox.take(), [(1, Ok(())), (0, Err(Errno::INVAL))]);
        assert_eq!(mailbox.take(), []);
        // Nothing is there to be read either.
        assert_eq!(rustix::io::read(&mailbox.wake, &mut [0; 8]), Err(Errno::AGAIN));
    }
}
