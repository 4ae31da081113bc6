//! Images to check.

use drystone_blockdev::{FileDevice, OpenMode};
use drystone_fsck::{CheckOptions, Report, check};
use drystone_sync::{LazyLock, LockClass, Mutex, MutexGuard};
use drystone_testkit::judges::{FeatureSet, Judgement, kernel_mount, run};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

static ALONE_CLASS: LockClass = LockClass::new("tests that mount", 1);
static ALONE: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(&ALONE_CLASS, ()));

/// Keeps other tests out: a process that one starts would hold the files of another's mount.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// Makes an image of a feature set that holds the files of a directory, if one is given.
pub fn make(image: &Path, set: &FeatureSet, tree: Option<&Path>) -> Judgement {
    File::create(image).unwrap().set_len(set.size_mib_min << 20).unwrap();
    let fixed = ["-q", "-F", "-E", "nodiscard"];
    let mut arguments: Vec<&OsStr> =
        set.arguments.split_whitespace().chain(fixed).map(OsStr::new).collect();
    if let Some(tree) = tree {
        arguments.extend([OsStr::new("-d"), tree.as_os_str()]);
    }
    arguments.push(image.as_os_str());
    let made = run("mke2fs", arguments).unwrap();
    if !made.is_clean() || set.tune.is_empty() {
        return made;
    }
    let arguments = set.tune.split_whitespace().map(OsStr::new);
    run("tune2fs", arguments.chain([image.as_os_str()])).unwrap()
}

/// Fills a directory with a little of everything.
pub fn fill(root: &Path, files: usize) {
    let directory = root.join("directory");
    fs::create_dir_all(directory.join("below/further")).unwrap();
    for number in 0..files {
        let name = format!("a name of some length, number {number}");
        fs::write(directory.join(name), vec![number as u8; number * 37 % 5000]).unwrap();
    }
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("tiny"), "tiny").unwrap();
    fs::write(root.join("small"), vec![7; 150]).unwrap();
    fs::write(root.join("large"), vec![1; 700_000]).unwrap();
    let mut sparse = File::create(root.join("sparse")).unwrap();
    for piece in 0..12_u64 {
        sparse.seek(SeekFrom::Start(piece * 200_000)).unwrap();
        sparse.write_all(&[9; 5000]).unwrap();
    }
    fs::hard_link(root.join("tiny"), directory.join("again")).unwrap();
    symlink("directory/below", root.join("short link")).unwrap();
    symlink("x/".repeat(60), root.join("long link")).unwrap();
    let mode = rustix::fs::Mode::from_bits_truncate(0o644);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), fifo, mode, 0).unwrap();
    for name in ["user.first", "user.second"] {
        set_attribute(&root.join("small"), name, b"a value");
        set_attribute(&directory, name, b"a value");
    }
    set_attribute(&root.join("large"), "user.large", &[3; 700]);
    set_attribute(&root.join("empty"), "user.large", &[3; 700]);
}

/// Not every file system holds every attribute.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(path, name, value, flags);
}

/// Lets the kernel fill an image, and delete from it; whether it could.
pub fn fill_by_kernel(image: &Path, directory: &Path) -> bool {
    let Some(mounted) = kernel_mount(image, directory, "").unwrap() else { return false };
    let root = mounted.path();
    fill(root, 400);
    set_attribute(&root.join("large"), "user.huge", &[5; 3000]);
    set_attribute(&root.join("tiny"), "user.huge", &[5; 3000]);
    for number in (0..400).step_by(3) {
        let name = format!("directory/a name of some length, number {number}");
        fs::remove_file(root.join(name)).unwrap();
    }
    let cut = File::options().write(true).open(root.join("large")).unwrap();
    cut.set_len(123_456).unwrap();
    let kept = rustix::fs::FallocateFlags::KEEP_SIZE;
    let _ = rustix::fs::fallocate(&cut, kept, 0, 300_000);
    drop(cut);
    mounted.unmount().unwrap();
    true
}

/// Checks an image file.
pub fn check_file(image: &Path) -> Report {
    let device = FileDevice::open(image, OpenMode::ReadOnly).unwrap();
    check(&device, &CheckOptions::default(), &mut |_| {}).unwrap()
}

/// All problems, one a line.
pub fn problems(report: &Report) -> String {
    report.problems.iter().map(|problem| format!("  {problem}\n")).collect()
}
