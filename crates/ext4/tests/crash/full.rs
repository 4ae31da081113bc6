//! A full file system: the only error is `ENOSPC`, and removing everything gives back exactly the space
//! that was free before.

use crate::images::{EXT3, FILE, INLINE, LIST, Shape};
use crate::judge::e2fsck;
use crate::record::options;
use crate::seed;
use crate::watch::watch;
use drystone_blockdev::BlockDevice;
use drystone_ext4::Ext4;
use drystone_sync::{Arc, thread};
use drystone_testkit::judges::{Scratch, have};
use drystone_testkit::walk::walk;
use drystone_vfs::{
    Errno, FallocateMode, FileSystem, FileType, InodeNumber, NewNode, RenameFlags, RequestContext,
    Result, SetAttributes, XattrMode, find_parent,
};

const THREADS: u64 = 4;
/// Each thread goes on until it got `ENOSPC` so often.
const REFUSALS: u32 = 60;
const STEPS_MAX: u32 = 20_000;
/// Blocks that may be left when an append is refused: its extent tree may need as many at once.
const BLOCKS_LEFT_MAX: u64 = 4;

struct Filler<'a> {
    fs: &'a Ext4,
    context: RequestContext,
    directory: InodeNumber,
    random: fastrand::Rng,
    large: bool,
}

impl Filler<'_> {
    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.random.u32(0..400)).into_bytes()
    }

    /// Calls `action` with the inode of some name.
    fn at(&mut self, action: impl FnOnce(&Self, InodeNumber) -> Result<()>) -> Result<()> {
        let name = self.name();
        let entry = self.fs.lookup(&self.context, self.directory, &name)?;
        let result = action(self, entry.inode);
        self.fs.forget(entry.inode, 1);
        result
    }

    fn step(&mut self) -> Result<()> {
        let (fs, name, other) = (self.fs, self.name(), self.name());
        let offset = self.random.u64(0..400_000);
        let length = self.random.u64(1..if self.large { 60_000 } else { 1_000 });
        let kind = self.random.u32(0..100);
        let context = self.context.clone();
        match kind {
            0..30 => {
                let node = match kind {
                    0..22 => NewNode::Regular,
                    22..26 => NewNode::Directory,
                    _ => NewNode::Symlink(&[b'x'; 200]),
                };
                let made = fs.create(&context, self.directory, &name, node, 0o755)?;
                fs.forget(made.inode, 1);
                Ok(())
            }
            30..60 => self.at(|this, inode| {
                let data = vec![kind as u8; length as usize];
                this.fs.append(&this.context, inode, &data).map(drop)
            }),
            60..68 => self.at(|this, inode| {
                this.fs.write(&this.context, inode, offset, &[1; 3000]).map(drop)
            }),
            68..76 => self.at(|this, inode| {
                let mode = FallocateMode::Allocate { keep_size: false };
                this.fs.fallocate(&this.context, inode, mode, offset, length)
            }),
            76..80 => self.at(|this, inode| {
                let changes = SetAttributes { size: Some(offset), ..Default::default() };
                this.fs.set_attributes(&this.context, inode, &changes).map(drop)
            }),
            80..86 => self.at(|this, inode| {
                let value = vec![kind as u8; 500];
                this.fs.set_xattr(&this.context, inode, b"user.a", &value, XattrMode::Set)
            }),
            86..90 => self.at(|this, inode| {
                let linked = this.fs.link(&this.context, inode, this.directory, &other)?;
                this.fs.forget(linked.inode, 1);
                Ok(())
            }),
            90..94 => {
                let to = self.directory;
                fs.rename(&context, self.directory, &name, to, &other, RenameFlags::empty())
            }
            94..97 => self.at(|this, inode| {
                this.fs.fallocate(&this.context, inode, FallocateMode::PunchHole, offset, length)
            }),
            _ => fs.unlink(&context, self.directory, &name),
        }
    }

    /// Works until it was refused often enough.
    fn fill(&mut self) {
        let mut refusals = 0;
        for _ in 0..STEPS_MAX {
            match self.step() {
                Ok(()) => {}
                Err(error) if error.errno == Errno::ENOSPC => refusals += 1,
                Err(error) => assert!(
                    // Errors that random names and sizes lead to.
                    matches!(
                        error.errno,
                        Errno::EEXIST
                            | Errno::ENOENT
                            | Errno::EISDIR
                            | Errno::ENOTDIR
                            | Errno::EPERM
                            | Errno::EINVAL
                            | Errno::ENOTEMPTY
                            | Errno::EOPNOTSUPP
                            | Errno::EMLINK
                            | Errno::ELOOP
                    ),
                    "{error:?}"
                ),
            }
            if refusals == REFUSALS {
                return;
            }
        }
    }
}

/// Removes everything below a path.
fn remove_all(fs: &Ext4, path: &[u8]) {
    let context = RequestContext::superuser();
    let found = walk(fs, &context, path).unwrap();
    // Deepest first.
    let mut paths: Vec<_> = found.into_iter().map(|(path, a)| (path, a.file_type)).collect();
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    for (path, file_type) in paths {
        let (parent, name) = find_parent(fs, &context, &path).unwrap();
        match file_type {
            FileType::Directory => fs.remove_directory(&context, parent.inode(), name).unwrap(),
            _ => fs.unlink(&context, parent.inode(), name).unwrap(),
        }
    }
}

fn fill_and_empty(shape: &Shape, large: bool) {
    let Some(device) = shape.make() else { return };
    let device = Arc::new(device);
    let _watch = watch(150, format!("filling {}", shape.name));
    let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options(50)).unwrap();
    let context = RequestContext::superuser();
    let free_before = fs.statistics().unwrap();
    let directories: Vec<InodeNumber> = (0..THREADS)
        .map(|n| {
            let name = format!("t{n}");
            let node = NewNode::Directory;
            fs.create(&context, fs.root(), name.as_bytes(), node, 0o755).unwrap().inode
        })
        .collect();
    for round in 0..3 {
        thread::scope(|scope| {
            for (number, &directory) in directories.iter().enumerate() {
                let random = fastrand::Rng::with_seed(seed() + round * 10 + number as u64);
                let context = context.clone();
                let fs = &fs;
                scope.spawn(move || Filler { fs, context, directory, random, large }.fill());
            }
        });
        let last = fs.create(&context, directories[0], b"last", NewNode::Regular, 0o600);
        // Where the inodes were used up, one may have become free since.
        if let Ok(last) = last {
            if large {
                let append = || fs.append(&context, last.inode, &[7; 1024]);
                while append().is_ok_and(|(_, count)| count > 0) {}
                let left = fs.statistics().unwrap();
                assert!(left.blocks_available <= BLOCKS_LEFT_MAX, "refused too early: {left:?}");
            }
            fs.forget(last.inode, 1);
            fs.unlink(&context, directories[0], b"last").unwrap();
        }
        if !large {
            let mut number = 0;
            let made = loop {
                let name = format!("s{number}");
                let node = NewNode::Symlink(b"short");
                match fs.create(&context, directories[0], name.as_bytes(), node, 0o777) {
                    Ok(entry) => fs.forget(entry.inode, 1),
                    Err(error) => break error,
                }
                number += 1;
            };
            assert_eq!(made.errno, Errno::ENOSPC, "{made:?}");
            let left = fs.statistics().unwrap();
            assert!(left.inodes_free == 0 || left.blocks_available <= BLOCKS_LEFT_MAX, "{left:?}");
            for number in 0..number {
                let name = format!("s{number}");
                fs.unlink(&context, directories[0], name.as_bytes()).unwrap();
            }
        }
    }
    for (number, directory) in directories.into_iter().enumerate() {
        fs.forget(directory, 1);
        remove_all(&fs, format!("/t{number}").as_bytes());
    }
    fs.sync().unwrap();
    let free_after = fs.statistics().unwrap();
    assert_eq!(
        (free_before.blocks_free, free_before.inodes_free),
        (free_after.blocks_free, free_after.inodes_free)
    );
    fs.close().unwrap();
    if have("e2fsck") {
        let scratch = Scratch::new("full").unwrap();
        e2fsck(&*device, &scratch).unwrap();
    }
}

#[test]
fn no_blocks_left() {
    fill_and_empty(&LIST, true);
}

#[test]
fn no_blocks_left_with_orphan_file() {
    fill_and_empty(&FILE, true);
}

#[test]
fn no_blocks_left_with_block_maps() {
    fill_and_empty(&EXT3, true);
}

#[test]
fn no_inodes_left() {
    fill_and_empty(&INLINE, false);
}
