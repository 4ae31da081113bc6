//! Keeps what grows at the same time in groups of its own (`block-goal=own-group`).
//!
//! A group that two threads allocate in costs both: its lock, its bitmap and its counts are in lines that
//! go to and fro between their cores with every block they take. Trying for the lock doesn't part
//! them, for most of the time neither holds it.
//!
//! # State
//! A *stream* is a large file that grows, or the small files of a core where there is no room near
//! them. It marks the group that its runs come from, until it goes on in another one, or the file is
//! closed or not used any more. Marks are hints: two streams may meet where no other group has
//! room, and a mark may be lost or late.
//!
//! # Locking
//! None.

use super::super::group::BlockGroup;
use super::goal::StreamPlace;
use super::{BlockAllocator, FileRequest, FileSpace};
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_sync::atomic::Ordering;

impl BlockGroup {
    /// Whether another stream is here.
    pub(super) fn is_for_another(&self, stream: InodeNumber) -> bool {
        let here = self.stream.load(Ordering::Relaxed);
        here != 0 && here != stream.get()
    }
}

impl BlockAllocator {
    /// The stream that `wanted` clusters for a file near `goal` are for, if it keeps apart.
    pub(super) fn stream<'a>(
        &'a self,
        file: &FileRequest<'a>,
        goal: Option<StreamPlace>,
        wanted: u32,
    ) -> Option<&'a FileSpace> {
        if !self.goals.keep_apart() {
            return None;
        }
        if file.is_large {
            return Some(file.space);
        }
        // Small files belong near their directory.
        let (group, _) = goal?;
        let order = wanted.next_power_of_two().ilog2();
        let has_room = self.groups.at(GroupNumber::new(group)).has_order(order);
        (!has_room).then(|| self.windows.stream())
    }

    /// Notes that a stream is in a group now, before its goal is moved there.
    pub(super) fn enter_group(&self, space: &FileSpace, group: GroupNumber) {
        if self.goals.get(space).is_some_and(|(before, _)| before != group.get()) {
            self.leave_group(space);
        }
        let stream = &self.groups.at(group).stream;
        if stream.load(Ordering::Relaxed) == 0 {
            stream.store(space.inode.get(), Ordering::Relaxed);
            // The same says that there is something to be taken back.
            space.has_window.store(true, Ordering::Release);
        }
    }

    /// Notes that a file has no stream for now: it is closed.
    pub fn leave_group(&self, space: &FileSpace) {
        if !self.goals.keep_apart() || !space.has_window() {
            return;
        }
        if let Some((group, _)) = self.goals.get(space) {
            let stream = &self.groups.at(GroupNumber::new(group)).stream;
            if stream.load(Ordering::Relaxed) == space.inode.get() {
                stream.store(0, Ordering::Relaxed);
            }
        }
    }
}
