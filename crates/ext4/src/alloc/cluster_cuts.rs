//! Files that lost blocks of a cluster that they keep (bigalloc), until that is durable.
//!
//! A file owns a cluster while any block of it is mapped, so the allocator's record of
//! [pending](super::pending) frees doesn't know its unmapped blocks. They may not be used before the
//! commit either: if they were, a crash could bring back the old file with new data in it.
//!
//! # State
//! A file stands here by its number, since it may leave memory before the commit.
//!
//! # Locking
//! One lock, for files with such clusters alone. It is taken after the handle and the content lock.

use super::pending::Transaction;
use crate::lock_classes;
use drystone_ext4_format::InodeNumber;
use drystone_sync::Mutex;
use std::collections::BTreeMap;

/// The files, and the last transaction that unmapped a part of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterCuts {
    files: Mutex<BTreeMap<InodeNumber, Transaction>>,
}

impl ClusterCuts {
    pub(super) fn new() -> Self {
        Self { files: Mutex::new(&lock_classes::CLUSTER_CUTS, BTreeMap::new()) }
    }

    /// Notes that `transaction` unmaps a part of a cluster that the file keeps.
    pub fn note(&self, file: InodeNumber, transaction: Transaction) {
        self.files.lock().insert(file, transaction);
    }

    /// Whether a commit has to come before unmapped blocks of the file's own clusters are used.
    pub fn is_waiting(&self, file: InodeNumber) -> bool {
        self.files.lock().contains_key(&file)
    }

    /// Forgets the files whose last such transaction has committed.
    pub(super) fn committed(&self, transaction: Transaction) {
        self.files.lock().retain(|_, last| *last > transaction);
    }
}
