//! Small images in which every structure that a damage could hit is in use.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, have, run};
use drystone_vfs::{
    Errno, FallocateMode, FileSystem, InodeNumber, NewNode, RequestContext, XattrMode,
};

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Arguments of `mke2fs`.
    pub arguments: &'static str,
    pub size_mib: u64,
    /// The image is left as after a crash: with a dirty journal and with orphans.
    pub dirty: bool,
}

/// The image of a kind; `None` if there is no `mke2fs`.
pub fn make(kind: &Kind) -> Option<MemoryDevice> {
    if !have("mke2fs") {
        return None;
    }
    let scratch = Scratch::new("damage").unwrap();
    let path = scratch.join("image");
    std::fs::File::create(&path).unwrap().set_len(kind.size_mib << 20).unwrap();
    // Hashes and checksums depend on the UUIDs, so these must not change between runs.
    let fixed = "-q -F -U 6f0f2ef4-6b3c-4b02-9a53-111111111111 -E nodiscard,lazy_itable_init=0,\
                 hash_seed=6f0f2ef4-6b3c-4b02-9a53-222222222222";
    let arguments = kind.arguments.split_whitespace().chain(fixed.split_whitespace());
    let arguments = merge_extended(arguments.map(str::to_owned).collect());
    let target = path.to_str().unwrap().to_owned();
    run("mke2fs", arguments.into_iter().chain([target])).unwrap().expect_clean("mke2fs");
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let fs = Ext4::open(device.clone(), options(false)).unwrap();
    populate(&fs);
    if kind.dirty {
        leave_open(&fs);
        let snapshot = device.snapshot();
        fs.close().unwrap();
        return Some(snapshot);
    }
    fs.close().unwrap();
    Some(device.snapshot())
}

/// `mke2fs` keeps only its last `-E`.
fn merge_extended(arguments: Vec<String>) -> Vec<String> {
    let mut merged = Vec::new();
    let mut extended = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "-E" {
            extended.extend(arguments.next());
        } else {
            merged.push(argument);
        }
    }
    merged.extend(["-E".to_owned(), extended.join(",")]);
    merged
}

pub fn options(read_only: bool) -> MountOptions {
    MountOptions::default().read_only(read_only).memory_budget_bytes(8 << 20)
}

fn make_file(fs: &Ext4, parent: InodeNumber, name: &str, data: &[u8]) -> InodeNumber {
    let context = RequestContext::superuser();
    let file = fs.create(&context, parent, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    if !data.is_empty() {
        fs.write(&context, file.inode, 0, data).unwrap();
    }
    fs.forget(file.inode, 1);
    file.inode
}

fn make_directory(fs: &Ext4, parent: InodeNumber, name: &str) -> InodeNumber {
    let context = RequestContext::superuser();
    let made = fs.create(&context, parent, name.as_bytes(), NewNode::Directory, 0o755).unwrap();
    fs.forget(made.inode, 1);
    made.inode
}

fn populate(fs: &Ext4) {
    let context = RequestContext::superuser();
    let root = fs.root();
    let block = u64::from(fs.statistics().unwrap().block_size);
    make_file(fs, root, "small", b"a few bytes");
    make_file(fs, root, "plain", &vec![7; 3 * block as usize]);
    // Many pieces: a tree of extents below the root, or indirect blocks of all levels.
    let pieces = make_file(fs, root, "pieces", b"");
    for piece in 0..(block / 12).min(400) + 20 {
        fs.write(&context, pieces, piece * 2 * block, &[piece as u8; 16]).unwrap();
    }
    let far = make_file(fs, root, "far", b"begin");
    for logical in [20, 300, 70_000] {
        fs.write(&context, far, logical * block, b"far away").unwrap();
    }
    let mode = FallocateMode::Allocate { keep_size: true };
    match fs.fallocate(&context, far, mode, 30 * block, 8 * block) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.errno, Errno::EOPNOTSUPP),
    }
    let many = make_directory(fs, root, "many");
    let first = make_file(fs, many, "first", b"");
    for number in 0..block / 8 {
        let name = format!("{number:0100}");
        let linked = fs.link(&context, first, many, name.as_bytes()).unwrap();
        fs.forget(linked.inode, 1);
    }
    let mut deep = make_directory(fs, root, "deep");
    for level in ["one", "two"] {
        deep = make_directory(fs, deep, level);
        make_file(fs, deep, "leaf", b"leaf");
    }
    let slow = [b'x'; 200];
    for (name, node) in [
        ("fast", NewNode::Symlink(b"deep/one/leaf")),
        ("slow", NewNode::Symlink(&slow)),
        ("pipe", NewNode::Fifo),
    ] {
        let made = fs.create(&context, root, name.as_bytes(), node, 0o644).unwrap();
        fs.forget(made.inode, 1);
    }
    let mode = XattrMode::Set;
    for (name, length) in [("small", 10), ("plain", 400), ("slow", 400), ("deep", 300)] {
        let found = fs.lookup(&context, root, name.as_bytes()).unwrap().inode;
        let name = if name == "slow" { &b"trusted.large"[..] } else { b"user.large" };
        fs.set_xattr(&context, found, name, &vec![b'v'; length], mode).unwrap();
        fs.forget(found, 1);
    }
    // With ea_inode the value gets an inode of its own.
    match fs.set_xattr(&context, far, b"user.huge", &[b'h'; 5000], mode) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.errno, Errno::ENOSPC),
    }
    let acl = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 6, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, 0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
    ]
    .concat();
    fs.set_xattr(&context, pieces, b"system.posix_acl_access", &acl, mode).unwrap();
}

/// Changes that are committed but not checkpointed, among them files without a name.
fn leave_open(fs: &Ext4) {
    let context = RequestContext::superuser();
    let root = fs.root();
    fs.sync().unwrap();
    for number in 0..6 {
        let name = format!("orphan {number}");
        make_file(fs, root, &name, &[1; 3000]);
        let held = fs.lookup(&context, root, name.as_bytes()).unwrap();
        fs.unlink(&context, root, name.as_bytes()).unwrap();
        if number % 2 == 0 {
            fs.sync_inode(held.inode, false).unwrap();
        }
        let late = make_directory(fs, root, &format!("late {number}"));
        make_file(fs, late, "file", &[2; 5000]);
    }
    // Freed metadata gives revoke records.
    fs.unlink(&context, root, b"pieces").unwrap();
    fs.sync().unwrap();
}

/// Reads bytes of a device.
pub fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}
