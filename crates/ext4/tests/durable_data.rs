//! What `fdatasync` returned for is there after a crash, wherever in the file it was written.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::Arc;
use drystone_vfs::{
    FallocateMode, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes,
};
use std::time::Duration;
use support::image;

const SIZE: u64 = 64 << 10;

fn open(device: &Arc<MemoryDevice>, delayed_allocation: bool) -> Ext4 {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ext4::open(device, MountOptions { delayed_allocation, ..MountOptions::default() }).unwrap()
}

/// Prepares a file, makes that durable, writes into it and syncs its data; then the machine crashes.
fn written_data_survives(prepare: impl Fn(&Ext4, &RequestContext, InodeNumber)) {
    for delayed_allocation in [false, true] {
        written_data_survives_with(&prepare, delayed_allocation);
    }
}

fn written_data_survives_with(
    prepare: impl Fn(&Ext4, &RequestContext, InodeNumber),
    delayed_allocation: bool,
) {
    let device = Arc::new(image(64));
    let fs = open(&device, delayed_allocation);
    let context = RequestContext::superuser();
    let file = fs.create(&context, fs.root(), b"f", NewNode::Regular, 0o644).unwrap().inode;
    prepare(&fs, &context, file);
    fs.sync().unwrap();
    fs.write(&context, file, 20_000, b"durable").unwrap();
    fs.sync_inode(file, true).unwrap();
    let crashed = Arc::new(device.snapshot());
    let fs = open(&crashed, false);
    let file = fs.lookup(&context, fs.root(), b"f").unwrap().inode;
    let mut found = [0; 7];
    fs.read(file, 20_000, &mut found).unwrap();
    assert_eq!(&found, b"durable");
    fs.close().unwrap();
}

#[test]
fn in_a_hole() {
    written_data_survives(|fs, context, file| {
        let changes = SetAttributes { size: Some(SIZE), ..SetAttributes::default() };
        fs.set_attributes(context, file, &changes).unwrap();
    });
}

#[test]
fn in_space_that_was_allocated_before() {
    written_data_survives(|fs, context, file| {
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(context, file, mode, 0, SIZE).unwrap();
    });
}

#[test]
fn behind_the_end() {
    written_data_survives(|_, _, _| {});
}

/// SQLite syncs a directory so when it has removed a journal.
#[test]
fn names_are_the_data_of_a_directory() {
    let device = Arc::new(image(64));
    let fs = open(&device, false);
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), b"removed", NewNode::Regular, 0o644).unwrap();
    fs.sync().unwrap();
    fs.unlink(&context, fs.root(), b"removed").unwrap();
    fs.create(&context, fs.root(), b"added", NewNode::Regular, 0o644).unwrap();
    fs.sync_inode(fs.root(), true).unwrap();
    let fs = open(&Arc::new(device.snapshot()), false);
    assert!(fs.lookup(&context, fs.root(), b"removed").is_err());
    assert!(fs.lookup(&context, fs.root(), b"added").is_ok());
    fs.close().unwrap();
}

/// A file is written and closed, and leaves memory; then another program syncs it.
#[test]
fn an_inode_that_has_left_memory_is_synced() {
    for data_only in [false, true] {
        let device = Arc::new(image(64));
        let options = MountOptions {
            memory_budget_bytes: 0,
            commit_interval: Duration::from_secs(3600),
            ..MountOptions::default()
        };
        let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
        let context = RequestContext::superuser();
        let create = |name: &str| {
            let made = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
            made.unwrap().inode
        };
        let file = create("f");
        fs.write(&context, file, 0, b"durable").unwrap();
        fs.forget(file, 1);
        for number in 0..2000 {
            fs.forget(create(&number.to_string()), 1);
        }
        assert!(fs.memory_use().inodes < 2000);
        let file = fs.lookup(&context, fs.root(), b"f").unwrap().inode;
        fs.sync_inode(file, data_only).unwrap();
        let crashed = open(&Arc::new(device.snapshot()), false);
        let file = crashed.lookup(&context, crashed.root(), b"f").unwrap().inode;
        let mut found = [0; 7];
        crashed.read(file, 0, &mut found).unwrap();
        assert_eq!(&found, b"durable");
        crashed.close().unwrap();
    }
}
