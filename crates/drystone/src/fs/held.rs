//! A reference to an inode that a handle owns.

use crate::engine::ImageReference;
use drystone_vfs::{FileSystem, InodeGuard, InodeNumber};

/// One reference to an inode, given back when it is dropped.
pub(super) struct Held<'i> {
    image: ImageReference<'i>,
    inode: InodeNumber,
}

impl<'i> Held<'i> {
    /// Takes over the reference of a guard.
    #[inline(always)]
    pub fn new(image: ImageReference<'i>, guard: InodeGuard<'_>) -> Held<'i> {
        Held { image, inode: guard.into_entry().inode }
    }

    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    pub fn image(&self) -> &ImageReference<'i> {
        &self.image
    }

    pub fn file_system(&self) -> &dyn FileSystem {
        self.image.file_system()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.image.file_system().forget(self.inode, 1);
    }
}
