//! An encrypted tree without the key: the engine shows the names that the kernel shows, finds each, and
//! removes what can be removed without the key.

use crate::support::{Image, checked_image, load, open, open_read_only};
use drystone_ext4::Ext4;
use drystone_sync::Arc;
use drystone_testkit::judges::kernel_mount;
use drystone_vfs::{
    Errno, FileSystem, FileType, InodeNumber, NewNode, OpenFlags, RenameFlags, RequestContext,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Enough for an index of two levels of blocks of 1 KiB, and for names of every length.
const FILES: usize = 700;

for_sets! { check: verity_encrypt large_inodes large_inodes_1k }

/// Paths, with the targets of symbolic links, and the sizes that are shown before and after the target
/// is read.
type Shown = BTreeMap<PathBuf, Option<(PathBuf, u64, u64)>>;

fn check(set: &'static drystone_testkit::judges::FeatureSet) {
    let Some(image) = Image::new(set) else { return };
    let mount = image.scratch.join("mount");
    // The kernel's own key for tests.
    let with_key = kernel_mount(&image.path, &mount, "test_dummy_encryption").unwrap();
    let Some(mounted) = with_key else { return };
    let root = mounted.path();
    fs::create_dir_all(root.join("small/deeper")).unwrap();
    fs::create_dir(root.join("large")).unwrap();
    for number in 0..FILES {
        let name = format!("{number:0width$}", width = 1 + number % 255);
        fs::write(root.join("large").join(name), "content").unwrap();
    }
    symlink("short", root.join("small/short link")).unwrap();
    symlink("x/".repeat(200), root.join("small/long link")).unwrap();
    mounted.unmount().unwrap();

    let Some(expected) = kernel_shows(&image.path, &mount) else { return };
    let device = Arc::new(load(&image.path));
    let engine = open_read_only(&device);
    assert_eq!(engine_shows(&engine), expected);
    engine.close().unwrap();
    drop(engine);

    let engine = open(&device);
    let left = take_away(&engine, &expected);
    assert_eq!(engine_shows(&engine), left);
    engine.close().unwrap();
    drop(engine);
    let image_after = checked_image(&image.scratch, &device, "after");
    let Some(found) = kernel_shows(&image_after, &mount) else { return };
    assert_eq!(found, left);
}

fn kernel_shows(image: &Path, mount: &Path) -> Option<Shown> {
    fn add(root: &Path, below: &Path, shown: &mut Shown) {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            let size = || fs::symlink_metadata(entry.path()).unwrap().len();
            let target = kind.is_symlink().then(|| {
                let before = size();
                (fs::read_link(entry.path()).unwrap(), before, size())
            });
            if kind.is_dir() {
                add(root, &path, shown);
            }
            shown.insert(path, target);
        }
    }
    let mounted = kernel_mount(image, mount, "").unwrap()?;
    let mut shown = Shown::new();
    add(mounted.path(), Path::new(""), &mut shown);
    mounted.unmount().unwrap();
    Some(shown)
}

fn engine_shows(engine: &Ext4) -> Shown {
    fn add(engine: &Ext4, directory: InodeNumber, below: &Path, shown: &mut Shown) {
        for (name, number) in names(engine, directory) {
            let path = below.join(std::ffi::OsStr::from_bytes(&name));
            let found = engine.lookup(&RequestContext::superuser(), directory, &name).unwrap();
            assert_eq!(found.inode, number, "{}", path.display());
            let mut target = None;
            match found.file_type {
                FileType::Directory => add(engine, found.inode, &path, shown),
                FileType::Symlink => {
                    let bytes = engine.read_link(found.inode).unwrap();
                    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes)).to_path_buf();
                    let after = engine.attributes(found.inode).unwrap().size;
                    target = Some((path, found.size, after));
                }
                _ => {}
            }
            engine.forget(found.inode, 1);
            shown.insert(path, target);
        }
    }
    let mut shown = Shown::new();
    add(engine, engine.root(), Path::new(""), &mut shown);
    shown
}

fn names(engine: &Ext4, directory: InodeNumber) -> Vec<(Vec<u8>, InodeNumber)> {
    let mut names = Vec::new();
    engine
        .read_directory(&RequestContext::superuser(), directory, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.inode));
            }
            true
        })
        .unwrap();
    names
}

/// Removes every second file and link of the encrypted directories. Operations that need the key have to
/// be refused.
fn take_away(engine: &Ext4, shown: &Shown) -> Shown {
    let context = RequestContext::superuser();
    let mut left = shown.clone();
    for top in names(engine, engine.root()) {
        if top.0 == b"lost+found" {
            continue;
        }
        engine.lookup(&context, engine.root(), &top.0).unwrap();
        let create = engine.create(&context, top.1, b"new", NewNode::Regular, 0o600);
        assert_eq!(create.unwrap_err().errno, Errno::ENOKEY);
        let (directory, none) =
            (Path::new(std::ffi::OsStr::from_bytes(&top.0)), RenameFlags::empty());
        for (position, (name, inode)) in names(engine, top.1).into_iter().enumerate() {
            let moved = engine.rename(&context, top.1, &name, engine.root(), b"moved", none);
            assert_eq!(moved.unwrap_err().errno, Errno::ENOKEY);
            let found = engine.lookup(&context, top.1, &name).unwrap();
            if found.file_type == FileType::Regular {
                let opened = engine.open(&context, inode, OpenFlags::READ);
                assert_eq!(opened.unwrap_err().errno, Errno::ENOKEY);
            }
            if found.file_type != FileType::Directory && position % 2 == 0 {
                engine.unlink(&context, top.1, &name).unwrap();
                let path = directory.join(std::ffi::OsStr::from_bytes(&name));
                left.remove(&path).unwrap();
            }
            engine.forget(inode, 1);
        }
        engine.forget(top.1, 1);
    }
    left
}
