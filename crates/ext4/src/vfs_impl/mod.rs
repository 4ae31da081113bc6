//! [`drystone_vfs::FileSystem`] for [`Engine`]: what each call checks, locks and journals.
//!
//! # Locking
//! Directories are locked in the order of their inode numbers, whatever their place in the tree.
//! Where an operation locks more than one and the set depends on what a name stands for, it looks
//! first, locks, and looks again: [`remove`] and [`rename`].

mod attributes;
mod create;
mod data;
mod directory;
mod interface;
pub(crate) mod links;
mod lookup;
mod remove;
mod rename;

use crate::engine::Engine;
use crate::inode::Inode;
use drystone_vfs::Attributes;

impl Engine {
    /// The inode's attributes, with a reference for the caller.
    fn entry(&self, inode: &Inode) -> Attributes {
        self.inodes.reference(inode);
        self.attributes_of(inode)
    }
}
