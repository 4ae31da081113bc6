//! Notifications to the kernel of changes that it can't know.
//!
//! # Locking
//!
//! One lock around the way to the kernel, held while a notification is sent, which doesn't wait for
//! requests.

use super::NodeId;
use crate::wire::{DropContent, ReplyHeader};
use drystone_sync::{LockClass, Mutex};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;

static NOTICES: LockClass = LockClass::new("notices to the kernel", 5);

/// `FUSE_NOTIFY_INVAL_INODE`, where an answer has its error.
const OUTDATE: i32 = 2;

/// The way to the kernel, while there is one.
pub(super) struct Notices {
    device: Mutex<Option<OwnedFd>>,
}

impl Notices {
    pub(super) fn new() -> Notices {
        Notices { device: Mutex::new(&NOTICES, None) }
    }

    pub(super) fn tell_through(&self, device: Option<OwnedFd>) {
        *self.device.lock() = device;
    }

    /// Another descriptor of the way to the kernel, for notifications that wait for requests.
    pub(super) fn device(&self) -> Option<OwnedFd> {
        self.device.lock().as_ref().and_then(|device| device.try_clone().ok())
    }

    /// Makes the kernel ask again for a node's attributes; cached content stays.
    pub(super) fn outdate_attributes(&self, node: NodeId) {
        let message = DropContent { node: node.0, offset: -1, length: 0 };
        let length = (size_of::<ReplyHeader>() + size_of::<DropContent>()) as u32;
        let header = ReplyHeader { length, error: OUTDATE, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())];
        let device = self.device.lock();
        match device.as_ref().map(|device| rustix::io::writev(device, &parts)) {
            // The kernel has no such inode, so it has no attributes of it either.
            None | Some(Ok(_) | Err(Errno::NOENT | Errno::NODEV)) => {}
            Some(Err(error)) => tracing::warn!("can't outdate attributes: {error}"),
        }
    }
}
