//! The environment of a case, with short helpers for common steps.

use std::cell::RefCell;
use std::collections::BTreeMap;

use drystone_vfs::{
    Capabilities, Entry, FileSystem, InodeAttributes, InodeNumber, NewNode, RenameFlags,
    RequestContext, Result, SetAttributes,
};

use crate::model::Configuration;
use crate::walk;

/// A directory for one case, open to all users.
pub(super) struct Fixture<'a> {
    pub fs: &'a dyn FileSystem,
    pub of: &'a Configuration,
    pub dir: InodeNumber,
    /// The superuser, without checks.
    pub root: RequestContext,
    /// References to give back at the end.
    references: RefCell<BTreeMap<InodeNumber, u64>>,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem, of: &'a Configuration, name: &str) -> Fixture<'a> {
        let root = RequestContext::superuser();
        let made = fs
            .create(&root, fs.root(), name.as_bytes(), NewNode::Directory, 0o777)
            .unwrap_or_else(|error| panic!("no directory for the case: {error}"));
        let references = RefCell::new(BTreeMap::from([(made.inode, 1)]));
        Fixture { fs, of, dir: made.inode, root, references }
    }

    /// Notes a reference to be given back at the end.
    pub(super) fn keep(&self, entry: Result<Entry>) -> Result<Entry> {
        if let Ok(entry) = &entry {
            *self.references.borrow_mut().entry(entry.inode).or_default() += 1;
        }
        entry
    }

    /// Gives back all references to an inode now.
    pub(super) fn release(&self, inode: InodeNumber) {
        if let Some(count) = self.references.borrow_mut().remove(&inode) {
            self.fs.forget(inode, count);
        }
    }

    /// User 1000 + n of the group of the same number, and of group 2000.
    pub(super) fn user(&self, n: u32) -> RequestContext {
        RequestContext::user(1000 + n, 1000 + n, vec![2000])
    }

    /// A user with capabilities.
    pub(super) fn able(&self, n: u32, capabilities: Capabilities) -> RequestContext {
        RequestContext { capabilities, ..self.user(n) }
    }

    pub(super) fn create_as(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &str,
        node: NewNode<'_>,
        mode: u16,
    ) -> Result<Entry> {
        self.keep(self.fs.create(context, parent, name.as_bytes(), node, mode))
    }

    /// A regular file with mode 644 in the case's directory.
    #[track_caller]
    pub(super) fn file(&self, name: &str) -> InodeNumber {
        self.file_in(self.dir, name)
    }

    #[track_caller]
    pub(super) fn file_in(&self, parent: InodeNumber, name: &str) -> InodeNumber {
        self.made(&self.root, parent, name, NewNode::Regular, 0o644)
    }

    /// A directory with mode 755 in the case's directory.
    #[track_caller]
    pub(super) fn mkdir(&self, name: &str) -> InodeNumber {
        self.mkdir_in(self.dir, name)
    }

    #[track_caller]
    pub(super) fn mkdir_in(&self, parent: InodeNumber, name: &str) -> InodeNumber {
        self.made(&self.root, parent, name, NewNode::Directory, 0o755)
    }

    #[track_caller]
    pub(super) fn symlink(&self, name: &str, target: &str) -> InodeNumber {
        self.made(&self.root, self.dir, name, NewNode::Symlink(target.as_bytes()), 0o777)
    }

    #[track_caller]
    pub(super) fn made(
        &self,
        context: &RequestContext,
        parent: InodeNumber,
        name: &str,
        node: NewNode<'_>,
        mode: u16,
    ) -> InodeNumber {
        match self.create_as(context, parent, name, node, mode) {
            Ok(entry) => entry.inode,
            Err(error) => panic!("{name} can't be made: {error}"),
        }
    }

    pub(super) fn lookup(&self, parent: InodeNumber, name: &str) -> Result<Entry> {
        self.keep(self.fs.lookup(&self.root, parent, name.as_bytes()))
    }

    #[track_caller]
    pub(super) fn stat(&self, inode: InodeNumber) -> InodeAttributes {
        match self.fs.attributes(inode) {
            Ok(attributes) => attributes,
            Err(error) => panic!("no attributes of {inode}: {error}"),
        }
    }

    pub(super) fn link(
        &self,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &str,
    ) -> Result<Entry> {
        self.keep(self.fs.link(&self.root, inode, parent, name.as_bytes()))
    }

    pub(super) fn unlink(&self, parent: InodeNumber, name: &str) -> Result<()> {
        self.fs.unlink(&self.root, parent, name.as_bytes())
    }

    pub(super) fn rmdir(&self, parent: InodeNumber, name: &str) -> Result<()> {
        self.fs.remove_directory(&self.root, parent, name.as_bytes())
    }

    pub(super) fn rename(&self, from: (InodeNumber, &str), to: (InodeNumber, &str)) -> Result<()> {
        self.rename_as(&self.root, from, to, RenameFlags::empty())
    }

    pub(super) fn rename_as(
        &self,
        context: &RequestContext,
        from: (InodeNumber, &str),
        to: (InodeNumber, &str),
        flags: RenameFlags,
    ) -> Result<()> {
        self.fs.rename(context, from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
    }

    pub(super) fn set(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        changes: SetAttributes,
    ) -> Result<InodeAttributes> {
        self.fs.set_attributes(context, inode, &changes)
    }

    #[track_caller]
    pub(super) fn chmod(&self, inode: InodeNumber, mode: u16) {
        let changes = SetAttributes { permissions: Some(mode), ..Default::default() };
        if let Err(error) = self.set(&self.root, inode, changes) {
            panic!("mode of {inode} can't be set: {error}");
        }
    }

    #[track_caller]
    pub(super) fn chown(&self, inode: InodeNumber, user: u32, group: u32) {
        let changes = SetAttributes { user: Some(user), group: Some(group), ..Default::default() };
        if let Err(error) = self.set(&self.root, inode, changes) {
            panic!("owner of {inode} can't be set: {error}");
        }
    }

    pub(super) fn resize(&self, inode: InodeNumber, size: u64) -> Result<InodeAttributes> {
        self.set(&self.root, inode, SetAttributes { size: Some(size), ..Default::default() })
    }

    #[track_caller]
    pub(super) fn write(&self, inode: InodeNumber, offset: u64, data: &[u8]) {
        match self.fs.write(&self.root, inode, offset, data) {
            Ok(count) => assert_eq!(count, data.len(), "bytes written"),
            Err(error) => panic!("write of {} bytes at {offset}: {error}", data.len()),
        }
    }

    /// All content.
    #[track_caller]
    pub(super) fn content(&self, inode: InodeNumber) -> Vec<u8> {
        let size = self.stat(inode).size as usize;
        let mut buffer = vec![0xee; size + 100];
        match self.fs.read(inode, 0, &mut buffer) {
            Ok(count) => buffer.truncate(count),
            Err(error) => panic!("read: {error}"),
        }
        assert_eq!(buffer.len(), size, "bytes read");
        buffer
    }

    /// All names but `.` and `..`, sorted.
    #[track_caller]
    pub(super) fn names(&self, directory: InodeNumber) -> Vec<String> {
        match walk::names(self.fs, &self.root, directory) {
            Ok(names) => {
                let names = names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
                let mut names: Vec<_> = names.filter(|name| name != "." && name != "..").collect();
                names.sort();
                names
            }
            Err(error) => panic!("no listing: {error}"),
        }
    }

    /// A block of the file system.
    pub(super) fn block(&self) -> u64 {
        u64::from(self.of.block_size)
    }
}

impl Drop for Fixture<'_> {
    fn drop(&mut self) {
        for (inode, count) in std::mem::take(self.references.get_mut()) {
            self.fs.forget(inode, count);
        }
    }
}
