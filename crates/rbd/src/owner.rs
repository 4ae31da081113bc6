//! The one client that may write an image.
//!
//! librbd hands the lock of an image over to any client that requests it, unless the owner has acquired it by
//! `rbd_lock_acquire`, as here. So this client never requests a lock that another one has. If the owner
//! acknowledges a notify it is alive, and this client is refused. If it doesn't, its watch ends within half a
//! minute (the cluster's `osd_client_watch_timeout`). Then it is put on the blocklist, so that the cluster refuses
//! whatever it still sends, however late, and its lock is broken.

use crate::image::{Image, LockOwner};
use drystone_sync::clock::{self, Instant};
use drystone_sync::thread;
use std::io;
use std::time::Duration;

/// Time between two looks at an owner that doesn't answer.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long its watch may last, at least: twice what is usual.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the image can't be used.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// A client has the lock that is alive, or may be: its name, and what to do.
    Owned(String),
    /// The cluster's error.
    Failed(io::Error),
}

impl From<io::Error> for NotLocked {
    fn from(error: io::Error) -> NotLocked {
        NotLocked::Failed(error)
    }
}

/// Takes the lock, unless a client has it that is alive.
pub(crate) fn take_lock(image: &Image, timeout: Duration) -> Result<(), NotLocked> {
    let wait = OwnerWait::new(timeout);
    loop {
        let locked = match wait.until_none_is_alive(image)? {
            // librbd would blocklist it for an hour only, and not at all if it is listed already.
            Some(gone) => image.blocklist(&gone.address).and_then(|()| image.lock()),
            None => image.lock(),
        };
        match locked {
            // Another client was faster: see which one.
            Err(error) if is_taken(&error) && !wait.is_over() => thread::sleep(INTERVAL),
            locked => return Ok(locked?),
        }
    }
}

/// Returns when no client has the lock that is alive.
pub(crate) fn await_no_owner(image: &Image, timeout: Duration) -> Result<(), NotLocked> {
    OwnerWait::new(timeout).until_none_is_alive(image).map(drop)
}

/// How long to wait for an owner that doesn't answer.
struct OwnerWait {
    start: Instant,
    timeout: Duration,
}

impl OwnerWait {
    fn new(timeout: Duration) -> OwnerWait {
        OwnerWait { start: clock::now(), timeout: timeout.max(WATCH_TIMEOUT) }
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() > self.timeout
    }

    /// Waits as long as the owner may be alive; returns it if it is gone without giving back its lock.
    fn until_none_is_alive(&self, image: &Image) -> Result<Option<LockOwner>, NotLocked> {
        loop {
            let Some(owner) = image.lock_owner()? else { return Ok(None) };
            match owner_state(image, &owner)? {
                OwnerState::Alive => {
                    let remedy = "close or unmount it there, or read a snapshot of it";
                    return Err(NotLocked::Owned(format!("{owner}; {remedy}")));
                }
                OwnerState::Advisory => {
                    let LockOwner { client, cookie, .. } = &owner;
                    return Err(NotLocked::Owned(format!(
                        "{owner}, which has an advisory lock; if it is out of date, \
                         'rbd lock remove POOL/IMAGE \"{cookie}\" {client}' removes it"
                    )));
                }
                OwnerState::Gone => return Ok(Some(owner)),
                OwnerState::Silent if self.is_over() => {
                    let remedy = "end it there, or break its lock with 'rbd lock remove'";
                    return Err(NotLocked::Owned(format!(
                        "{owner}, which watches it but doesn't answer; {remedy}"
                    )));
                }
                OwnerState::Silent | OwnerState::Changed => thread::sleep(INTERVAL),
            }
        }
    }
}

enum OwnerState {
    Alive,
    /// It still watches the image, but doesn't answer.
    Silent,
    /// It has lost its watch, but not its lock.
    Gone,
    /// It no longer is the owner.
    Changed,
    /// The lock is one of `rbd lock add`, which a person sets and removes. Its client has ended long since.
    Advisory,
}

fn owner_state(image: &Image, owner: &LockOwner) -> io::Result<OwnerState> {
    if owner.is_advisory {
        return Ok(OwnerState::Advisory);
    }
    let number = owner.number()?;
    if !image.watchers()?.contains(&number) {
        // A client that closes the image gives back the lock before it ends its watch: if it was closed only now, it
        // hasn't the lock any more. Another owner, or the same client with a new watch, has another cookie.
        let is_still = image.lock_owner()?.as_ref() == Some(owner);
        return Ok(if is_still { OwnerState::Gone } else { OwnerState::Changed });
    }
    let answers = image.answering()?.contains(&number);
    Ok(if answers { OwnerState::Alive } else { OwnerState::Silent })
}

/// Whether an error says that another client has the lock.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::WouldBlock)
}
