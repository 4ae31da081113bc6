//! A forked child can neither use nor close an image of its parent.
//!
//! In a process of its own and in one test, since it forks.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::fs::{File, Walk};
use drystone::vfs::Errno;
use drystone::{CreateOptions, Error, FileSystemKind, Fs, Image, Result};
use drystone_testkit::forked::in_child;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What a child gets a copy of.
struct Open {
    file: File<'static>,
    deleted: File<'static>,
    walk: Walk<'static>,
    fs: Fs<'static>,
    image: Image,
}

fn expect_refused<T>(result: Result<T>) {
    let error = result.err().unwrap();
    assert_eq!(error.errno(), Errno::EBADF, "{error}");
    assert!(error.to_string().contains("forked"), "{error}");
}

impl Open {
    fn new(path: &Path) -> Open {
        // Nothing is written while a child runs, but by the child.
        let options = Image::options().commit_interval(std::time::Duration::from_secs(3600));
        let image = options.open(path).unwrap();
        let fs = image.shared_fs();
        let mut file = fs.create("/file").unwrap();
        file.write_all(b"parent").unwrap();
        let deleted = fs.create("/deleted").unwrap();
        fs.remove_file("/deleted").unwrap();
        let mut walk = fs.walk("/");
        walk.next().unwrap().unwrap();
        Open { file, deleted, walk, fs, image }
    }

    fn expect_unusable(&mut self) {
        expect_refused(self.fs.read("/file"));
        expect_refused(self.fs.write("/new", "child"));
        expect_refused(self.fs.sync());
        expect_refused(self.fs.read_dir("/").map(drop));
        expect_refused(self.fs.statistics());
        expect_refused(self.walk.next().unwrap());
        expect_refused(self.file.write_all(b"child").map_err(Error::from));
        expect_refused(self.file.sync_all());
        expect_refused(self.image.checkpoints());
    }
}

#[test]
fn a_child_neither_uses_nor_closes_an_image() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
        let path = folder.path().join(kind.name());
        let size = if kind == FileSystemKind::Ext4 { 16 << 20 } else { 256 << 20 };
        Image::create(&path, &CreateOptions::new(size).kind(kind)).unwrap().close().unwrap();
        let mut open = Some(Open::new(&path));
        let before = fs::read(&path).unwrap();
        in_child(|| {
            let mut open = open.take().unwrap();
            open.expect_unusable();
            drop(open);
            assert_eq!(Image::open(&path).err().unwrap().errno(), Errno::EBUSY);
        })
        .unwrap();
        in_child(|| {
            let Open { file, deleted, walk, fs, image } = open.take().unwrap();
            drop((file, deleted, walk, fs));
            expect_refused(image.close());
        })
        .unwrap();
        assert!(fs::read(&path).unwrap() == before, "a child has changed the image");
        assert_eq!(Image::open(&path).err().unwrap().errno(), Errno::EBUSY);
        let Open { mut file, deleted, walk, fs, image } = open.unwrap();
        file.write_all(b", too").unwrap();
        assert_eq!(fs.read("/file").unwrap(), b"parent, too");
        drop((file, deleted, walk, fs));
        image.close().unwrap();
        let errors = match kind {
            FileSystemKind::Ext4 => {
                drystone::check_image(&path, &Default::default(), &mut |_| {}).unwrap().errors
            }
            FileSystemKind::Nilfs2 => {
                drystone::check_nilfs2(&path, &Default::default()).unwrap().errors
            }
        };
        assert_eq!(errors, 0);
    }
}
