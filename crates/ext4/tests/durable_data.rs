//! Data for which `fdatasync` has returned is there after a crash, wherever in the file it was written.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::features::Features;
use drystone_sync::Arc;
use drystone_vfs::{
    FallocateMode, FileFlags, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes,
};
use std::time::Duration;
use support::{image, image_with};

const SIZE: u64 = 64 << 10;

fn open(device: &Arc<MemoryDevice>, delayed_allocation: bool) -> Ext4 {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ext4::open(device, MountOptions::default().delayed_allocation(delayed_allocation)).unwrap()
}

/// Prepares a file, syncs the image, writes to the file and syncs its data. Then the machine crashes.
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
        resize(fs, context, file, SIZE);
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

/// SQLite syncs the data of a directory after it has removed a journal.
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
        let options = MountOptions::default()
            .memory_budget_bytes(0)
            .commit_interval(Duration::from_secs(3600));
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

/// Makes a file of 8 KiB of sevens durable, truncates it to `size`, changes it and crashes. Returns the
/// content that is left.
fn cut_changed_and_crashed(
    device: MemoryDevice,
    size: u64,
    change: impl Fn(&Ext4, &RequestContext, InodeNumber),
) -> Vec<u8> {
    let device = Arc::new(device);
    let fs = open(&device, false);
    let context = RequestContext::superuser();
    let file = fs.create(&context, fs.root(), b"f", NewNode::Regular, 0o644).unwrap().inode;
    fs.write(&context, file, 0, &[7; 8192]).unwrap();
    fs.sync().unwrap();
    resize(&fs, &context, file, size);
    change(&fs, &context, file);
    let crashed = open(&Arc::new(device.snapshot()), false);
    let file = crashed.lookup(&context, crashed.root(), b"f").unwrap().inode;
    let mut found = vec![0; 8192];
    let length = crashed.read(file, 0, &mut found).unwrap();
    found.truncate(length);
    crashed.close().unwrap();
    found
}

/// After a truncation that isn't durable yet, `change` clears the bytes up to `end`. Then the machine
/// crashes, and the rest of what was cut off is back.
fn what_was_cut_comes_back(end: usize, change: impl Fn(&Ext4, &RequestContext, InodeNumber)) {
    let mut found = cut_changed_and_crashed(image(64), 100, change);
    assert_eq!(found.len(), 8192);
    found[100..end].fill(7);
    assert_eq!(found.iter().position(|&byte| byte != 7), None);
}

fn resize(fs: &Ext4, context: &RequestContext, file: InodeNumber, size: u64) {
    let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
    fs.set_attributes(context, file, &changes).unwrap();
}

#[test]
fn ranges_behind_the_end_leave_what_a_crash_may_bring_back() {
    for mode in [FallocateMode::PunchHole, FallocateMode::ZeroRange { keep_size: true }] {
        what_was_cut_comes_back(100, |fs, context, file| {
            fs.fallocate(context, file, mode, 500, 6000).unwrap();
        });
    }
}

#[test]
fn growth_clears_only_what_it_grows_over() {
    what_was_cut_comes_back(300, |fs, context, file| resize(fs, context, file, 300));
    what_was_cut_comes_back(300, |fs, context, file| {
        fs.write(context, file, 300, &[7; 20]).unwrap();
    });
    what_was_cut_comes_back(300, |fs, context, file| {
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(context, file, mode, 200, 100).unwrap();
    });
}

/// The tail of the last block moves with the block, so it has to be cleared.
#[test]
fn an_insertion_makes_the_cut_before_it_durable() {
    let found = cut_changed_and_crashed(image(64), 5000, |fs, context, file| {
        fs.fallocate(context, file, FallocateMode::InsertRange, 0, 4096).unwrap();
    });
    assert_eq!(found.len(), 5000);
    assert!(found == [7; 5000]);
}

/// Unmapped blocks of a cluster that the file keeps are blocks of the old file until a commit.
#[test]
fn what_was_cut_from_a_cluster_is_not_reused_before_a_commit() {
    let clustered = || {
        image_with(64, |options| {
            options.features = options.features.apply(&Features::parse("bigalloc").unwrap());
            options.block_size = Some(1024);
            options.cluster_size = Some(16 << 10);
        })
    };
    let found = cut_changed_and_crashed(clustered(), 2048, |fs, context, file| {
        fs.write(context, file, 2048, &[9; 4096]).unwrap();
    });
    assert!(found == [7; 2048], "{} bytes", found.len());
    let found = cut_changed_and_crashed(clustered(), 8192, |fs, context, file| {
        fs.fallocate(context, file, FallocateMode::PunchHole, 2048, 4096).unwrap();
        fs.write(context, file, 2048, &[9; 4096]).unwrap();
    });
    assert!(found == [&[7; 2048][..], &[0; 4096], &[7; 2048]].concat(), "{} bytes", found.len());
}

/// Linux would journal the data of such a file. Here it is written in place, as that of all files.
#[test]
fn a_cluster_of_a_file_whose_data_linux_journals_is_not_reused_before_a_commit() {
    const BLOCK: u64 = 4096;
    let device = image_with(64, |options| {
        let features = Features::parse("bigalloc,^metadata_csum,^metadata_csum_seed").unwrap();
        options.features = options.features.apply(&features);
        options.block_size = Some(BLOCK as u32);
    });
    // `bg_inode_table_lo` of the first group, and `i_flags` of the root, which new files inherit.
    let mut field = [0; 4];
    device.read_at(BLOCK + 8, &mut field).unwrap();
    let flags = u64::from(u32::from_le_bytes(field)) * BLOCK + 256 + 0x20;
    device.read_at(flags, &mut field).unwrap();
    device.write_at(flags, &(u32::from_le_bytes(field) | 0x4000).to_le_bytes()).unwrap();
    let found = cut_changed_and_crashed(device, BLOCK, |fs, context, file| {
        let inherited = fs.attributes(file).unwrap().flags;
        assert!(inherited.contains(FileFlags::JOURNAL_DATA));
        fs.write(context, file, BLOCK, &[9; BLOCK as usize]).unwrap();
    });
    assert!(found == [7; BLOCK as usize], "{} bytes", found.len());
}
