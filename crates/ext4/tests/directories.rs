//! Directories against a map of names, on images of every shape that `mke2fs` makes.
//!
//! `SEED=n cargo test -p drystone-ext4 --test directories` repeats a failure.
#![allow(clippy::unwrap_used)]

use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

type Names = BTreeMap<Vec<u8>, InodeNumber>;

fn seed() -> u64 {
    match std::env::var("SEED").map(|text| text.parse()) {
        Ok(Ok(seed)) => seed,
        _ => 0x5eed,
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

/// An image in a folder of its own.
struct Image {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    /// Nothing where there is no `mke2fs`.
    fn new(options: &[&str], size: &str) -> Option<Image> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut arguments = vec!["-q", "-F"];
        arguments.extend(options);
        arguments.extend([path.to_str().unwrap(), size]);
        let (made, text) = run("mke2fs", &arguments)?;
        assert!(made, "mke2fs {arguments:?}: {text}");
        Some(Image { path, _folder: folder })
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn debugfs(&self, command: &str) -> String {
        run("debugfs", &["-w", "-R", command, self.text()]).unwrap().1
    }

    fn mount(&self) -> Ext4 {
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite).unwrap();
        Ext4::open(Arc::new(device), MountOptions::default()).unwrap()
    }

    fn check(&self) {
        let (clean, text) = run("e2fsck", &["-fn", self.text()]).unwrap();
        assert!(clean, "e2fsck: {text}");
    }
}

/// One directory of a mounted image, three files to name in it, and the names it should have.
struct Subject<'a> {
    fs: &'a Ext4,
    context: RequestContext,
    directory: InodeNumber,
    files: Vec<InodeNumber>,
    names: Names,
}

impl<'a> Subject<'a> {
    fn new(fs: &'a Ext4, directory: Option<&[u8]>) -> Subject<'a> {
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

    fn insert(&mut self, name: &[u8], inode: InodeNumber) {
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

    fn remove(&mut self, name: &[u8]) {
        let removed = self.fs.unlink(&self.context, self.directory, name);
        match self.names.remove(name) {
            Some(_) => removed.unwrap(),
            None => assert_eq!(removed.unwrap_err().errno, Errno::ENOENT),
        }
    }

    /// Moves a new file of the root over a name.
    fn replace(&mut self, name: &[u8], inode: InodeNumber) {
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

    fn find(&self, name: &[u8]) -> Option<InodeNumber> {
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

    /// Lists a few entries from a cookie on and returns where to go on, nothing at the end.
    fn list(
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

    fn list_all(&self, count: usize) -> Vec<(Vec<u8>, InodeNumber)> {
        let (mut listed, mut cookie) = (Vec::new(), Some(0));
        while let Some(from) = cookie {
            cookie = self.list(from, count, &mut listed);
        }
        listed
    }

    fn check(&self) {
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

fn name(random: &mut fastrand::Rng, numbers: u32, length_max: usize) -> Vec<u8> {
    let number = random.u32(..numbers);
    let mut name = format!("{number}-").into_bytes();
    // The length is a function of the number, so that names recur.
    let length = number.wrapping_mul(2_654_435_761) as usize % length_max;
    name.resize(name.len().max(length).min(255), b'x');
    name
}

fn model(options: &[&str], subject: Option<&[u8]>, prepare: impl FnOnce(&Image)) {
    let Some(image) = Image::new(options, "64M") else { return };
    prepare(&image);
    let seed = seed();
    eprintln!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let fs = image.mount();
    let mut subject = Subject::new(&fs, subject);
    for (numbers, length_max, steps) in
        [(4, 8, 30), (40, 20, 300), (600, 256, 3000), (600, 256, 1500), (9000, 60, 9000)]
    {
        for _ in 0..steps {
            let name = name(&mut random, numbers, length_max);
            let inode = subject.files[random.usize(..3)];
            match random.u32(..10) {
                0..=5 => subject.insert(&name, inode),
                6..=7 => subject.remove(&name),
                8 => subject.replace(&name, inode),
                _ => assert_eq!(subject.find(&name), subject.names.get(&name).copied()),
            }
        }
        subject.check();
    }
    for name in subject.names.keys() {
        assert_eq!(subject.find(name), subject.names.get(name).copied());
    }
    let directory = subject.directory;
    let names = std::mem::take(&mut subject.names);
    let files = subject.files.clone();
    drop(subject);
    fs.close().unwrap();
    image.check();
    let is_indexed = !options.iter().any(|option| option.contains("^dir_index"));
    let dump = image.debugfs("htree_dump /d");
    assert_eq!(dump.contains("Root node dump"), is_indexed, "{dump}");
    // What went through the device is what was in memory; then everything goes.
    let fs = image.mount();
    let context = RequestContext::superuser();
    let directory_again = fs.lookup(&context, fs.root(), b"d").unwrap().inode;
    assert_eq!(directory_again, directory);
    let mut subject = Subject { fs: &fs, context, directory, files, names };
    subject.check();
    let all: Vec<_> = subject.names.keys().cloned().collect();
    for name in &all {
        subject.remove(name);
    }
    subject.check();
    fs.remove_directory(&subject.context, fs.root(), b"d").unwrap();
    fs.forget(directory, 1);
    fs.close().unwrap();
    image.check();
}

const BASE: &str = "-O^resize_inode";

fn plain(options: &[&str]) {
    model(options, None, |_| ());
}

#[test]
fn half_md4_with_small_blocks() {
    plain(&["-t", "ext4", BASE, "-b", "1024"]);
}

#[test]
fn large_blocks() {
    plain(&["-t", "ext4", BASE, "-b", "4096"]);
}

#[test]
fn three_levels() {
    plain(&["-t", "ext4", "-O", "large_dir,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_index() {
    plain(&["-t", "ext4", "-O", "^dir_index,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_checksums() {
    plain(&["-t", "ext4", "-O", "^metadata_csum,^resize_inode", "-b", "1024"]);
}

#[test]
fn no_types() {
    plain(&["-t", "ext4", "-O", "^filetype,^resize_inode", "-b", "1024"]);
}

#[test]
fn block_maps() {
    plain(&["-t", "ext3", "-O", "dir_index,^resize_inode", "-b", "1024"]);
}

#[test]
fn inline() {
    plain(&["-t", "ext4", "-O", "inline_data,^resize_inode", "-b", "1024", "-I", "256"]);
    plain(&["-t", "ext4", "-O", "inline_data,^resize_inode", "-b", "4096", "-I", "1024"]);
    plain(&["-t", "ext4", "-O", "inline_data,^dir_index,^resize_inode", "-b", "1024", "-I", "512"]);
}

#[test]
fn bigalloc() {
    plain(&["-t", "ext4", "-O", "bigalloc,^resize_inode", "-b", "1024", "-C", "16384"]);
}

fn with_hash(hash: &str) {
    model(&["-t", "ext4", BASE, "-b", "1024"], None, |image| {
        let text = image.debugfs(&format!("set_super_value def_hash_version {hash}"));
        assert!(!text.contains("invalid"), "{text}");
    });
}

#[test]
fn tea() {
    with_hash("tea");
}

#[test]
fn legacy() {
    with_hash("legacy");
}
