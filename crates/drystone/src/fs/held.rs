//! A reference to an inode that a handle owns.

use super::Fs;
use drystone_vfs::{InodeGuard, InodeNumber};

/// One reference to an inode, given back when it is dropped.
pub(super) struct Held<'i> {
    fs: Fs<'i>,
    inode: InodeNumber,
}

impl<'i> Held<'i> {
    /// Takes over the reference of a guard.
    #[inline(always)]
    pub fn new(fs: &Fs<'i>, guard: InodeGuard<'_>) -> Held<'i> {
        Held { fs: fs.clone(), inode: guard.into_entry().inode }
    }

    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    pub fn fs(&self) -> &Fs<'i> {
        &self.fs
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.file_system().forget(self.inode, 1);
    }
}
