//! What a sync waits for: the flushes and commits that it needs, which it shares with others.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{
    BlockDevice, DeviceOperation, EventKind, MemoryDevice, Recording, Stepped,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::{Arc, clock, thread};
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes};
use std::time::Duration;
use support::image;

/// A device whose operations a test can hold back and look at.
type Watched = Stepped<Recording<MemoryDevice>>;

fn watched() -> (Arc<Watched>, Ext4) {
    watched_with(false)
}

fn watched_with(delayed_allocation: bool) -> (Arc<Watched>, Ext4) {
    let device = Arc::new(Stepped::new(Recording::new(image(64))));
    let options = MountOptions::default()
        .delayed_allocation(delayed_allocation)
        .commit_interval(Duration::from_secs(3600));
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
