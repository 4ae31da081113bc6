//! Having the kernel write back what it holds of a file, while a request waits for it.
//!
//! With a write-back cache the kernel looks for data and holes only where it has written to, and so
//! would take a file that is being written for one long hole. Told to drop a file's content it
//! writes it first; those writes are requests too, which other threads must be there to answer.

use crate::wire::{DropContent, ReplyHeader};
use drystone_sync::atomic::{AtomicUsize, Ordering};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

/// `FUSE_NOTIFY_INVAL_INODE`, where an answer has its error.
const DROP_CONTENT: i32 = 2;

/// How many of the threads that read from the device may wait for writes at a time: one less than
/// there are.
pub(crate) struct WriteBacks {
    free: AtomicUsize,
}

impl WriteBacks {
    /// For so many threads.
    pub fn among(threads: usize) -> WriteBacks {
        WriteBacks { free: AtomicUsize::new(threads.saturating_sub(1)) }
    }

    /// Returns when the kernel has written what it held of `node`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if too many others wait: programs take that for "can't tell data from holes" and
    /// read everything.
    pub fn write_back(&self, device: impl AsFd, node: u64) -> Result<(), Errno> {
        self.free
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| free.checked_sub(1))
            .map_err(|_| Errno::INVAL)?;
        let told = drop_content(device, node);
        self.free.fetch_add(1, Ordering::Release);
        match told {
            // The kernel has forgotten the inode, and with it all that there was to write.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => {
                tracing::warn!("the kernel doesn't write back node {node}: {error}");
                Err(Errno::INVAL)
            }
        }
    }
}

fn drop_content(device: impl AsFd, node: u64) -> Result<(), Errno> {
    let message = DropContent { node, offset: 0, length: 0 };
    let length = (size_of::<ReplyHeader>() + size_of::<DropContent>()) as u32;
    let header = ReplyHeader { length, error: DROP_CONTENT, unique: 0 };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())];
    rustix::io::writev(device, &parts).map(|_| ())
}
