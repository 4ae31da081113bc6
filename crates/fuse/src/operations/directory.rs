//! Listing directories.

use super::{EntryReply, NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{Errno, Error, FileType, InodeNumber, RequestContext, Result};

/// Bytes that an entry of a listing takes in a reply besides its name, which is padded so that the
/// whole is a multiple of 8.
pub const DIRECTORY_ENTRY_BYTES: usize = 24;
/// The same where entries carry attributes.
pub const DIRECTORY_PLUS_ENTRY_BYTES: usize = 128 + DIRECTORY_ENTRY_BYTES;

/// Bytes of entries that are looked up at a time. Few, because looking up entries that don't fit
/// into the reply is wasted.
const BATCH_BYTES: usize = 4096;

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
struct PendingEntry {
    inode: InodeNumber,
    file_type: Option<FileType>,
    cookie: u64,
    name: Vec<u8>,
}

/// What became of an entry that was to be added to a reply.
enum Addition {
    Added,
    NoRoom,
    /// It was removed after it was listed.
    Gone,
}

/// The error of a listing that has nothing to show.
fn unless(is_any: bool, error: Error) -> Result<()> {
    if is_any { Ok(()) } else { Err(error) }
}

impl PendingEntry {
    /// Bytes that the entry takes in a reply.
    fn bytes(&self) -> usize {
        (DIRECTORY_PLUS_ENTRY_BYTES + self.name.len()).next_multiple_of(8)
    }
}

impl Operations {
    /// Opens a directory. Kernels with `NO_OPENDIR_SUPPORT` don't send this request, and then cache
    /// listings too.
    pub fn open_directory(&self) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of an open directory is closed.
    pub fn release_directory(&self) -> Reply<()> {
        Ok(())
    }

    /// Lists a directory from `cookie` (0: the start) until `add` returns false, which means that
    /// it had no room for the entry. `flags` are those that the directory was opened with.
    ///
    /// # Errors
    /// Only if nothing was added. Otherwise the entries so far are returned, and the next call gets
    /// the error.
    pub fn read_directory(
        &self,
        request: &RequestCaller,
        node: NodeId,
        cookie: u64,
        flags: u32,
        add: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Reply<()> {
        let context = self.context(request, 0);
        let inode = self.inode(node);
        let mut is_any = false;
        let listed = self.file_system.read_directory(&context, inode, cookie, &mut |entry| {
            let added = add(&Listed {
                inode: entry.inode,
                file_type: entry.file_type,
                cookie: entry.cookie,
                name: entry.name,
            });
            is_any |= added;
            added
        });
        self.done(CountedOperation::ReadDirectory, listed.or_else(|error| unless(is_any, error)))?;
        self.note_access(inode, flags);
        Ok(())
    }

    /// The same with attributes, into a reply of `bytes_max` bytes, if that is known. `add` gets each
    /// entry, with a node of 0 where the kernel gets no reference (`.` and `..`), and returns false if it
    /// had no room for it.
    pub fn read_directory_plus(
        &self,
        request: &RequestCaller,
        node: NodeId,
        cookie: u64,
        flags: u32,
        bytes_max: usize,
        add: &mut dyn FnMut(&Listed<'_>, &EntryReply) -> bool,
    ) -> Reply<()> {
        let listed = self.list_plus(request, node, cookie, bytes_max, add);
        self.done(CountedOperation::ReadDirectoryPlus, listed)?;
        self.note_access(self.inode(node), flags);
        Ok(())
    }

    fn list_plus(
        &self,
        request: &RequestCaller,
        node: NodeId,
        cookie: u64,
        bytes_max: usize,
        add: &mut dyn FnMut(&Listed<'_>, &EntryReply) -> bool,
    ) -> Result<()> {
        let context = self.context(request, 0);
        let directory = self.inode(node);
        let (mut cookie, mut bytes_left) = (cookie, bytes_max);
        let mut is_any = false;
        loop {
            let names = self.names(&context, directory, cookie, bytes_left.min(BATCH_BYTES));
            let names = match names {
                Ok(names) => names,
                // The kernel must be told of the references that came with the entries before.
                Err(error) => return unless(is_any, error),
            };
            let Some(last) = names.last() else { return Ok(()) };
            cookie = last.cookie;
            for name in &names {
                match self.add_with_attributes(&context, directory, name, add) {
                    Addition::Added => {
                        is_any = true;
                        bytes_left = bytes_left.saturating_sub(name.bytes());
                    }
                    Addition::NoRoom => return Ok(()),
                    // A reply without entries would mean the end of the directory.
                    Addition::Gone => {}
                }
            }
        }
    }

    /// The names from `cookie` that take at most `bytes_max` bytes in a reply. Fails only if there is none
    /// before the unreadable part.
    fn names(
        &self,
        context: &RequestContext,
        directory: InodeNumber,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Vec<PendingEntry>> {
        let mut names = Vec::new();
        let mut bytes_left = bytes_max;
        let listed = self.file_system.read_directory(context, directory, cookie, &mut |entry| {
            let waiting = PendingEntry {
                inode: entry.inode,
                file_type: entry.file_type,
                cookie: entry.cookie,
                name: entry.name.to_vec(),
            };
            let fits = waiting.bytes() <= bytes_left;
            if fits {
                bytes_left -= waiting.bytes();
                names.push(waiting);
            }
            fits
        });
        match listed {
            Err(error) if names.is_empty() => Err(error),
            _ => Ok(names),
        }
    }

    /// Adds one entry with its attributes.
    fn add_with_attributes(
        &self,
        context: &RequestContext,
        directory: InodeNumber,
        waiting: &PendingEntry,
        add: &mut dyn FnMut(&Listed<'_>, &EntryReply) -> bool,
    ) -> Addition {
        let PendingEntry { inode, file_type, cookie, name } = waiting;
        let entry = if name == b"." || name == b".." {
            self.no_entry()
        } else {
            match self.file_system.lookup(context, directory, name) {
                Ok(attributes) => self.entry(attributes),
                Err(error) if error.errno == Errno::ENOENT => return Addition::Gone,
                // Even a damaged inode has a name; `stat` will report the damage.
                Err(_) => self.no_entry(),
            }
        };
        let listed = Listed { inode: *inode, file_type: *file_type, cookie: *cookie, name };
        if add(&listed, &entry) {
            return Addition::Added;
        }
        if entry.attributes.is_some() {
            self.file_system.forget(self.inode(entry.node), 1);
        }
        Addition::NoRoom
    }

    /// Returns when a directory's content is durable.
    pub fn fsync_directory(&self, node: NodeId, data_only: bool) -> Reply<()> {
        let synced = self.file_system.sync_inode(self.inode(node), data_only);
        self.done(CountedOperation::FsyncDirectory, synced)
    }
}
