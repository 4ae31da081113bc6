//! Inodes of values that no entry refers to any more.

use crate::inode::Inode;
use drystone_sync::Arc;

/// Inodes of values that lost their last entry. They are on the orphan record, and freed when the
/// handle has stopped and the locks are released.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct ValueGarbage {
    pub(super) inodes: Vec<Arc<Inode>>,
}

impl ValueGarbage {
    /// Adds an inode without names, which is on the orphan record.
    pub fn add(&mut self, inode: Arc<Inode>) {
        self.inodes.push(inode);
    }
}
