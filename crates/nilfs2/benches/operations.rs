//! The cost of single operations of the engine, on an image in memory and in one thread.
#![forbid(unsafe_code)]

use drystone_blockdev::MemoryDevice;
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{InodeSearch, MountOptions, Nilfs2};
use drystone_sync::Arc;
use drystone_testkit::counted::{self, Case, Operate};
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RequestContext};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const IMAGE_BYTES: u64 = 1 << 30;
/// Files in the directory that most benchmarks work in. Fewer than have a log written.
const FILES: u64 = 5000;
const BLOCK: [u8; 4096] = [0x5a; 4096];

const CASES: &[Case] = &[
    Case { name: "nilfs2-create", prepare: || create(InodeSearch::PerCore) },
    Case { name: "nilfs2-create-next-hint", prepare: || create(InodeSearch::NextHint) },
    Case { name: "nilfs2-create-first", prepare: || create(InodeSearch::First) },
    Case { name: "nilfs2-lookup", prepare: lookup },
    Case { name: "nilfs2-unlink", prepare: unlink },
    Case { name: "nilfs2-append-4k", prepare: append },
    Case { name: "nilfs2-checkpoint-of-1000-creates", prepare: checkpoint },
];

fn main() -> ExitCode {
    counted::main(CASES, ALLOCATOR)
}

/// A mounted volume, and the context of the operations.
struct Bench {
    fs: Nilfs2,
    context: RequestContext,
    directory: InodeNumber,
}

impl Bench {
    /// A volume with an empty directory, which writes logs only when it is asked to.
    fn new(search: InodeSearch) -> Self {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        make(&*device, &MakeOptions::new(Uuid::from_bytes([7; 16]), 1, 1_700_000_000))
            .expect("a volume is made");
        let options = MountOptions::default()
            .commit_interval(Duration::from_secs(86_400))
            .inode_search(search);
        let fs = Nilfs2::mount(device, &options).expect("a new volume mounts");
        let context = RequestContext::superuser();
        let made = fs.create(&context, fs.root(), b"d", NewNode::Directory, 0o755);
        let directory = made.expect("a directory is made").inode;
        Self { fs, context, directory }
    }

    fn filled() -> Self {
        let bench = Self::new(InodeSearch::PerCore);
        (0..FILES).for_each(|number| bench.file(number));
        bench.fs.sync().expect("a log is written");
        bench
    }

    /// Makes an empty file and forgets it, as `open` and `close` do.
    fn file(&self, number: u64) {
        let inode = self.open_file(number);
        self.fs.forget(inode, 1);
    }

    fn open_file(&self, number: u64) -> InodeNumber {
        let name = name(number);
        self.fs
            .create(&self.context, self.directory, &name, NewNode::Regular, 0o644)
            .expect("a file is made")
            .inode
    }
}

/// The name of a file, which always has the same length.
fn name(number: u64) -> [u8; 16] {
    let mut name = *b"file.00000000000";
    let mut rest = number;
    for place in name[5..].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// Creates files in a directory of its own; each round needs new names.
fn create(search: InodeSearch) -> Operate {
    let bench = Bench::new(search);
    let mut next = 0;
    Box::new(move || {
        (next..next + FILES).for_each(|number| bench.file(number));
        next += FILES;
        FILES
    })
}

/// What `stat` does: looks up a name, with its attributes, and forgets it.
fn lookup() -> Operate {
    let bench = Bench::filled();
    Box::new(move || {
        for number in 0..FILES {
            let found = bench.fs.lookup(&bench.context, bench.directory, &name(number));
            let found = black_box(found.expect("the file is there"));
            bench.fs.forget(found.inode, 1);
        }
        FILES
    })
}

fn unlink() -> Operate {
    let bench = Bench::filled();
    Box::new(move || {
        for number in 0..FILES {
            bench
                .fs
                .unlink(&bench.context, bench.directory, &name(number))
                .expect("the file is there");
        }
        FILES
    })
}

/// Appends to one file, and has a log written.
fn append() -> Operate {
    let bench = Bench::new(InodeSearch::PerCore);
    let file = bench.open_file(0);
    let mut size = 0;
    Box::new(move || {
        for _ in 0..FILES {
            bench.fs.write(&bench.context, file, size, &BLOCK).expect("there is room");
            size += BLOCK.len() as u64;
        }
        bench.fs.sync().expect("a log is written");
        FILES
    })
}

/// Has a log written in which 1,000 files are new.
fn checkpoint() -> Operate {
    let bench = Bench::filled();
    (FILES..FILES + 1000).for_each(|number| bench.file(number));
    Box::new(move || {
        bench.fs.sync().expect("a log is written");
        1
    })
}
