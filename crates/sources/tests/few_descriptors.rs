//! More inputs than a process may have files open are read, and trees that are deeper than that.
//!
//! In a process of its own and in one test: the limit is the whole process's.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::MemoryDevice;
use drystone_mkfs::build::{Builder, Ext4BuildOptions};
use drystone_mkfs::tree::FileTree;
use drystone_sources::{Opener, Source, SourceContext};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

const LIMIT: u64 = 64;
const FILES: usize = 3000;
const DEPTH: usize = 700;

#[test]
fn many_inputs_need_few_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..before }).unwrap();
    a_list_of_many_files(&folder.path().join("files"));
    a_deep_tree(&folder.path().join("deep"));
    too_many_directories_are_refused(&folder.path().join("directories"));
    // What removes the trees has every level open.
    setrlimit(Resource::Nofile, before).unwrap();
}

/// Reads the sources of a list, as the command does.
fn read(list: &str, folder: &Path) -> Result<FileTree, String> {
    let mut context = SourceContext::new(Opener::new(folder));
    context.threads = 4;
    let mut tree = FileTree::new();
    for source in Source::parse_list("list", folder, list.as_bytes()).unwrap() {
        source.add(&mut tree, &mut context).map_err(|error| error.to_string())?;
    }
    Ok(tree)
}

/// Builds an image, which reads the content of all files. Returns how many inodes are in use, without
/// the root and lost+found.
fn build(tree: &mut FileTree) -> usize {
    let options = Ext4BuildOptions::default().threads(4);
    let builder = Builder::new(tree, &options).unwrap();
    let device = MemoryDevice::new(builder.size_bytes());
    let files = builder.files() as usize;
    builder.write(&device, true, &()).unwrap();
    files - 2
}

fn a_list_of_many_files(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let mut list = String::new();
    for number in 0..FILES {
        std::fs::write(folder.join(number.to_string()), number.to_string()).unwrap();
        list += &format!("file:{number} /{}/{number}\n", number % 7);
    }
    assert_eq!(build(&mut read(&list, folder).unwrap()), FILES + 7);
}

/// Of longer paths than one call takes; each directory has a file.
fn a_deep_tree(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let mut at: OwnedFd = File::open(folder).unwrap().into();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at, "directory", Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "directory", flags, Mode::empty()).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&at, "file", flags, Mode::RWXU).unwrap();
        rustix::io::write(&file, b"content").unwrap();
    }
    assert_eq!(build(&mut read("dir:.", folder).unwrap()), 2 * DEPTH);
}

/// Each stays open until the image is built, so that what is read is what was listed.
fn too_many_directories_are_refused(folder: &Path) {
    std::fs::create_dir_all(folder.join("one")).unwrap();
    let list: String = (0..2 * LIMIT).map(|number| format!("dir:one /{number}\n")).collect();
    let error = read(&list, folder).unwrap_err();
    assert!(error.contains("Too many open files"), "{error}");
}
