//! The one client that may write an image.
//!
//! librbd gives the lock of an image to any client that asks for it, unless the owner has asked for it by name
//! as here: then it is never handed over. So a client that has the lock is never asked for it. If it answers a
//! notice it is alive, and this client is refused. If it doesn't, its watch ends within half a minute (the
//! cluster's `osd_client_watch_timeout`): then its lock is broken, and the cluster refuses whatever it still
//! sends, however late.

use crate::image::Image;
use drystone_sync::{clock, thread};
use std::io;
use std::time::Duration;

/// How often a client that doesn't answer is looked for.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long its watch may last, at least: twice what is usual.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the lock isn't taken.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// A client has it that is alive, or may be.
    Owned(String),
    /// The cluster's error.
    Failed(io::Error),
}

impl From<io::Error> for NotLocked {
    fn from(error: io::Error) -> NotLocked {
        NotLocked::Failed(error)
    }
}

/// Takes the lock, if no client has it that is alive.
pub(crate) fn take_lock(image: &Image, timeout: Duration) -> Result<(), NotLocked> {
    let start = clock::now();
    let is_late = || start.elapsed() > timeout.max(WATCH_TIMEOUT);
    loop {
        let owner = living_owner(image)?;
        let result = match &owner {
            Owner::Alive(owner) => return Err(NotLocked::Owned(owner.clone())),
            Owner::Silent(_) => Ok(()),
            Owner::None => image.lock(),
            // librbd would do so for an hour only, and what it finds it leaves.
            Owner::Gone(address) => image.lock_out(address).and_then(|()| image.lock()),
        };
        match (owner, result) {
            (Owner::None | Owner::Gone(_), Ok(())) => return Ok(()),
            // Another one was faster: see who.
            (Owner::None | Owner::Gone(_), Err(error)) if !is_taken(&error) || is_late() => {
                return Err(error.into());
            }
            (Owner::Silent(owner), _) if is_late() => {
                return Err(NotLocked::Owned(format!("{owner}, which doesn't answer")));
            }
            _ => thread::sleep(INTERVAL),
        }
    }
}

/// The client that has the lock, and is alive.
pub(crate) fn find_living_owner(image: &Image) -> io::Result<Option<String>> {
    Ok(match living_owner(image)? {
        Owner::Alive(owner) => Some(owner),
        Owner::Silent(_) | Owner::Gone(_) | Owner::None => None,
    })
}

enum Owner {
    Alive(String),
    /// It still watches the image, but doesn't answer.
    Silent(String),
    /// It no longer watches the image: its address.
    Gone(String),
    None,
}

fn living_owner(image: &Image) -> io::Result<Owner> {
    let Some((client, address)) = image.lock_owner()? else { return Ok(Owner::None) };
    let Some(number) = client.strip_prefix("client.").and_then(|number| number.parse().ok()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the lock is of {client}")));
    };
    if !image.watchers()?.contains(&number) {
        return Ok(Owner::Gone(address));
    }
    let name = format!("{client} at {address}");
    let answers = image.answering()?.contains(&number);
    Ok(if answers { Owner::Alive(name) } else { Owner::Silent(name) })
}

/// Whether an error says that another client has the lock.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::WouldBlock)
}
