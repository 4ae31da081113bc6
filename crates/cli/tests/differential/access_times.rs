//! Which accesses are seen in times of last access, with each mount option.

use super::can_compare;
use super::mounted::Mounted;
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, kernel_mount, mke2fs};
use rustix::fs::{
    Advice, AtFlags, CWD, IFlags, Mode, OFlags, Timespec, Timestamps, copy_file_range, fadvise,
    ioctl_getflags, ioctl_setflags, openat, readlinkat, utimensat,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const IMAGE_BYTES: u64 = 64 << 20;
const HOUR_SECONDS: i64 = 3600;
const OPTIONS: [&str; 5] = ["relatime", "noatime", "nodiratime", "strictatime", "ro"];

/// What somebody does to something, in words that begin with its name.
type Access = (&'static str, fn(&Path));

const ACCESSES: [Access; 12] = [
    ("file: read", |path| read(&path.join("file"), OFlags::RDONLY)),
    ("file: read, open for both", |path| read(&path.join("file"), OFlags::RDWR)),
    ("file: read with O_NOATIME", |path| read(&path.join("file"), OFlags::NOATIME)),
    ("file: read through a link", |path| read(&path.join("link"), OFlags::RDONLY)),
    ("file: opened only", |path| drop(open(&path.join("file"), OFlags::RDONLY))),
    ("file: written into", |path| {
        if let Some(file) = open(&path.join("file"), OFlags::WRONLY) {
            forget_content(&file);
            file.write_all_at(b"x", 1).unwrap();
        }
    }),
    ("file: copied from", |path| {
        let to = open(&path.join("other"), OFlags::WRONLY);
        let (Some(from), Some(to)) = (open(&path.join("file"), OFlags::RDONLY), to) else { return };
        copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 4).unwrap();
    }),
    ("flagged: read", |path| read(&path.join("flagged"), OFlags::RDONLY)),
    ("directory: listed", |path| {
        assert_eq!(fs::read_dir(path.join("directory")).unwrap().count(), 1)
    }),
    ("directory: searched", |path| {
        fs::symlink_metadata(path.join("directory/name")).unwrap();
    }),
    ("link: read", |path| {
        readlinkat(CWD, path.join("link"), Vec::new()).unwrap();
    }),
    ("link: followed", |path| {
        fs::metadata(path.join("link")).unwrap();
    }),
];

fn open(path: &Path, flags: OFlags) -> Option<File> {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

/// What the kernel has in its cache it gives without asking a server.
fn forget_content(file: &File) {
    file.sync_all().unwrap();
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn read(path: &Path, flags: OFlags) {
    let Some(file) = open(path, flags) else { return };
    forget_content(&file);
    file.read_at(&mut [0; 4], 0).unwrap();
}

/// What accesses are told apart by, new for each.
fn make(path: &Path, age_seconds: i64) {
    fs::create_dir(path).unwrap();
    for name in ["file", "flagged", "other"] {
        fs::write(path.join(name), "content").unwrap();
    }
    let flagged = File::open(path.join("flagged")).unwrap();
    let flags = ioctl_getflags(&flagged).unwrap();
    ioctl_setflags(&flagged, flags | IFlags::NOATIME).unwrap();
    fs::create_dir(path.join("directory")).unwrap();
    fs::write(path.join("directory/name"), "").unwrap();
    symlink("file", path.join("link")).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let accessed = Timespec { tv_sec: now - age_seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: accessed, last_modification: accessed };
    for name in ["file", "flagged", "directory", "link"] {
        utimensat(CWD, path.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A folder's name for each access, and each age of the last one before it.
fn names() -> impl Iterator<Item = (String, i64, usize)> {
    // One in the past is behind the inode's last change, and one in the future isn't.
    [HOUR_SECONDS, -HOUR_SECONDS].into_iter().flat_map(|age| {
        (0..ACCESSES.len()).map(move |access| (format!("{access} {age}"), age, access))
    })
}

/// What each access changes.
fn observe(root: &Path) -> Vec<String> {
    let accessed = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.atime(), found.atime_nsec())
    };
    let see = |(name, age, access): (String, i64, usize)| {
        let (what, act) = ACCESSES[access];
        let folder = root.join(name);
        let subject = folder.join(what.split(':').next().unwrap());
        let before = accessed(&subject);
        act(&folder);
        let moves = if accessed(&subject) == before { "stays" } else { "moves" };
        format!("{what}, {age} s after the last: {moves}")
    };
    names().map(see).collect()
}

#[test]
fn accesses_count_as_on_the_kernels_ext4() {
    if !can_compare() {
        return;
    }
    let scratch = Scratch::new("access-times").unwrap();
    let set = FeatureSet::by_name("modern").unwrap();
    let images = ["ours.img", "theirs.img"].map(|name| scratch.join(name));
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
    for transport in ["device", "rings"] {
        for option in OPTIONS {
            for image in &images {
                mke2fs(image, set, IMAGE_BYTES).unwrap().expect_clean("mke2fs");
                let Some(kernel) = kernel_mount(image, &theirs, "noatime").unwrap() else { return };
                names().for_each(|(name, age, _)| make(&theirs.join(name), age));
                kernel.unmount().unwrap();
            }
            let Some(kernel) = kernel_mount(&images[1], &theirs, option).unwrap() else { return };
            let options = format!("{option},transport={transport}");
            let Some(mounted) = Mounted::new(&images[0], &ours, &options) else { continue };
            assert_eq!(observe(&ours), observe(&theirs), "{options}");
            assert!(mounted.unmount());
            kernel.unmount().unwrap();
            e2fsck_check(&images[0]).unwrap().expect_clean(option);
        }
    }
}
