//! Searches for the inode of a file from where the last search ended.
//!
//! # State
//! One number for the image: behind the inode given out last, or the lowest one freed since. It is
//! read and written without order or lock: a stale hint costs a longer search, and a search goes all
//! the way around. It is reset at every commit, so that no freed inode stays behind it for long.

use super::{Allocator, InodeRequest};
use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_jbd2::Handle;
use drystone_sync::atomic::{AtomicU64, Ordering};

/// Where the next search over the whole image starts: an inode's number less one.
#[derive(Debug)]
pub(super) struct NextHint(AtomicU64);

impl NextHint {
    pub fn new() -> NextHint {
        NextHint(AtomicU64::new(0))
    }

    /// Notes that an inode was freed.
    pub fn note_freed(&self, inode: InodeNumber) {
        let place = u64::from(inode.get()) - 1;
        if place < self.0.load(Ordering::Relaxed) {
            self.0.store(place, Ordering::Relaxed);
        }
    }

    /// Starts over.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Allocator {
    pub(super) fn search_from_hint(
        &self,
        handle: &mut Handle<'_>,
        hint: &NextHint,
        request: &InodeRequest,
    ) -> Result<Option<InodeNumber>> {
        let layout = &self.volume.layout;
        let inodes = u64::from(layout.inodes_per_group());
        let count = self.groups.len() as u64;
        let place = hint.0.load(Ordering::Relaxed) % (count * inodes);
        // The group of the hint comes first and last: with what is behind the hint, and with all.
        for step in 0..=count {
            let group = &self.groups[((place / inodes + step) % count) as usize];
            // Below the inodes of a group, which fits.
            let start = if step == 0 { (place % inodes) as u32 } else { 0 };
            if group.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(inode) = self.claim_inode(handle, group, start, request.directory)? {
                hint.0.store(u64::from(inode.get()), Ordering::Relaxed);
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }
}
