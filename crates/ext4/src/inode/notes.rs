//! Notes about an inode that are only in memory.

use super::Inode;
use crate::error::Result;
use drystone_blockdev::WriteMark;
use drystone_jbd2::Handle;
use drystone_sync::atomic::Ordering;

impl Inode {
    /// Notes that the inode was loaded while the transaction `tid` was running: no later one can have
    /// changed it. Its data may have been overwritten until `mark`.
    pub(super) fn note_loaded(&self, tid: u64, mark: WriteMark) {
        self.last_transaction.store(tid, Ordering::Relaxed);
        self.last_data_transaction.store(tid, Ordering::Relaxed);
        self.last_overwrite.store(mark.0, Ordering::Relaxed);
    }

    /// Notes that data was overwritten in place.
    #[inline]
    pub fn note_overwrite(&self, mark: WriteMark) {
        self.last_overwrite.store(mark.0, Ordering::Relaxed);
    }

    /// When data was last overwritten in place.
    pub fn last_overwrite(&self) -> WriteMark {
        WriteMark(self.last_overwrite.load(Ordering::Relaxed))
    }

    /// The last transaction that can have changed the inode.
    pub fn last_transaction(&self) -> u64 {
        self.last_transaction.load(Ordering::Relaxed)
    }

    /// Notes that the inode is about to get blocks, or data that waits for them.
    #[inline]
    pub fn note_written(&self) {
        if !self.is_written.load(Ordering::Relaxed) {
            self.is_written.store(true, Ordering::Release);
        }
    }

    /// Whether the inode has got blocks or data since it was loaded.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Acquire)
    }

    /// Notes that this handle changes where the content is, or its length.
    pub fn note_data_change(&self, handle: &Handle<'_>) {
        self.last_data_transaction.store(handle.tid(), Ordering::Relaxed);
    }

    /// The last transaction that can have changed where the content is, or its length.
    pub fn last_data_transaction(&self) -> u64 {
        self.last_data_transaction.load(Ordering::Relaxed)
    }

    /// Whether the root of the extent tree has been checked since the inode was loaded. Later changes
    /// keep it sound.
    pub fn is_mapping_checked(&self) -> bool {
        self.is_mapping_checked.load(Ordering::Relaxed)
    }

    /// Notes that the root of the extent tree has been checked. The fields are locked.
    pub fn note_mapping_checked(&self) {
        self.is_mapping_checked.store(true, Ordering::Relaxed);
    }

    /// Notes whether the last block may hold old bytes past the end; returns what was noted
    /// before. The content lock is held exclusively.
    pub fn set_tail_pending(&self, pending: bool) -> bool {
        // Most often it doesn't change. The content lock keeps other threads from changing it.
        let before = self.is_tail_pending();
        if before != pending {
            self.is_tail_pending.store(pending, Ordering::Relaxed);
        }
        before
    }

    /// Whether the last block may hold old bytes past the end.
    pub fn is_tail_pending(&self) -> bool {
        self.is_tail_pending.load(Ordering::Relaxed)
    }

    /// Notes whether a truncation has failed and left blocks past the end. The content lock is held
    /// exclusively.
    pub fn set_cut_pending(&self, pending: bool) {
        if self.is_cut_pending() != pending {
            self.is_cut_pending.store(pending, Ordering::Relaxed);
        }
    }

    /// Whether a truncation has failed and left blocks past the end.
    #[inline]
    pub fn is_cut_pending(&self) -> bool {
        self.is_cut_pending.load(Ordering::Relaxed)
    }

    /// Whether the inode is to be freed or truncated at the end of the mount at the latest.
    pub fn is_unfinished(&self) -> bool {
        self.links_count() == 0 || self.is_cut_pending()
    }

    /// Allows an inode that was made without a name to be given one, once.
    pub fn set_linkable(&self, linkable: bool) {
        self.is_linkable.store(linkable, Ordering::Relaxed);
    }

    /// Fails unless the inode has a name, or was made without one.
    pub fn check_linkable(&self) -> Result<()> {
        if self.is_linkable.load(Ordering::Relaxed) { Ok(()) } else { self.check_linked() }
    }
}
