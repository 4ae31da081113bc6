//! Listing directories.

use super::{EntryReply, NodeId, Operations, Reply, Request};
use crate::Operation;
use drystone_vfs::{Errno, FileType, InodeNumber, Result};

/// Bytes that an entry of a listing takes in a reply besides its name, which is padded so that the
/// whole is a multiple of 8.
pub const DIRECTORY_ENTRY_BYTES: usize = 24;
/// The same where entries carry attributes.
pub const DIRECTORY_PLUS_ENTRY_BYTES: usize = 128 + DIRECTORY_ENTRY_BYTES;

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The inode as users see it (`d_ino`).
    pub inode: InodeNumber,
    /// Its type; `None` where the directory doesn't record it.
    pub file_type: Option<FileType>,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// The name.
    pub name: &'a [u8],
}

/// An entry that waits for its attributes.
struct Waiting {
    inode: InodeNumber,
    file_type: Option<FileType>,
    cookie: u64,
    name: Vec<u8>,
}

impl Operations {
    /// Opens a directory. Never needed where the kernel may leave it out, as all can that negotiate
    /// `NO_OPENDIR_SUPPORT`: it then keeps listings, too.
    pub fn open_directory(&self) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Ends an opening of a directory.
    pub fn release_directory(&self) -> Reply<()> {
        Ok(())
    }

    /// Lists a directory from `cookie` (0: the start) until `add` returns false, which means that
    /// it had no room for the entry.
    pub fn read_directory(
        &self,
        request: &Request,
        node: NodeId,
        cookie: u64,
        add: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Reply<()> {
        let context = self.context(request, 0);
        let inode = self.inode(node);
        let listed = self.file_system.read_directory(&context, inode, cookie, &mut |entry| {
            add(&Listed {
                inode: entry.inode,
                file_type: entry.file_type,
                cookie: entry.cookie,
                name: entry.name,
            })
        });
        self.done(Operation::ReadDirectory, listed)
    }

    /// Lists a directory with attributes into a reply of `bytes_max` bytes. `add` gets each entry,
    /// with a node of 0 where the kernel gets no reference (`.` and `..`), and returns false if it
    /// had no room for it.
    pub fn read_directory_plus(
        &self,
        request: &Request,
        node: NodeId,
        cookie: u64,
        bytes_max: usize,
        add: &mut dyn FnMut(&Listed<'_>, &EntryReply) -> bool,
    ) -> Reply<()> {
        let listed = self.list_plus(request, node, cookie, bytes_max, add);
        self.done(Operation::ReadDirectoryPlus, listed)
    }

    fn list_plus(
        &self,
        request: &Request,
        node: NodeId,
        cookie: u64,
        bytes_max: usize,
        add: &mut dyn FnMut(&Listed<'_>, &EntryReply) -> bool,
    ) -> Result<()> {
        let context = self.context(request, 0);
        let directory = self.inode(node);
        // Looking up takes the directory's lock, which the listing holds: names come first.
        let mut waiting = Vec::new();
        let mut bytes_left = bytes_max;
        self.file_system.read_directory(&context, directory, cookie, &mut |entry| {
            let bytes = (DIRECTORY_PLUS_ENTRY_BYTES + entry.name.len()).next_multiple_of(8);
            if bytes > bytes_left {
                return false;
            }
            bytes_left -= bytes;
            waiting.push(Waiting {
                inode: entry.inode,
                file_type: entry.file_type,
                cookie: entry.cookie,
                name: entry.name.to_vec(),
            });
            true
        })?;
        for Waiting { inode, file_type, cookie, name } in &waiting {
            let is_dots = name == b"." || name == b"..";
            let entry = if is_dots {
                self.no_entry()
            } else {
                match self.file_system.lookup(&context, directory, name) {
                    Ok(attributes) => self.entry(attributes),
                    // It was removed a moment ago.
                    Err(error) if error.errno == Errno::ENOENT => continue,
                    // A damaged inode has a name all the same; `stat` will tell.
                    Err(_) => self.no_entry(),
                }
            };
            let listed = Listed { inode: *inode, file_type: *file_type, cookie: *cookie, name };
            if !add(&listed, &entry) {
                if entry.attributes.is_some() {
                    self.file_system.forget(self.inode(entry.node), 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// Returns when a directory's content is durable.
    pub fn fsync_directory(&self, node: NodeId, data_only: bool) -> Reply<()> {
        let synced = self.file_system.sync_inode(self.inode(node), data_only);
        self.done(Operation::FsyncDirectory, synced)
    }
}
