//! Inodes without names that can't be freed because the image is damaged: everything else is still
//! written, and the image can still be mounted.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext};
use std::time::Duration;
use support::image_with;

const BLOCK: usize = 4096;
const KEPT: &[u8] = b"kept";

fn image(mib: u64) -> MemoryDevice {
    image_with(mib, |options| options.block_size = Some(BLOCK as u32))
}

fn open(device: &Arc<MemoryDevice>) -> Ext4 {
    let options = MountOptions::default().commit_interval(Duration::from_secs(3600));
    Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options).unwrap()
}

/// An image with a file whose extent tree has a damaged leaf.
fn damaged() -> Arc<MemoryDevice> {
    let device = Arc::new(image(64));
    let fs = open(&device);
    let me = RequestContext::superuser();
    let before = device.snapshot();
    let file = fs.create(&me, fs.root(), b"damaged", NewNode::Regular, 0o644).unwrap().inode;
    for extent in 0..100 {
        fs.write(&me, file, 2 * extent * BLOCK as u64, &[7; BLOCK]).unwrap();
        fs.sync_inode(file, true).unwrap();
    }
    fs.close().unwrap();
    let (mut old, mut new) = ([0; BLOCK], [0; BLOCK]);
    // Extent nodes begin with this, in their place and in the log. All are damaged but the root in the
    // inode.
    for place in (0..device.size_bytes()).step_by(BLOCK) {
        before.read_at(place, &mut old).unwrap();
        device.read_at(place, &mut new).unwrap();
        if old != new && new.starts_with(&[0x0a, 0xf3]) {
            device.write_at(place + 100, &[0xff; 100]).unwrap();
        }
    }
    device
}

/// Removes the name of the damaged file while it is in use.
fn unlink(fs: &Ext4) -> InodeNumber {
    let me = RequestContext::superuser();
    let file = fs.lookup(&me, fs.root(), b"damaged").unwrap().inode;
    fs.unlink(&me, fs.root(), b"damaged").unwrap();
    file
}

fn write_kept(fs: &Ext4) {
    let me = RequestContext::superuser();
    let file = fs.create(&me, fs.root(), b"kept", NewNode::Regular, 0o644).unwrap().inode;
    fs.write(&me, file, 0, KEPT).unwrap();
    fs.forget(file, 1);
}

/// Opens the image again and expects what was written.
fn expect_kept(device: &Arc<MemoryDevice>) {
    let fs = open(device);
    let me = RequestContext::superuser();
    let file = fs.lookup(&me, fs.root(), b"kept").unwrap().inode;
    let mut found = [0; KEPT.len()];
    assert_eq!(fs.read(file, 0, &mut found).unwrap(), KEPT.len());
    assert_eq!(found, KEPT);
    fs.forget(file, 1);
    fs.close().unwrap();
}

#[test]
fn at_the_end_of_the_mount() {
    let device = damaged();
    let fs = open(&device);
    unlink(&fs);
    write_kept(&fs);
    assert!(fs.close().is_err(), "the close doesn't report the damage");
    expect_kept(&device);
}

#[test]
fn at_the_last_use() {
    let device = damaged();
    let fs = open(&device);
    let file = unlink(&fs);
    fs.forget(file, 1);
    write_kept(&fs);
    fs.close().unwrap();
    expect_kept(&device);
}

#[test]
fn after_a_crash() {
    let device = damaged();
    let fs = open(&device);
    unlink(&fs);
    write_kept(&fs);
    fs.sync().unwrap();
    expect_kept(&Arc::new(device.snapshot()));
}

/// The operation is done, whatever becomes of the file that has lost its name.
#[test]
fn when_nobody_uses_the_file() {
    let me = RequestContext::superuser();
    type Removal = fn(&Ext4, &RequestContext) -> drystone_vfs::Result<()>;
    let ways: [Removal; 2] = [
        |fs, me| fs.unlink(me, fs.root(), b"damaged"),
        |fs, me| {
            let made = fs.create(me, fs.root(), b"new", NewNode::Regular, 0o644).unwrap();
            fs.forget(made.inode, 1);
            fs.rename(me, fs.root(), b"new", fs.root(), b"damaged", RenameFlags::empty())
        },
    ];
    for remove in ways {
        let device = damaged();
        let fs = open(&device);
        remove(&fs, &me).unwrap();
        write_kept(&fs);
        fs.close().unwrap();
        expect_kept(&device);
    }
}

/// Nothing is allocated in the group any more, and removed inodes stay marked as in use.
#[test]
fn in_a_group_whose_inode_bitmap_is_damaged() {
    // Two groups.
    let device = Arc::new(image(256));
    let fs = open(&device);
    let me = RequestContext::superuser();
    let create =
        |name: &[u8]| fs.create(&me, fs.root(), name, NewNode::Regular, 0o644).unwrap().inode.0;
    let (a, b) = (create(b"a"), create(b"b"));
    fs.close().unwrap();
    let field = |place: u64| {
        let mut field = [0; 4];
        device.read_at(place, &mut field).unwrap();
        u64::from(u32::from_le_bytes(field))
    };
    // `s_inodes_per_group`; `bg_inode_bitmap` of the group's descriptor, in the block after the superblock's.
    let group = |inode: u64| (inode - 1) / field(1024 + 0x28);
    assert_eq!(group(a), group(b));
    let bitmap = field(BLOCK as u64 + 64 * group(a) + 4) * BLOCK as u64;
    device.write_at(bitmap + 20, &[0x55; 8]).unwrap();
    let fs = open(&device);
    for name in ["a", "b"] {
        fs.unlink(&me, fs.root(), name.as_bytes()).unwrap();
    }
    write_kept(&fs);
    fs.close().unwrap();
    expect_kept(&device);
}
