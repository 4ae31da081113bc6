//! Making snapshots, and having them noted.
#![allow(unsafe_code, reason = "functions of a C library")]

use super::Image;
use super::values::{EIO, check, text};
use crate::notes::{SnapshotNote, SnapshotNotes};
use drystone_sync::Arc;
use std::ffi::c_void;
use std::io;

impl Image {
    /// Makes a snapshot. If another client has the lock, librbd asks it to.
    pub fn create_snapshot(&self, name: &str) -> io::Result<()> {
        let name = text(name)?;
        // SAFETY: the image is open, the name ends with a zero.
        check(unsafe { (self.library.rbd_snap_create)(self.image, name.as_ptr()) })?;
        Ok(())
    }

    /// Has snapshots noted before and after they are made, until the number that is returned is given to
    /// [`unwatch_snapshots`](Self::unwatch_snapshots).
    pub fn watch_snapshots(&self, notes: &Arc<SnapshotNotes>) -> io::Result<u64> {
        let mut number = 0;
        let watch = self.library.rbd_quiesce_watch;
        // librbd has a reference of its own. It stays: a call may be under way when the watch ends.
        let notes = Arc::into_raw(Arc::clone(notes)).cast_mut().cast();
        // SAFETY: the image is open, and the notes stay.
        check(unsafe { watch(self.image, before_snapshot, after_snapshot, notes, &mut number) })?;
        Ok(number)
    }

    /// Says whether a snapshot may be made now.
    pub fn snapshot_may_begin(&self, watch: u64, may_begin: bool) {
        let result = if may_begin { 0 } else { -EIO };
        // SAFETY: the image is open.
        unsafe { (self.library.rbd_quiesce_complete)(self.image, watch, result) };
    }

    /// Ends a watch.
    pub fn unwatch_snapshots(&self, watch: u64) {
        // SAFETY: the image is open. It fails only if there is no such watch.
        unsafe { (self.library.rbd_quiesce_unwatch)(self.image, watch) };
    }
}

/// Called by librbd before a snapshot is made.
extern "C" fn before_snapshot(notes: *mut c_void) {
    // SAFETY: this is what the watch was made with, which stays.
    unsafe { &*notes.cast::<SnapshotNotes>() }.add(SnapshotNote::Before);
}

/// Called by librbd when it is made, or has failed.
extern "C" fn after_snapshot(notes: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*notes.cast::<SnapshotNotes>() }.add(SnapshotNote::After);
}
