//! References that give themselves back.

use crate::{Entry, FileSystem, InodeAttributes, InodeNumber};

/// An inode with one reference to it, which is given back when the guard is dropped.
pub struct InodeGuard<'f> {
    file_system: &'f dyn FileSystem,
    attributes: InodeAttributes,
}

impl<'f> InodeGuard<'f> {
    /// Takes over the reference that a call of `file_system` gave with `entry`.
    #[must_use]
    pub fn new(file_system: &'f dyn FileSystem, entry: Entry) -> InodeGuard<'f> {
        InodeGuard { file_system, attributes: entry }
    }

    /// The number of the inode.
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.attributes.inode
    }

    /// Its attributes, as they were when it was found.
    #[must_use]
    pub fn attributes(&self) -> &InodeAttributes {
        &self.attributes
    }

    /// Hands the reference on to the caller, who gives it back with [`FileSystem::forget`].
    #[must_use]
    pub fn into_entry(self) -> Entry {
        std::mem::ManuallyDrop::new(self).attributes
    }
}

impl Drop for InodeGuard<'_> {
    fn drop(&mut self) {
        self.file_system.forget(self.attributes.inode, 1);
    }
}

impl std::fmt::Debug for InodeGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InodeGuard").field(&self.attributes).finish()
    }
}
