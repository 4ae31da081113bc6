//! Messages from other threads to the thread of a ring, which waits in its ring.

use drystone_sync::{LockClass, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

static MAILBOX: LockClass = LockClass::new("requests of a ring that have waited", 5);

/// How the wait of a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// It can be served.
    GoesOn,
    /// The image isn't frozen any more; there may be something else to wait for.
    Thawed,
    /// Another thread has served it: the answer's payload, or an errno below zero.
    Served(Result<Box<[u8]>, i32>),
    /// The answer can be given: bytes in its payload, or an errno below zero.
    Answered(Result<usize, i32>),
}

/// Requests that have waited.
pub(super) struct Mailbox {
    wake: OwnedFd,
    waited: Mutex<Vec<(usize, Waited)>>,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { wake, waited: Mutex::new(&MAILBOX, Vec::new()) })
    }

    /// Can be read while there is something.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Tells how the wait of the request in an entry ended.
    pub(super) fn put(&self, entry: usize, waited: Waited) {
        self.waited.lock().push((entry, waited));
        // It can't fail: the counter is far from full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Everything that has come.
    pub(super) fn take(&self) -> Vec<(usize, Waited)> {
        // First, so that a message that comes in the meantime wakes the thread again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.waited.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_is_put_can_be_taken_once() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.put(1, Waited::GoesOn);
        mailbox.put(0, Waited::Answered(Err(-22)));
        assert_eq!(mailbox.take(), [(1, Waited::GoesOn), (0, Waited::Answered(Err(-22)))]);
        assert_eq!(mailbox.take(), []);
        // Nothing is there to be read either.
        assert_eq!(rustix::io::read(&mailbox.wake, &mut [0; 8]), Err(Errno::AGAIN));
    }
}
