//! Snapshots of images, also of those that are mounted.
//!
//! Whoever makes a snapshot, librbd asks all clients that have the image open first. A [`SnapshotWatch`] then
//! has the file system frozen until the snapshot is made.
//!
//! # Locking
//!
//! librbd's threads only leave a note (`notes`). A thread of the watch freezes and thaws.

use crate::RbdAddress;
use crate::device::{close_within, open_error};
use crate::image::Image;
use crate::notes::{SnapshotNote, SnapshotNotes};
use drystone_blockdev::{DeviceError, DeviceResult};
use drystone_sync::{Arc, thread};
use std::fmt::Debug;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A snapshot that isn't made for so long has failed: what is frozen must go on.
const FROZEN_TIMEOUT: Duration = Duration::from_secs(30);

/// What can be frozen for a snapshot.
pub trait Freezing: Send + Sync {
    /// Makes everything durable, and holds changes back.
    ///
    /// # Errors
    ///
    /// It can't be; then there is no snapshot.
    fn freeze(&self) -> io::Result<()>;

    /// Lets changes go on.
    fn thaw(&self);
}

/// Freezes what is on an image for each snapshot of it, until this is dropped.
#[derive(Debug)]
pub struct SnapshotWatch {
    name: String,
    timeout: Duration,
    /// There until this is dropped.
    open: Option<OpenWatch>,
}

#[derive(Debug)]
struct OpenWatch {
    image: Arc<Image>,
    number: u64,
    notes: Arc<SnapshotNotes>,
    worker: thread::JoinHandle<()>,
}

impl SnapshotWatch {
    /// Watches the image of this name, beside the device that is open.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] with what the cluster says.
    pub fn new(name: &str, frozen: Arc<dyn Freezing>) -> DeviceResult<SnapshotWatch> {
        let (address, image) = open(name)?;
        image.begin().map_err(|error| open_error(name, error))?;
        let image = Arc::new(image);
        let notes = Arc::new(SnapshotNotes::default());
        let number = image.watch_snapshots(&notes).map_err(|error| open_error(name, error))?;
        let (of_worker, watched) = (Arc::clone(&notes), Arc::clone(&image));
        let worker = thread::spawn("rbd snapshots", move || {
            serve(&of_worker, &*frozen, |is_frozen| watched.snapshot_may_begin(number, is_frozen));
        });
        match worker {
            Ok(worker) => Ok(SnapshotWatch {
                name: name.to_owned(),
                timeout: address.timeout,
                open: Some(OpenWatch { image, number, notes, worker }),
            }),
            Err(error) => {
                image.unwatch_snapshots(number);
                Err(open_error(name, error))
            }
        }
    }
}

impl Drop for SnapshotWatch {
    fn drop(&mut self) {
        let Some(OpenWatch { image, number, notes, worker }) = self.open.take() else { return };
        close_within(&self.name, self.timeout, move || {
            // It waits for a freeze that is under way, so the worker must still be there.
            image.unwatch_snapshots(number);
            notes.add(SnapshotNote::End);
            // It has told why, if it panicked.
            let _ = worker.join();
        });
    }
}

fn serve(notes: &SnapshotNotes, frozen: &dyn Freezing, may_begin: impl Fn(bool)) {
    let mut note = notes.next();
    loop {
        note = match note {
            SnapshotNote::End => return,
            SnapshotNote::After => notes.next(),
            SnapshotNote::Before => {
                // librbd waits for an answer, also when the image is closed.
                let result = catch_unwind(AssertUnwindSafe(|| frozen.freeze()))
                    .unwrap_or_else(|_| Err(io::Error::other("a bug, which is told above")));
                if let Err(error) = &result {
                    tracing::error!("no snapshot: the file system can't be frozen: {error}");
                }
                may_begin(result.is_ok());
                if result.is_err() {
                    notes.next()
                } else {
                    let next = notes.next_within(FROZEN_TIMEOUT);
                    frozen.thaw();
                    if next.is_none() {
                        tracing::warn!("a snapshot takes too long: changes go on without it");
                    }
                    next.unwrap_or_else(|| notes.next())
                }
            }
        };
    }
}

/// Makes the snapshot that a name ends with, of an image that may be mounted anywhere. The time limit is that of the
/// address, for each request.
///
/// # Errors
///
/// [`DeviceError::Open`] with what the cluster says.
pub fn create_snapshot(name: &str) -> DeviceResult {
    let (address, image) = open(name)?;
    let Some(snapshot) = &address.snapshot else {
        let problem = "the name of the snapshot is missing: rbd:POOL/IMAGE@SNAPSHOT";
        return Err(open_error(name, io::Error::new(io::ErrorKind::InvalidInput, problem)));
    };
    image.create_snapshot(snapshot).map_err(|error| open_error(name, error))
}

/// Opens an image itself, not its snapshot, without its lock.
fn open(name: &str) -> Result<(RbdAddress, Image), DeviceError> {
    let opened = RbdAddress::parse(name)
        .map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))
        .and_then(|address| {
            let mut image = Image::connect(&address)?;
            image.open(&RbdAddress { snapshot: None, ..address.clone() }, true)?;
            Ok((address, image))
        });
    opened.map_err(|error| open_error(name, error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_sync::{LockClass, Mutex};
    use std::cell::Cell;

    #[derive(Debug)]
    struct Recorded(Mutex<String>);

    static RECORDED: LockClass = LockClass::new("recorded", 1);

    impl Freezing for Recorded {
        fn freeze(&self) -> io::Result<()> {
            self.0.lock().push('f');
            Ok(())
        }

        fn thaw(&self) {
            self.0.lock().push('t');
        }
    }

    #[derive(Debug)]
    struct Panicking;

    impl Freezing for Panicking {
        fn freeze(&self) -> io::Result<()> {
            panic!("on purpose")
        }

        fn thaw(&self) {
            unreachable!("nothing is frozen")
        }
    }

    #[test]
    fn a_freeze_that_panics_is_answered() {
        let notes = SnapshotNotes::default();
        let (before, after, end) = (SnapshotNote::Before, SnapshotNote::After, SnapshotNote::End);
        [before, after, before, after, end].iter().for_each(|note| notes.add(*note));
        let answers = Cell::new(0);
        serve(&notes, &Panicking, |is_frozen| {
            assert!(!is_frozen);
            answers.set(answers.get() + 1);
        });
        assert_eq!(answers.get(), 2);
    }

    #[test]
    fn what_is_frozen_is_thawed() {
        let (before, after, end) = (SnapshotNote::Before, SnapshotNote::After, SnapshotNote::End);
        for (notes, expected) in [
            (&[before, after, end][..], "fbt"),
            (&[after, before, after, after, end], "fbt"),
            // The end of the first one was lost.
            (&[before, before, after, end], "fbtfbt"),
            (&[before, end], "fbt"),
        ] {
            let recorded = Recorded(Mutex::new(&RECORDED, String::new()));
            let left = SnapshotNotes::default();
            notes.iter().for_each(|note| left.add(*note));
            serve(&left, &recorded, |is_frozen| {
                assert!(is_frozen);
                recorded.0.lock().push('b');
            });
            assert_eq!(*recorded.0.lock(), expected);
        }
    }
}
