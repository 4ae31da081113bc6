//! What librbd tells of snapshots, until the thread that freezes has read it.
//!
//! # Locking
//!
//! [`RBD_SNAPSHOTS`] is held to add or take a note.

use drystone_sync::{Condvar, LockClass, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

static RBD_SNAPSHOTS: LockClass = LockClass::new("rbd snapshots", 965);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotNote {
    /// A snapshot is about to be made.
    Before,
    /// It is made, or has failed.
    After,
    /// The watch ends.
    End,
}

/// What librbd has told.
#[derive(Debug)]
pub(crate) struct SnapshotNotes {
    notes: Mutex<VecDeque<SnapshotNote>>,
    arrived: Condvar,
}

impl SnapshotNotes {
    pub fn add(&self, note: SnapshotNote) {
        self.notes.lock().push_back(note);
        self.arrived.notify_all();
    }

    pub fn next(&self) -> SnapshotNote {
        let mut notes = self.notes.lock();
        loop {
            if let Some(note) = notes.pop_front() {
                return note;
            }
            self.arrived.wait(&mut notes);
        }
    }

    /// The next one, but only if it comes in time.
    pub fn next_within(&self, timeout: Duration) -> Option<SnapshotNote> {
        let mut notes = self.notes.lock();
        self.arrived.wait_while_timeout(&mut notes, timeout, |notes| notes.is_empty());
        notes.pop_front()
    }
}

impl Default for SnapshotNotes {
    fn default() -> SnapshotNotes {
        SnapshotNotes {
            notes: Mutex::new(&RBD_SNAPSHOTS, VecDeque::new()),
            arrived: Condvar::new(),
        }
    }
}
