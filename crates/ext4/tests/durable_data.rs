//! Data for which `fdatasync` has returned is there after a crash, wherever in the file it was written.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{
    BlockDevice, DeviceOperation, EventKind, MemoryDevice, Recording, Stepped,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_ext4_format::features::Features;
use drystone_sync::{Arc, clock, thread};
use drystone_vfs::{
    Errno, FallocateMode, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes,
};
use std::time::Duration;
use support::{image, image_with};

const SIZE: u64 = 64 << 10;

fn open(device: &Arc<MemoryDevice>, delayed_allocation: bool) -> Ext4 {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ext4::open(device, MountOptions { delayed_allocation, ..MountOptions::default() }).unwrap()
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

/// A device whose operations a test can hold back and look at.
type Watched = Stepped<Recording<MemoryDevice>>;

fn watched() -> (Arc<Watched>, Ext4) {
    watched_with(false)
}

fn watched_with(delayed_allocation: bool) -> (Arc<Watched>, Ext4) {
    let device = Arc::new(Stepped::new(Recording::new(image(64))));
    let options = MountOptions {
        delayed_allocation,
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    };
    let fs = Ext4::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
    (device, fs)
}

fn count(device: &Watched, is_counted: impl Fn(&EventKind) -> bool) -> usize {
    device.inner().events().iter().filter(|event| is_counted(&event.kind)).count()
}

fn flushes(device: &Watched) -> usize {
    count(device, |kind| *kind == EventKind::Flush)
}

/// A file of one block, durable.
fn block_file(fs: &Ext4, context: &RequestContext, name: &str) -> InodeNumber {
    let file = fs.create(context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap();
    fs.write(context, file.inode, 0, &[1; 4096]).unwrap();
    fs.sync_inode(file.inode, false).unwrap();
    file.inode
}

/// Writes as the kernel writes pages of its cache: without changing times.
fn overwrite(fs: &Ext4, file: InodeNumber) {
    let cache = RequestContext { is_cache: true, ..RequestContext::superuser() };
    fs.write(&cache, file, 0, &[2; 4096]).unwrap();
}

#[test]
fn data_written_during_the_end_of_a_commit_waits_for_a_flush_of_its_own() {
    let (device, fs) = watched();
    let context = RequestContext::superuser();
    let file = block_file(&fs, &context, "f");
    let changes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(&context, file, &changes).unwrap();
    // The commit flushes its log blocks, and then writes its commit block.
    device.hold(|operation, _, _| (operation == DeviceOperation::Flush).then_some(0));
    thread::scope(|scope| {
        let first = scope.spawn(|| fs.sync_inode(file, false).unwrap());
        let flush = device.wait();
        device.hold(|operation, _, _| (operation == DeviceOperation::Write).then_some(1));
        device.release(flush.number);
        let commit_block = device.wait();
        device.hold(|_, _, _| None);
        let before = flushes(&device);
        overwrite(&fs, file);
        let second = scope.spawn(|| fs.sync_inode(file, false).unwrap());
        device.release(commit_block.number);
        second.join().unwrap();
        first.join().unwrap();
        assert_eq!(flushes(&device), before + 1, "a flush that began after the data was written");
    });
    fs.close().unwrap();
}

#[test]
fn syncs_of_overwritten_data_share_a_flush() {
    const FILES: usize = 16;
    let (device, fs) = watched();
    let context = RequestContext::superuser();
    let files: Vec<_> = (0..FILES).map(|at| block_file(&fs, &context, &format!("f{at}"))).collect();
    let before = flushes(&device);
    device.hold(|operation, _, _| (operation == DeviceOperation::Flush).then_some(0));
    thread::scope(|scope| {
        overwrite(&fs, files[0]);
        scope.spawn(|| fs.sync_inode(files[0], true).unwrap());
        let first = device.wait();
        // That flush may miss data that is written now.
        files.iter().for_each(|file| overwrite(&fs, *file));
        for file in &files {
            scope.spawn(|| fs.sync_inode(*file, true).unwrap());
        }
        device.release(first.number);
        device.release(device.wait().number);
    });
    device.release_all();
    assert_eq!(flushes(&device), before + 2);
    // Nothing is left to flush.
    fs.sync_inode(files[0], true).unwrap();
    assert_eq!(flushes(&device), before + 2);
    fs.close().unwrap();
}

/// What waits for the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncStep {
    Flush,
    CommitBlock,
}

/// Does `change` and syncs the file. Returns what of it waited for the medium, in order.
fn sync_steps(
    device: &Watched,
    fs: &Ext4,
    file: InodeNumber,
    data_only: bool,
    change: impl FnOnce(),
) -> Vec<SyncStep> {
    drop(device.inner().take_events());
    change();
    fs.sync_inode(file, data_only).unwrap();
    let events = device.inner().take_events();
    let kinds = events.into_iter().filter_map(|event| match event.kind {
        EventKind::Flush => Some(SyncStep::Flush),
        EventKind::WriteDurable { .. } => Some(SyncStep::CommitBlock),
        _ => None,
    });
    kinds.collect()
}

/// The flush that precedes a commit block covers the data as well.
#[test]
fn a_sync_costs_a_commit_or_a_flush_or_nothing() {
    const COMMIT: [SyncStep; 2] = [SyncStep::Flush, SyncStep::CommitBlock];
    const FLUSH: [SyncStep; 1] = [SyncStep::Flush];
    const NOTHING: [SyncStep; 0] = [];
    let context = RequestContext::superuser();
    for delayed_allocation in [false, true] {
        let (device, fs) = watched_with(delayed_allocation);
        let file = block_file(&fs, &context, "f");
        let cost = |data_only, change: &dyn Fn()| sync_steps(&device, &fs, file, data_only, change);
        for data_only in [false, true] {
            let append = || {
                fs.append(&context, file, &[2; 4096]).unwrap();
            };
            assert_eq!(cost(data_only, &append), COMMIT, "an append");
            assert_eq!(cost(data_only, &|| ()), NOTHING, "nothing");
        }
        let overwrite_and_set = |permissions| {
            overwrite(&fs, file);
            let changes =
                SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
            fs.set_attributes(&context, file, &changes).unwrap();
        };
        assert_eq!(cost(true, &|| overwrite_and_set(0o600)), FLUSH, "the data of an overwrite");
        assert_eq!(cost(false, &|| ()), COMMIT, "the attributes");
        assert_eq!(cost(false, &|| overwrite_and_set(0o640)), COMMIT, "both");
        assert_eq!(cost(false, &|| overwrite(&fs, file)), FLUSH, "an overwrite");
        assert_eq!(cost(false, &|| ()), NOTHING, "nothing");
        fs.close().unwrap();
    }
}

/// While a commit stands at its flush, files are appended to and synced. The next commit takes all of
/// them, and the sync of the first commit doesn't wait for it.
#[test]
fn syncs_of_appended_files_share_a_commit() {
    const FILES: usize = 16;
    /// Far longer than the syncs take.
    const LIMIT: Duration = Duration::from_secs(60);
    let context = RequestContext::superuser();
    for delayed_allocation in [false, true] {
        let (device, fs) = watched_with(delayed_allocation);
        let files: Vec<_> =
            (0..FILES).map(|at| block_file(&fs, &context, &format!("f{at}"))).collect();
        let other = block_file(&fs, &context, "other");
        let append = |file| fs.append(&context, file, &[2; 4096]).unwrap();
        let written = || {
            let is_data = |data: &[u8]| data.len() == 4096 && data.iter().all(|&byte| byte == 2);
            count(&device, |kind| matches!(kind, EventKind::Write { data, .. } if is_data(data)))
        };
        let wait_until = |is_done: &dyn Fn() -> bool| {
            let limit = clock::now() + LIMIT;
            while !is_done() && clock::now() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            is_done()
        };
        drop(device.inner().take_events());
        device.hold(|operation, _, _| (operation == DeviceOperation::Flush).then_some(0));
        thread::scope(|scope| {
            append(other);
            let first = scope.spawn(|| fs.sync_inode(other, false).unwrap());
            let first_flush = device.wait();
            for file in &files {
                append(*file);
                scope.spawn(|| fs.sync_inode(*file, false).unwrap());
            }
            // A sync that allocates does so before it asks for a commit.
            let all_written = wait_until(&|| written() == FILES + 1);
            device.release(first_flush.number);
            let second_flush = device.wait();
            let first_returned = wait_until(&|| first.is_finished());
            // Further flushes would be counted.
            device.hold(|_, _, _| None);
            device.release(second_flush.number);
            assert!(all_written, "some data waits for the flush of other data");
            assert!(first_returned, "a durable sync waits for another's flush");
        });
        device.release_all();
        assert_eq!(flushes(&device), 2);
        let commit_blocks = count(&device, |kind| matches!(kind, EventKind::WriteDurable { .. }));
        assert_eq!(commit_blocks, 2);
        fs.close().unwrap();
    }
}

/// The host reports a failed write-back once, to the next flush.
#[test]
fn a_sync_whose_flush_fails_stops_all_that_follows() {
    let (device, fs) = watched();
    let context = RequestContext::superuser();
    let file = block_file(&fs, &context, "f");
    // The lost data may be that of a commit.
    fs.create(&context, fs.root(), b"more", NewNode::Regular, 0o644).unwrap();
    overwrite(&fs, file);
    device.hold(|operation, _, _| (operation == DeviceOperation::Flush).then_some(0));
    thread::scope(|scope| {
        let sync = scope.spawn(|| fs.sync_inode(file, true));
        let flush = device.wait();
        device.hold(|_, _, _| None);
        device.fail(flush.number);
        assert!(sync.join().unwrap().is_err());
    });
    assert!(fs.sync_inode(file, true).is_err());
    assert!(fs.sync().is_err());
    let refused = fs.create(&context, fs.root(), b"late", NewNode::Regular, 0o644).unwrap_err();
    assert_eq!(refused.errno, Errno::EROFS);
    assert!(fs.close().is_err());
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
