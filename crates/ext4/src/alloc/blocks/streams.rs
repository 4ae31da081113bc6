//! Keeps files that grow at the same time in groups of their own (`block-goal=own-group`).
//!
//! Two threads that allocate in one group slow each other down: the cache lines of its lock, its
//! bitmap and its counts move between their cores with every allocation. Skipping groups whose lock
//! is held doesn't separate the threads, because most of the time neither holds it.
//!
//! # State
//! A *stream* is a large file that grows, or the small files of a core when there is no room near
//! their directory. It marks the group that its runs come from, until it moves to another one, or
//! the file is closed or no longer used. Marks are hints: two streams may meet when no other group
//! has room, and a mark may be lost or late.
//!
//! # Locking
//! None.

use super::super::group::BlockGroup;
use super::goal::StreamPlace;
use super::{BlockAllocator, FileRequest, FileSpace};
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_sync::atomic::Ordering;

impl BlockGroup {
    /// Whether another stream has marked the group.
    pub(super) fn is_for_another(&self, stream: InodeNumber) -> bool {
        let here = self.stream.load(Ordering::Relaxed);
        here != 0 && here != stream.get()
    }
}

impl BlockAllocator {
    /// The stream for `wanted` clusters of a file near `goal`; `None` if they need not be kept
    /// apart.
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

    /// Marks a group as a stream's, before the stream's goal is moved there.
    pub(super) fn enter_group(&self, space: &FileSpace, group: GroupNumber) {
        if self.goals.get(space).is_some_and(|(before, _)| before != group.get()) {
            self.leave_group(space);
        }
        let stream = &self.groups.at(group).stream;
        if stream.load(Ordering::Relaxed) == 0 {
            stream.store(space.inode.get(), Ordering::Relaxed);
            space.note_mark();
        }
    }

    /// Removes the mark of a file that is closed.
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
