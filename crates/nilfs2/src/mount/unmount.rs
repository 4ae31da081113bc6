//! Unmounts a volume.
//!
//! # Crash
//! The volume is marked clean when everything is in the newest log. A clean volume isn't searched for inodes without
//! names.

use super::Nilfs2;
use crate::error::Result;
use drystone_sync::atomic::Ordering;

impl Nilfs2 {
    /// Writes everything and marks the volume clean, unless inodes without names may be left: they couldn't be
    /// deleted, for want of room or because of damage, or recovery couldn't read where some may be. Then the next
    /// mount recovers the volume and tries again.
    ///
    /// Changes that run at the same time may be lost. Those that begin later fail, as all that would write.
    ///
    /// # Errors
    /// If something can't be written; the next mount recovers what was synced.
    pub fn unmount(&self) -> Result<()> {
        let Some(thread) = self.writer.lock().take() else { return Ok(()) };
        self.engine.gate.thaw();
        self.free_nameless();
        let synced = self.delete_waiting();
        self.engine.requests.stop();
        // If the thread has panicked, the requests have failed.
        let _ = thread.join();
        // The thread may have cleaned since, and written what was deleted last.
        let running = self.engine.requests.close();
        synced?;
        running?;
        let left = self.engine.nameless_left();
        let mut log = self.engine.log.lock();
        if left > 0 {
            tracing::warn!(
                left,
                "inodes without names couldn't be deleted; the next mount will try again"
            );
        }
        if left > 0 || self.engine.has_unread_inodes.load(Ordering::Relaxed) {
            return log.superblocks.write_both(&self.engine.volume);
        }
        log.superblocks.end_mount(&self.engine.volume)
    }

    /// Deletes inodes without names that callers never gave back: nothing would find them later.
    fn free_nameless(&self) {
        let engine = &self.engine;
        engine.inodes.for_each(|inode| {
            if inode.is_nameless() {
                self.operations().do_forget(drystone_vfs::InodeNumber(inode.number.0), u64::MAX);
            }
        });
    }

    /// Writes everything, as long as each checkpoint makes room to delete more of the inodes that wait for
    /// some. Before it ends, the thread writes what was deleted last.
    fn delete_waiting(&self) -> Result<()> {
        let mut waiting = usize::MAX;
        loop {
            self.engine.requests.checkpoint()?;
            let left = self.engine.nameless.lock().len();
            if left == 0 || left >= waiting {
                return Ok(());
            }
            waiting = left;
        }
    }
}

impl Drop for Nilfs2 {
    /// Stops the thread. What wasn't synced is lost, as with the power.
    fn drop(&mut self) {
        if let Some(thread) = self.writer.get_mut().take() {
            let _ = self.engine.requests.close();
            self.engine.requests.stop();
            let _ = thread.join();
        }
    }
}
