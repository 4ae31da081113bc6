//! Inodes freed recently in an image without a journal.
//!
//! Without a journal, blocks reach the device in any order: the name of a removed file may still be
//! on the device when its inode already belongs to another file. So a freed inode is withheld until
//! the changes of its transaction are written, unless no other inode is left.

use crate::alloc::groups::BlockGroups;
use crate::lock_classes;
use drystone_ext4_format::InodeNumber;
use drystone_sync::Mutex;

/// The inodes that wait, each with the transaction that freed it.
#[derive(Debug)]
pub(super) struct RecentlyFreed(Mutex<Vec<(u64, InodeNumber)>>);

impl RecentlyFreed {
    pub fn new() -> RecentlyFreed {
        RecentlyFreed(Mutex::new(&lock_classes::INODE_RUNS, Vec::new()))
    }

    /// Adds an inode, which the caller withholds.
    pub fn add(&self, transaction: u64, inode: InodeNumber) {
        self.0.lock().push((transaction, inode));
    }

    /// Lets searches find inodes again that `transaction`, or an earlier one, freed.
    pub fn release(&self, groups: &BlockGroups, transaction: u64) {
        let mut released = Vec::new();
        self.0.lock().retain(|&(freed_in, inode)| {
            let is_due = freed_in <= transaction;
            if is_due {
                released.push(inode);
            }
            !is_due
        });
        for inode in released {
            let Ok((number, bit)) = groups.volume.layout().bit_of_inode(inode) else { continue };
            let group = groups.at(number);
            let state = group.state.lock();
            groups.stop_withholding(group, &state, bit);
        }
    }
}
