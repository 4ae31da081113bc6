//! A mounted image: the engine, and the thread that writes what waits for blocks.
//!
//! # State
//! The thread sleeps until data waits, and writes it after the commit interval, or earlier when much of
//! it waits. So data is on its way to the device within that time, however the mount is used.
//!
//! # Locking
//! The thread takes locks as a caller does. While a close waits for the thread to end, it holds only its
//! own lock.

use super::{GrowthPlanner, MountOptions, superblock};
use crate::content::WriteBackReason;
use crate::error::{Error, Result};
use crate::file;
use crate::inode::Inode;
use crate::lock_classes;
use crate::operations::Engine;
use drystone_blockdev::BlockDevice;
use drystone_sync::{Arc, Mutex, thread};
use std::ops::Deref;
use std::time::Duration;

/// A mounted ext4 image; the engine's only entry.
///
/// Threads share it by reference, and [`close`](Ext4::close) ends it. A drop without a close leaves the
/// image as a crash does: safe, but in need of recovery.
#[derive(Debug)]
pub struct Ext4 {
    engine: Arc<Engine>,
    write_back: Mutex<Option<thread::JoinHandle<()>>>,
    /// The result of the close. It is locked while that runs, so that a second close waits for it.
    closed: Mutex<Option<Result<()>>>,
    /// Locked while the image grows.
    pub(super) growing: Mutex<()>,
    pub(super) growth_planner: Option<GrowthPlanner>,
}

impl Ext4 {
    /// Opens the image on `device`: replays its journal if it was not closed, finishes what a crash
    /// cut off, and marks it as open.
    pub fn open(device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<Ext4> {
        let (interval, growth_planner) = (options.commit_interval, options.growth_planner);
        if interval.is_zero() {
            return Err(Error::Mount("the commit interval is zero".to_owned()));
        }
        let engine = Arc::new(super::open(device, options)?);
        let thread = if engine.volume.read_only.is_none() {
            let shared = Arc::clone(&engine);
            let started = thread::spawn("drystone-write", move || write_back(&shared, interval));
            Some(started.or_else(|error| {
                // The image is open, so it has to be closed.
                close(&engine)?;
                Err(Error::Mount(format!("no thread to write data: {error}")))
            })?)
        } else {
            None
        };
        let write_back = Mutex::new(&lock_classes::WRITE_BACK_THREAD, thread);
        let closed = Mutex::new(&lock_classes::CLOSING, None);
        let growing = Mutex::new(&lock_classes::GROWING, ());
        Ok(Ext4 { engine, write_back, closed, growing, growth_planner })
    }

    /// Ends the mount: everything is made durable and checkpointed, and the superblock says that the
    /// image is complete. No other call may be under way, and the references of callers end. Closing
    /// again waits for the first close, and returns the same.
    pub fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        if let Some(outcome) = &*closed {
            return outcome.clone();
        }
        // Files that only callers kept alive are deleted at the end, which is a change.
        let writable = if self.engine.volume.freeze.is_made_read_only() {
            self.make_writable()
        } else {
            Ok(())
        };
        self.stop();
        let outcome = writable.and(close(&self.engine));
        *closed = Some(outcome.clone());
        outcome
    }

    /// Ends the thread.
    fn stop(&self) {
        // No caller will thaw a mount that has ended.
        self.engine.volume.freeze.end_freeze();
        let Some(thread) = self.write_back.lock().take() else { return };
        self.engine.delayed_allocation.end();
        if thread.join().is_err() {
            tracing::error!("the thread that writes data panicked");
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // No I/O here beyond what the thread has begun.
        self.stop();
    }
}

impl Deref for Ext4 {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Ends the mount.
fn close(fs: &Engine) -> Result<()> {
    let finished = match fs.volume.read_only {
        Some(_) => fs.volume.journal.close().map_err(Error::from),
        None => finish(fs),
    };
    if let Some(mmp) = &fs.mmp {
        mmp.stop(finished.is_ok())?;
    }
    finished
}

fn finish(fs: &Engine) -> Result<()> {
    let mut finished = Ok(());
    let is_left = |inode: &Arc<Inode>| inode.links_count() > 0 && fs.orphans.are_left();
    for inode in fs.inodes.take_unfinished() {
        if is_left(&inode) {
            continue;
        }
        // One that can't be finished stays on the orphan record; the rest is written all the same.
        let outcome = fs.finish_orphan(&inode);
        if let Err(error) = &outcome {
            fs.note_damage(error);
            tracing::error!(inode = %inode.number, %error, "an orphan could not be finished");
        }
        finished = finished.and(outcome);
    }
    fs.inodes.forget_names();
    fs.allocator.blocks.windows.discard();
    let written = file::write_back_all(fs);
    if written.is_err() {
        // The image is sound without the data, and the caller gets the error.
        file::discard_all(fs);
    }
    fs.note_waiting_damage();
    fs.volume.journal.close()?;
    superblock::mark_clean(fs)?;
    finished.and(written)
}

/// Writes data that waits for blocks when it is due, until the mount ends.
fn write_back(engine: &Engine, interval: Duration) {
    let mut has_failed = false;
    while let Some(due) = engine.delayed_allocation.wait_until_due(interval, has_failed) {
        engine.volume.freeze.wait_thawed();
        if engine.volume.journal.is_aborted() {
            // Nothing can be written any more, and syncs say so.
            continue;
        }
        let written = engine.done(file::flush_all(engine));
        // A device that fails is left alone for an interval, however much waits.
        has_failed = written.is_err();
        if let Err(error) = written {
            tracing::error!(%error, "data could not be written, and goes on waiting");
        }
        if due == WriteBackReason::Old {
            // What has waited for an interval shouldn't wait for another one to be durable.
            let tid = engine.volume.journal.running_tid();
            if let Err(error) =
                engine.volume.commit_up_to(tid).and_then(|()| file::clear_tails(engine))
            {
                tracing::error!(%error, "ends of files that were cut could not be cleared");
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::TestImage;
    use drystone_sync::Arc;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    /// The allocator stores its allocations when a transaction closes, so none may close after it is
    /// gone.
    #[test]
    fn nothing_is_committed_after_a_mount_was_dropped() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let me = RequestContext::superuser();
        fs.create(&me, fs.root(), b"lost", NewNode::Regular, 0o644).unwrap();
        let journal = Arc::clone(&fs.volume.journal);
        drop(fs);
        assert!(journal.commit_and_wait().is_err());
        drop(journal);
        image.open().close().unwrap();
        image.check("after a mount that was dropped");
    }
}
