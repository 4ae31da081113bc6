//! The benchmarks.

use crate::image::{Bench, name};
use drystone_testkit::counted::{Case, Operate};
use drystone_vfs::{FallocateMode, FileSystem, NewNode, RenameFlags, SetAttributes};
use std::hint::black_box;

/// Files in the directory that most benchmarks work in.
const FILES: u64 = 5000;
/// Names in the large directory.
const NAMES_MANY: u64 = 1_000_000;
/// Bytes of one fallocate, and how many there are before the file is emptied.
const STEP_BYTES: u64 = 8 << 10;
const STEPS: u64 = 128;

/// All benchmarks.
pub const CASES: &[Case] = &[
    Case { name: "crc-of-a-block", prepare: crc },
    Case { name: "create", prepare: create },
    Case { name: "lookup", prepare: lookup },
    Case { name: "attributes", prepare: attributes },
    Case { name: "unlink", prepare: unlink },
    Case { name: "rename", prepare: rename },
    Case { name: "append-4k", prepare: append },
    Case { name: "truncate-by-a-byte", prepare: truncate },
    Case { name: "fallocate-8k", prepare: fallocate },
    Case { name: "orphan", prepare: orphan },
    Case { name: "mkdir-rmdir", prepare: directories },
    Case { name: "readdir-entry", prepare: readdir },
    Case { name: "commit-of-1000-creates", prepare: commit },
    Case { name: "htree-insert-at-1m", prepare: htree_insert },
];

fn crc() -> Operate {
    let block = vec![0x5a; 4096];
    Box::new(move || {
        for seed in 0..1000 {
            black_box(drystone_ondisk::crc32c(seed, black_box(&block)));
        }
        1000
    })
}

/// Creates files in a directory of its own; each round needs new names.
fn create() -> Operate {
    let bench = Bench::new(4 * FILES as u32);
    let directory = bench.directory(b"d");
    let mut next = 0;
    Box::new(move || {
        let mut buffer = [0; 16];
        for _ in 0..FILES {
            bench.file(directory, name(&mut buffer, next));
            next += 1;
        }
        FILES
    })
}

fn filled() -> (Bench, drystone_vfs::InodeNumber) {
    let bench = Bench::new(4 * FILES as u32);
    let directory = bench.directory(b"d");
    let mut buffer = [0; 16];
    for number in 0..FILES {
        bench.file(directory, name(&mut buffer, number));
    }
    (bench, directory)
}

/// What `stat` does: looks up a name, with its attributes, and forgets it.
fn lookup() -> Operate {
    let (bench, directory) = filled();
    Box::new(move || {
        let mut buffer = [0; 16];
        for number in 0..FILES {
            let found = bench.fs.lookup(&bench.context, directory, name(&mut buffer, number));
            let found = black_box(found.expect("the file is there"));
            bench.fs.forget(found.inode, 1);
        }
        FILES
    })
}

fn attributes() -> Operate {
    let bench = Bench::new(0);
    let file = bench.open_file(b"f");
    Box::new(move || {
        for _ in 0..FILES {
            black_box(bench.fs.attributes(file).expect("the file is open"));
        }
        FILES
    })
}

fn unlink() -> Operate {
    let (bench, directory) = filled();
    Box::new(move || {
        let mut buffer = [0; 16];
        for number in 0..FILES {
            let name = name(&mut buffer, number);
            bench.fs.unlink(&bench.context, directory, name).expect("the file is there");
        }
        FILES
    })
}

fn rename() -> Operate {
    let (bench, directory) = filled();
    Box::new(move || {
        let (mut old, mut new) = ([0; 16], [0; 16]);
        for number in 0..FILES {
            let (old, new) = (name(&mut old, number), name(&mut new, FILES + number));
            bench
                .fs
                .rename(&bench.context, directory, old, directory, new, RenameFlags::empty())
                .expect("the file is there");
        }
        FILES
    })
}

fn append() -> Operate {
    let bench = Bench::new(0);
    let file = bench.open_file(b"f");
    let data = vec![0x5a; 4096];
    Box::new(move || {
        for _ in 0..FILES {
            bench.fs.append(&bench.context, file, &data).expect("there is room");
        }
        // Waiting data gets its blocks.
        bench.fs.sync_inode(file, true).expect("the device writes");
        FILES
    })
}

fn truncate() -> Operate {
    let bench = Bench::new(0);
    let file = bench.open_file(b"f");
    bench.fs.write(&bench.context, file, 0, &[1; 3 * FILES as usize]).expect("there is room");
    let mut size = 3 * FILES;
    Box::new(move || {
        for _ in 0..FILES {
            size -= 1;
            let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            bench.fs.set_attributes(&bench.context, file, &changes).expect("the file is open");
        }
        FILES
    })
}

fn fallocate() -> Operate {
    let bench = Bench::new(0);
    let file = bench.open_file(b"f");
    bench.fs.unlink(&bench.context, bench.fs.root(), b"f").expect("the file is there");
    Box::new(move || {
        let rounds = 40;
        for _ in 0..rounds {
            for step in 0..STEPS {
                let mode = FallocateMode::Allocate { keep_size: false };
                bench
                    .fs
                    .fallocate(&bench.context, file, mode, step * STEP_BYTES, STEP_BYTES)
                    .expect("there is room");
            }
            let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
            bench.fs.set_attributes(&bench.context, file, &changes).expect("the file is open");
        }
        rounds * STEPS
    })
}

/// Makes an inode without a name and forgets it: it enters and leaves the orphan record.
fn orphan() -> Operate {
    let bench = Bench::new(FILES as u32);
    Box::new(move || {
        for _ in 0..FILES {
            let root = bench.fs.root();
            let made = bench.fs.create_unnamed(&bench.context, root, 0o600);
            bench.fs.forget(made.expect("there are inodes").inode, 1);
        }
        FILES
    })
}

fn directories() -> Operate {
    let bench = Bench::new(FILES as u32);
    let parent = bench.directory(b"d");
    Box::new(move || {
        let (fs, context) = (&bench.fs, &bench.context);
        for _ in 0..FILES / 10 {
            let made = fs.create(context, parent, b"sub", NewNode::Directory, 0o755);
            fs.forget(made.expect("there is room").inode, 1);
            fs.remove_directory(context, parent, b"sub").expect("the directory is there");
        }
        FILES / 10
    })
}

fn readdir() -> Operate {
    let (bench, directory) = filled();
    Box::new(move || {
        let mut entries = 0;
        let visit = &mut |_: &drystone_vfs::DirectoryEntry<'_>| {
            entries += 1;
            true
        };
        bench.fs.read_directory(&bench.context, directory, 0, visit).expect("a sound directory");
        entries
    })
}

/// Measures only the commit: the creates before it are part of the preparation.
fn commit() -> Operate {
    let bench = Bench::new(4 * FILES as u32);
    let directory = bench.directory(b"d");
    let mut buffer = [0; 16];
    for number in 0..1000 {
        bench.file(directory, name(&mut buffer, number));
    }
    Box::new(move || {
        bench.fs.sync().expect("the journal works");
        1
    })
}

fn htree_insert() -> Operate {
    let bench = Bench::new(NAMES_MANY as u32 + 4 * FILES as u32);
    let directory = bench.directory(b"d");
    let mut buffer = [0; 16];
    for number in 0..NAMES_MANY {
        bench.file(directory, name(&mut buffer, number));
    }
    let mut next = NAMES_MANY;
    Box::new(move || {
        let mut buffer = [0; 16];
        for _ in 0..FILES {
            bench.file(directory, name(&mut buffer, next));
            next += 1;
        }
        FILES
    })
}
