//! A directory and the names that should be in it.

use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{Scratch, e2fsck_check, have, run};
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub type Names = BTreeMap<Vec<u8>, InodeNumber>;

/// The seed of all random numbers.
pub fn seed() -> u64 {
    number("DRYSTONE_SEED").unwrap_or(0x5eed)
}

/// An image in a folder of its own.
pub struct Image {
    _scratch: Scratch,
    pub path: PathBuf,
}

impl Image {
    /// `None` if there is no `mke2fs`.
    pub fn new(options: &[&str], size: &str) -> Option<Image> {
        if !have("mke2fs") {
            return None;
        }
        let scratch = Scratch::new("directories").unwrap();
        let path = scratch.join("image");
        let mut arguments = vec!["-q", "-F"];
        arguments.extend(options);
        arguments.extend([path.to_str().unwrap(), size]);
        run("mke2fs", &arguments).unwrap().expect_clean(&format!("mke2fs {arguments:?}"));
        Some(Image { path, _scratch: scratch })
    }

    pub fn debugfs(&self, command: &str) -> String {
        run("debugfs", ["-w", "-R", command, self.path.to_str().unwrap()]).unwrap().output
    }

    pub fn mount(&self) -> Ext4 {
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite).unwrap();
        Ext4::open(Arc::new(device), MountOptions::default()).unwrap()
    }

    pub fn check(&self) {
        e2fsck_check(&self.path).unwrap().expect_clean("e2fsck");
    }
}

/// One directory of a mounted image, three files to name in it, and the names it should have.
pub struct Subject<'a> {
    pub fs: &'a Ext4,
    pub context: RequestContext,
    pub directory: InodeNumber,
    pub files: Vec<InodeNumber>,
    pub names: Names,
}

impl<'a> Subject<'a> {
    pub fn new(fs: &'a Ext4, directory: Option<&[u8]>) -> Subject<'a> {
        let context = RequestContext::superuser();
        let root = fs.root();
        let files = (0..3)
            .map(|number| {
                let name = format!("file {number}");
                fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o600).unwrap().inode
            })
            .collect();
        let directory = match directory {
            Some(name) => fs.lookup(&context, root, name).unwrap().inode,
            None => fs.create(&context, root, b"d", NewNode::Directory, 0o700).unwrap().inode,
        };
        Subject { fs, context, directory, files, names: Names::new() }
    }

    pub fn insert(&mut self, name: &[u8], inode: InodeNumber) {
        let linked = self.fs.link(&self.context, inode, self.directory, name);
        match linked {
            Ok(entry) => {
                assert_eq!(entry.inode, inode);
                self.fs.forget(inode, 1);
                assert_eq!(self.names.insert(name.to_vec(), inode), None);
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::EEXIST, "{error:?}");
                assert!(self.names.contains_key(name), "{name:?} does not exist");
            }
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        let removed = self.fs.unlink(&self.context, self.directory, name);
        match self.names.remove(name) {
            Some(_) => removed.unwrap(),
            None => assert_eq!(removed.unwrap_err().errno, Errno::ENOENT),
        }
    }

    /// Moves a new file of the root over a name.
    pub fn replace(&mut self, name: &[u8], inode: InodeNumber) {
        let root = self.fs.root();
        self.fs.link(&self.context, inode, root, b"moved").unwrap();
        self.fs.forget(inode, 1);
        let flags = RenameFlags::empty();
        self.fs.rename(&self.context, root, b"moved", self.directory, name, flags).unwrap();
        if self.names.get(name) == Some(&inode) {
            // Two names of one file: nothing happens.
            self.fs.unlink(&self.context, root, b"moved").unwrap();
        }
        self.names.insert(name.to_vec(), inode);
    }

    pub fn find(&self, name: &[u8]) -> Option<InodeNumber> {
        match self.fs.lookup(&self.context, self.directory, name) {
            Ok(entry) => {
                self.fs.forget(entry.inode, 1);
                Some(entry.inode)
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOENT, "{error:?}");
                None
            }
        }
    }

    /// Lists a few entries from a cookie on. Returns where to go on; `None` at the end.
    pub fn list(
        &self,
        cookie: u64,
        count: usize,
        into: &mut Vec<(Vec<u8>, InodeNumber)>,
    ) -> Option<u64> {
        let (mut next, mut left) = (None, count);
        self.fs
            .read_directory(&self.context, self.directory, cookie, &mut |entry| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                next = Some(entry.cookie);
                into.push((entry.name.to_vec(), entry.inode));
                true
            })
            .unwrap();
        next.filter(|_| left == 0)
    }

    pub fn list_all(&self, count: usize) -> Vec<(Vec<u8>, InodeNumber)> {
        let (mut listed, mut cookie) = (Vec::new(), Some(0));
        while let Some(from) = cookie {
            cookie = self.list(from, count, &mut listed);
        }
        listed
    }

    pub fn check(&self) {
        for count in [usize::MAX, 1, 7] {
            // Entry by entry takes long in large directories.
            if count == 1 && self.names.len() > 2000 {
                continue;
            }
            let mut listed = self.list_all(count);
            assert_eq!(listed[0], (b".".to_vec(), self.directory));
            assert_eq!(listed[1], (b"..".to_vec(), self.fs.root()));
            listed.drain(..2);
            listed.sort();
            let expected: Vec<_> = self.names.iter().map(|(n, i)| (n.clone(), *i)).collect();
            assert!(listed == expected, "{} listed, {} expected", listed.len(), expected.len());
        }
    }
}
