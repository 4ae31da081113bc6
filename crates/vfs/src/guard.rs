//! References that give themselves back.

use crate::{
    Entry, FileSystem, FileType, InodeAttributes, InodeNumber, NewNode, RequestContext, Result,
};

/// An inode with one reference to it, which is given back when the guard is dropped.
///
/// Everything but a server, whose client counts the references, finds and makes inodes as guards: with
/// the functions here, which are those of [`FileSystem`], or by path with [`find_path`](crate::find_path).
pub struct InodeGuard<'f> {
    file_system: &'f dyn FileSystem,
    attributes: InodeAttributes,
}

impl<'f> InodeGuard<'f> {
    /// Finds a name in a directory: [`FileSystem::lookup`].
    ///
    /// # Errors
    /// As those of the call.
    #[inline]
    pub fn lookup(
        file_system: &'f dyn FileSystem,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<InodeGuard<'f>> {
        Ok(InodeGuard::new(file_system, file_system.lookup(context, parent, name)?))
    }

    /// Makes an inode with a name in a directory: [`FileSystem::create`].
    ///
    /// # Errors
    /// As those of the call.
    pub fn create(
        file_system: &'f dyn FileSystem,
        context: &RequestContext,
        parent: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<InodeGuard<'f>> {
        let made = file_system.create(context, parent, name, node, permissions)?;
        Ok(InodeGuard::new(file_system, made))
    }

    /// Gives an inode one more name: [`FileSystem::link`].
    ///
    /// # Errors
    /// As those of the call.
    pub fn link(
        file_system: &'f dyn FileSystem,
        context: &RequestContext,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<InodeGuard<'f>> {
        Ok(InodeGuard::new(file_system, file_system.link(context, inode, parent, name)?))
    }

    /// Takes over the reference that another call of `file_system` gave with `entry`.
    #[inline]
    #[must_use]
    pub fn new(file_system: &'f dyn FileSystem, entry: Entry) -> InodeGuard<'f> {
        InodeGuard { file_system, attributes: entry }
    }

    /// The number of the inode.
    #[inline]
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.attributes.inode
    }

    /// Its attributes, as they were when it was found.
    #[inline]
    #[must_use]
    pub fn attributes(&self) -> &InodeAttributes {
        &self.attributes
    }

    /// True for a directory.
    #[inline]
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.attributes.file_type == FileType::Directory
    }

    /// Hands the reference on to the caller, who gives it back with [`FileSystem::forget`].
    #[inline]
    #[must_use]
    pub fn into_entry(self) -> Entry {
        std::mem::ManuallyDrop::new(self).attributes
    }
}

impl Drop for InodeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.file_system.forget(self.attributes.inode, 1);
    }
}

impl std::fmt::Debug for InodeGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InodeGuard").field(&self.attributes).finish()
    }
}
