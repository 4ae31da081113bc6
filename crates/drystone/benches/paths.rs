//! What 4 KiB cost by path, beside the same calls at the inode level.
//!
//! The files lie in the root: each component above it would be one more look-up at either level.
//! `./dev bench` compares each `X-by-path` with `X-by-inode`.
#![forbid(unsafe_code)]

use drystone::mkfs::MkfsOptions;
use drystone::vfs::{FileSystem, InodeNumber, OpenFlags, RequestContext};
use drystone::{Fs, Image, MemoryDevice, OpenOptions};
use drystone_sync::Arc;
use drystone_testkit::counted::{self, Case, Operate};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::cell::RefCell;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const FILES: u64 = 5000;
/// Calls of each file: what other threads of the engine do meanwhile then counts little.
const ROUNDS: u64 = 4;
const BYTES: usize = 4096;
const CONTENT: [u8; BYTES] = [0x5a; BYTES];

thread_local! {
    static BUFFER: RefCell<[u8; BYTES]> = const { RefCell::new([0; BYTES]) };
}

const CASES: &[Case] = &[
    Case { name: "read-4k-by-inode", prepare: || inodes(read_inode) },
    Case { name: "read-4k-by-path", prepare: || paths(read_path) },
    Case { name: "open-read-4k-by-inode", prepare: || inodes(open_and_read_inode) },
    Case { name: "open-read-4k-by-path", prepare: || paths(open_and_read_path) },
    Case { name: "open-write-4k-by-inode", prepare: || inodes(open_and_write_inode) },
    Case { name: "open-write-4k-by-path", prepare: || paths(open_and_write_path) },
    Case { name: "replace-4k-by-inode", prepare: || inodes(replace_inode) },
    Case { name: "replace-4k-by-path", prepare: || paths(replace_path) },
];

fn main() -> ExitCode {
    counted::main(CASES, ALLOCATOR)
}

/// An image in memory with files of 4 KiB in its root, and their paths.
fn image() -> (Image, Vec<PathBuf>) {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let options = MkfsOptions::new(1 << 30, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    drystone::mkfs::make(&*device, &options, true).expect("an image is made");
    // Nothing is committed meanwhile.
    let options = Image::options().commit_interval(Duration::from_secs(86_400));
    let image = options.open_device(device).expect("a new image opens");
    let paths: Vec<PathBuf> =
        (0..FILES).map(|number| format!("/file.{number:06}").into()).collect();
    for path in &paths {
        image.fs().write(path, CONTENT).expect("there is room");
    }
    image.fs().sync().expect("the device writes");
    (image, paths)
}

/// A case that does something with each path.
fn paths(body: fn(&Fs<'_>, &Path)) -> Operate {
    let (image, paths) = image();
    Box::new(move || {
        let fs = image.fs();
        for path in (0..ROUNDS).flat_map(|_| &paths) {
            body(&fs, path);
        }
        FILES * ROUNDS
    })
}

/// A case that looks each name up, does something with the inode, and forgets it.
fn inodes(body: fn(&dyn FileSystem, &RequestContext, InodeNumber)) -> Operate {
    let (image, paths) = image();
    let context = RequestContext::superuser();
    Box::new(move || {
        let file_system = image.file_system();
        for path in (0..ROUNDS).flat_map(|_| &paths) {
            let name = &path.as_os_str().as_bytes()[1..];
            let found = file_system.lookup(&context, file_system.root(), name);
            let inode = found.expect("the file is there").inode;
            body(file_system, &context, inode);
            file_system.forget(inode, 1);
        }
        FILES * ROUNDS
    })
}

fn read_inode(file_system: &dyn FileSystem, context: &RequestContext, inode: InodeNumber) {
    file_system.open_held(context, inode, OpenFlags::READ).expect("it may be read");
    let mut content = vec![0; BYTES];
    file_system.read(inode, 0, &mut content).expect("it can be read");
    black_box(&content);
}

fn read_path(fs: &Fs<'_>, path: &Path) {
    black_box(fs.read(path).expect("the file is there"));
}

fn open_and_read_inode(file_system: &dyn FileSystem, context: &RequestContext, inode: InodeNumber) {
    BUFFER.with_borrow_mut(|buffer| {
        file_system.open_held(context, inode, OpenFlags::READ).expect("it may be read");
        file_system.read(inode, 0, buffer).expect("it can be read");
    });
}

fn open_and_read_path(fs: &Fs<'_>, path: &Path) {
    BUFFER.with_borrow_mut(|buffer| {
        let file = fs.open(path).expect("the file is there");
        file.read_exact_at(buffer, 0).expect("it can be read");
    });
}

fn open_and_write_inode(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    inode: InodeNumber,
) {
    file_system.open_held(context, inode, OpenFlags::WRITE).expect("it may be written");
    file_system.write(context, inode, 0, &CONTENT).expect("there is room");
    file_system.closed(inode);
}

fn open_and_write_path(fs: &Fs<'_>, path: &Path) {
    let file = fs.open_with(path, OpenOptions::new().write(true)).expect("the file is there");
    file.write_all_at(&CONTENT, 0).expect("there is room");
}

fn replace_inode(file_system: &dyn FileSystem, context: &RequestContext, inode: InodeNumber) {
    let flags = OpenFlags::WRITE | OpenFlags::TRUNCATE;
    file_system.open_held(context, inode, flags).expect("it may be written");
    file_system.write(context, inode, 0, &CONTENT).expect("there is room");
    file_system.closed(inode);
}

fn replace_path(fs: &Fs<'_>, path: &Path) {
    fs.write(path, CONTENT).expect("there is room");
}
