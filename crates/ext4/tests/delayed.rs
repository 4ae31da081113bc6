//! Delayed allocation: what waits for its blocks can't be told from what has them, but by a crash,
//! and what is promised is kept.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::{Options, default_features, make};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, clock, thread};
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, write_image};
use drystone_testkit::model::MemoryFileSystem;
use drystone_testkit::operations::{Profile, Tolerance, check_seeds};
use drystone_vfs::{
    Errno, ExtentFlags, FallocateMode, FileSystem, InodeNumber, NewNode, RenameFlags,
    RequestContext, SeekFrom, SetAttributes,
};
use std::time::Duration;

const BLOCK: u64 = 4096;
/// What is waited for comes much sooner; a test that fails ends then.
const PATIENCE: Duration = Duration::from_secs(60);

fn image(mib: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(mib << 20);
    let mut options = Options::new(mib << 20, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    options.features = default_features();
    options.block_size = Some(BLOCK as u32);
    make(&device, &options, true).unwrap();
    Arc::new(device)
}

fn mount(device: &Arc<impl BlockDevice + 'static>, options: MountOptions) -> Ext4 {
    Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, options).unwrap()
}

fn open_with(device: &Arc<MemoryDevice>, delayed_allocation: bool) -> Ext4 {
    let options = MountOptions {
        delayed_allocation,
        extent_status_bytes: Some(32 * 64),
        ..MountOptions::default()
    };
    mount(device, options)
}

/// Nothing is written because time passes.
fn unhurried() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn open(device: &Arc<MemoryDevice>) -> Ext4 {
    open_with(device, true)
}

fn judge(device: &MemoryDevice, what: &str) {
    if have("e2fsck") {
        let scratch = Scratch::new("delayed").unwrap();
        let path = scratch.join("image");
        write_image(device, &path).unwrap();
        e2fsck_check(&path).unwrap().expect_clean(what);
    }
}

fn new_file(fs: &Ext4, name: &str) -> InodeNumber {
    let context = RequestContext::superuser();
    fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap().inode
}

fn read_all(fs: &Ext4, file: InodeNumber) -> Vec<u8> {
    let mut data = vec![0; fs.attributes(file).unwrap().size as usize];
    let length = fs.read(file, 0, &mut data).unwrap();
    assert_eq!(length, data.len());
    data
}

/// What the image on a device has in the file `f`.
fn content_of_f(device: &Arc<MemoryDevice>) -> Vec<u8> {
    let fs = open(device);
    let file = fs.lookup(&RequestContext::superuser(), fs.root(), b"f").unwrap().inode;
    let content = read_all(&fs, file);
    fs.close().unwrap();
    content
}

#[test]
fn random_operations_end_as_in_the_model() {
    let set = FeatureSet::by_name("modern-1k").unwrap();
    let device = MemoryDevice::new(64 << 20);
    let mut options = Options::new(64 << 20, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    options.features = default_features();
    make(&device, &options, true).unwrap();
    let count = std::env::var("DRYSTONE_OPERATIONS").map_or(800, |text| text.parse().unwrap());
    for (seed, profile) in (100..).zip(Profile::ALL) {
        check_seeds(seed..seed + 2, profile, count, Tolerance::default(), |run| {
            let device = Arc::new(device.snapshot());
            let fs = open(&device);
            run(&fs, &MemoryFileSystem::new(set.configuration()));
            fs.close().unwrap();
            judge(&device, profile.name);
        });
    }
}

#[test]
fn it_shows_as_data_that_has_no_place_yet() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let free = fs.statistics().unwrap().blocks_free;
    let file = new_file(&fs, "f");
    fs.write(&context, file, 2 * BLOCK + 100, b"here").unwrap();
    fs.write(&context, file, 3 * BLOCK, &[1; BLOCK as usize]).unwrap();
    let attributes = fs.attributes(file).unwrap();
    assert_eq!((attributes.size, attributes.sectors), (4 * BLOCK, 16));
    assert!(fs.statistics().unwrap().blocks_free < free);
    let extents = fs.extents(file, 0, 100 * BLOCK, 10).unwrap();
    assert_eq!(extents.len(), 1);
    assert_eq!((extents[0].logical, extents[0].length), (2 * BLOCK, 2 * BLOCK));
    assert!(extents[0].flags.contains(ExtentFlags::DELAYED | ExtentFlags::LAST));
    assert_eq!(fs.seek(file, SeekFrom::Data(0)).unwrap(), 2 * BLOCK);
    assert_eq!(fs.seek(file, SeekFrom::Hole(2 * BLOCK)).unwrap(), 4 * BLOCK);
    let before = read_all(&fs, file);
    assert_eq!(&before[2 * BLOCK as usize + 100..][..4], b"here");
    fs.sync_inode(file, true).unwrap();
    let extents = fs.extents(file, 0, 100 * BLOCK, 10).unwrap();
    assert_eq!((extents.len(), extents[0].length), (1, 2 * BLOCK));
    assert!(!extents[0].flags.contains(ExtentFlags::DELAYED));
    assert_eq!(fs.attributes(file).unwrap().sectors, 16);
    assert_eq!(read_all(&fs, file), before);
    fs.close().unwrap();
    judge(&device, "after it got its place");
}

#[test]
fn many_small_appends_end_in_one_extent() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let files: Vec<_> = (0..8).map(|number| new_file(&fs, &format!("f{number}"))).collect();
    for block in 0..300 {
        for &file in &files {
            fs.write(&context, file, block * BLOCK, &[block as u8; BLOCK as usize]).unwrap();
        }
    }
    fs.sync().unwrap();
    for &file in &files {
        assert_eq!(fs.extents(file, 0, u64::MAX, 10).unwrap().len(), 1);
    }
    fs.close().unwrap();
    judge(&device, "after interleaved appends");
}

/// What was synced is there after a crash; of the rest at most the end is missing, and no garbage is
/// in between.
#[test]
fn a_crash_leaves_files_that_end_where_their_data_does() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = image(64);
        let fs = open(&device);
        let context = RequestContext::superuser();
        let mut files: Vec<(InodeNumber, usize, usize)> =
            (0..6).map(|number| (new_file(&fs, &format!("f{number}")), 0, 0)).collect();
        fs.sync().unwrap();
        for step in 0..300 {
            let place = random.usize(..files.len());
            let (file, length, synced) = &mut files[place];
            match random.u32(..20) {
                0 => {
                    fs.sync_inode(*file, true).unwrap();
                    *synced = *length;
                }
                1 => {
                    let mode = FallocateMode::Allocate { keep_size: true };
                    let from = *length as u64 + random.u64(..4 * BLOCK);
                    fs.fallocate(&context, *file, mode, from, 3 * BLOCK).unwrap();
                }
                2 => {
                    let other = format!("other{step}");
                    new_file(&fs, &other);
                }
                _ => {
                    let data = vec![1 + place as u8; random.usize(1..9000)];
                    fs.write(&context, *file, *length as u64, &data).unwrap();
                    *length += data.len();
                }
            }
        }
        let crashed = Arc::new(device.snapshot());
        let fs = open(&crashed);
        for (place, (_, length, synced)) in files.iter().enumerate() {
            let name = format!("f{place}");
            let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
            let data = read_all(&fs, file);
            assert!((*synced..=*length).contains(&data.len()), "seed {seed}, {name}");
            assert!(data.iter().all(|byte| *byte == 1 + place as u8), "seed {seed}, {name}");
        }
        fs.close().unwrap();
        judge(&crashed, "after a crash");
    }
}

/// Fills an image with small writes; returns how much went in.
fn fill(fs: &Ext4, files: u64) -> u64 {
    let context = RequestContext::superuser();
    let mut written = 0;
    for number in 0..files {
        let file = new_file(fs, &format!("f{number}"));
        let mut offset = 0;
        loop {
            match fs.write(&context, file, offset, &[9; BLOCK as usize]) {
                Ok(length) => written += length as u64,
                Err(error) => {
                    assert_eq!(error, Errno::ENOSPC.into());
                    break;
                }
            }
            offset += BLOCK * (1 + number % 2);
            if number + 1 < files && offset > 40 * BLOCK {
                break;
            }
        }
    }
    written
}

#[test]
fn space_ends_where_it_ends_without() {
    let mut amounts = Vec::new();
    for delayed in [false, true] {
        let device = image(16);
        let fs = open_with(&device, delayed);
        let free = fs.statistics().unwrap().blocks_free;
        let written = fill(&fs, 20);
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_free, 0, "delayed: {delayed}");
        amounts.push(written);
        let context = RequestContext::superuser();
        for number in 0..20 {
            let name = format!("f{number}");
            let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
            let data = read_all(&fs, file);
            let blocks = data.chunks(BLOCK as usize).step_by(1 + number % 2);
            assert!(blocks.flatten().all(|byte| *byte == 9), "{name}");
            fs.forget(file, 2);
            fs.unlink(&context, fs.root(), name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_free, free, "delayed: {delayed}");
        fs.close().unwrap();
        judge(&device, "after it was full");
    }
    // The nodes of the mapping may be other ones.
    assert!(amounts[1].abs_diff(amounts[0]) <= 16 * BLOCK, "{amounts:?}");
}

#[test]
fn what_is_deleted_gives_its_claims_back() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let free = fs.statistics().unwrap().blocks_free;
    for round in 0..3 {
        let file = new_file(&fs, "f");
        fs.write(&context, file, 0, &[3; 50_000]).unwrap();
        if round == 1 {
            let changes = SetAttributes { size: Some(5000), ..SetAttributes::default() };
            fs.set_attributes(&context, file, &changes).unwrap();
        }
        if round == 2 {
            new_file(&fs, "g");
            let none = RenameFlags::empty();
            fs.rename(&context, fs.root(), b"f", fs.root(), b"g", none).unwrap();
            fs.unlink(&context, fs.root(), b"g").unwrap();
        } else {
            fs.unlink(&context, fs.root(), b"f").unwrap();
        }
        fs.forget(file, 1);
    }
    fs.sync().unwrap();
    assert_eq!(fs.statistics().unwrap().blocks_free, free);
    fs.close().unwrap();
    judge(&device, "after deletions");
}

/// Who replaces a file wants the old or the new content after a crash.
#[test]
fn a_file_that_replaces_content_is_written_first() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    for name in ["renamed", "emptied", "closed"] {
        let file = new_file(&fs, name);
        fs.write(&context, file, 0, b"old").unwrap();
        fs.forget(file, 1);
    }
    fs.sync().unwrap();
    let file = new_file(&fs, "new");
    fs.write(&context, file, 0, b"NEW").unwrap();
    let none = RenameFlags::empty();
    fs.rename(&context, fs.root(), b"new", fs.root(), b"renamed", none).unwrap();
    let emptied = fs.lookup(&context, fs.root(), b"emptied").unwrap().inode;
    let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
    fs.set_attributes(&context, emptied, &changes).unwrap();
    fs.write(&context, emptied, 0, b"NEW").unwrap();
    fs.forget(emptied, 1);
    // A user who keeps its reference says when it has closed the file.
    let closed = fs.lookup(&context, fs.root(), b"closed").unwrap().inode;
    fs.set_attributes(&context, closed, &changes).unwrap();
    fs.write(&context, closed, 0, b"NEW").unwrap();
    fs.closed(closed);
    // Something else makes the journal commit.
    let other = new_file(&fs, "other");
    fs.sync_inode(other, false).unwrap();
    let fs = open(&Arc::new(device.snapshot()));
    for name in ["renamed", "emptied", "closed"] {
        let file = fs.lookup(&context, fs.root(), name.as_bytes()).unwrap().inode;
        assert_eq!(read_all(&fs, file), b"NEW", "{name}");
    }
    fs.close().unwrap();
}

#[test]
fn threads_write_and_sync_side_by_side() {
    let device = image(128);
    let fs = open(&device);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let fs = &fs;
            scope.spawn(move || {
                let context = RequestContext::superuser();
                let mut random = fastrand::Rng::with_seed(worker);
                let file = new_file(fs, &format!("f{worker}"));
                let mut expected = vec![0_u8; 400_000];
                let mut size = 0;
                for _ in 0..800 {
                    let offset = random.usize(..390_000);
                    let data = vec![random.u8(..); random.usize(1..9000)];
                    match random.u32(..30) {
                        0 => fs.sync_inode(file, random.bool()).unwrap(),
                        1 => fs.sync().unwrap(),
                        _ => {
                            fs.write(&context, file, offset as u64, &data).unwrap();
                            let end = offset + data.len();
                            expected[offset..end].copy_from_slice(&data);
                            size = size.max(end);
                        }
                    }
                    if random.u32(..20) == 0 {
                        assert!(read_all(fs, file) == expected[..size], "worker {worker}");
                    }
                }
                assert!(read_all(fs, file) == expected[..size], "worker {worker}");
            });
        }
    });
    fs.close().unwrap();
    judge(&device, "after threads");
}

/// Waits until a condition holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = clock::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_waiting(fs: &Ext4, file: InodeNumber) -> bool {
    let extents = fs.extents(file, 0, u64::MAX, 1000).unwrap();
    extents.iter().any(|extent| extent.flags.contains(ExtentFlags::DELAYED))
}

/// Nobody calls anything any more, and yet the data gets to the device.
#[test]
fn an_idle_mount_writes_what_waits() {
    let device = image(64);
    let options =
        MountOptions { commit_interval: Duration::from_millis(30), ..MountOptions::default() };
    let fs = mount(&device, options);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"some data").unwrap();
    let is_there = || {
        let Ok(fs) = Ext4::open(Arc::new(device.snapshot()), MountOptions::default()) else {
            return false;
        };
        let found = fs.lookup(&context, fs.root(), b"f");
        found.is_ok_and(|file| read_all(&fs, file.inode) == b"some data")
    };
    wait_for("the data is on the device", is_there);
    assert!(!is_waiting(&fs, file));
    fs.close().unwrap();
}

/// Much data doesn't wait for a time to pass, nor in more memory than it may.
#[test]
fn what_waits_is_bounded() {
    let device = image(128);
    let fs = mount(&device, MountOptions { memory_budget_bytes: 8 << 20, ..unhurried() });
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    for block in 0..2000 {
        fs.write(&context, file, block * BLOCK, &[block as u8; BLOCK as usize]).unwrap();
        let waiting = fs.memory_use().waiting_bytes;
        assert!(waiting <= 1 << 20, "{waiting} bytes wait");
    }
    wait_for("half of it is written", || fs.memory_use().waiting_bytes <= 1 << 19);
    let data = read_all(&fs, file);
    assert!(data.chunks(BLOCK as usize).zip(0..).all(|(piece, block)| piece[0] == block as u8));
    fs.close().unwrap();
    judge(&device, "after much data");
}

/// A device that fails for a time: syncs tell, nothing else stops, and the data is written later.
#[test]
fn what_the_device_refuses_is_tried_again() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, unhurried());
    let context = RequestContext::superuser();
    let (file, other) = (new_file(&fs, "f"), new_file(&fs, "g"));
    fs.sync().unwrap();
    let free = fs.statistics().unwrap().blocks_free;
    fs.write(&context, file, 0, &[7; 3 * BLOCK as usize]).unwrap();
    device.inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError));
    for _ in 0..2 {
        assert_eq!(fs.sync_inode(file, true).unwrap_err().errno, Errno::EIO);
    }
    device.repair();
    assert!(read_all(&fs, file).iter().all(|byte| *byte == 7));
    fs.write(&context, other, 0, b"goes on").unwrap();
    fs.sync_inode(file, true).unwrap();
    assert_eq!(fs.extents(file, 0, u64::MAX, 10).unwrap().len(), 1);
    fs.sync().unwrap();
    assert_eq!(fs.statistics().unwrap().blocks_free, free - 4);
    fs.close().unwrap();
    assert!(content_of_f(&memory).iter().all(|byte| *byte == 7));
    judge(&memory, "after a device that failed");
}

/// Data that is cut off before it was written is never written, and its claims come back.
#[test]
fn what_is_cut_off_needs_no_blocks() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.sync().unwrap();
    let free = fs.statistics().unwrap().blocks_free;
    for _ in 0..3 {
        fs.write(&context, file, 0, &[5; 50_000]).unwrap();
        let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
        fs.set_attributes(&context, file, &changes).unwrap();
        assert_eq!(fs.statistics().unwrap().blocks_free, free);
        assert_eq!(fs.attributes(file).unwrap().sectors, 0);
    }
    fs.write(&context, file, 10_000, b"new").unwrap();
    let mut expected = vec![0; 10_000];
    expected.extend_from_slice(b"new");
    assert_eq!(read_all(&fs, file), expected);
    fs.sync().unwrap();
    assert_eq!(read_all(&fs, file), expected);
    fs.close().unwrap();
    judge(&device, "after cuts");
}

/// What was written before a freeze is in the frozen image.
#[test]
fn nothing_waits_in_a_frozen_image() {
    let device = image(64);
    let fs = open(&device);
    let context = RequestContext::superuser();
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"frozen").unwrap();
    fs.freeze().unwrap();
    let frozen = Arc::new(device.snapshot());
    fs.thaw().unwrap();
    assert_eq!(content_of_f(&frozen), b"frozen");
    judge(&frozen, "frozen");
    fs.close().unwrap();
}

/// Near the last block, what waits keeps nobody from what is free.
#[test]
fn others_find_the_space_that_was_claimed_and_is_not_needed() {
    let device = image(16);
    let fs = open(&device);
    let context = RequestContext::superuser();
    // Many files that each claim blocks for nodes which they will not need.
    let files: Vec<_> = (0..60).map(|number| new_file(&fs, &format!("f{number}"))).collect();
    let hog = new_file(&fs, "hog");
    let leave = |blocks: u64| {
        let free = fs.statistics().unwrap().blocks_free;
        let mode = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&context, hog, mode, 0, (free - blocks) * BLOCK).unwrap();
    };
    leave(600);
    for &file in &files {
        fs.write(&context, file, 0, &[1; BLOCK as usize]).unwrap();
    }
    assert!(fs.memory_use().waiting_bytes > 0);
    let mut made = 0;
    let refused = loop {
        match fs.create(
            &context,
            fs.root(),
            format!("d{made}").as_bytes(),
            NewNode::Directory,
            0o755,
        ) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno, Errno::ENOSPC);
    assert!(fs.statistics().unwrap().blocks_free <= 4, "{made} directories");
    fs.sync().unwrap();
    for &file in &files {
        assert!(read_all(&fs, file).iter().all(|byte| *byte == 1));
    }
    fs.close().unwrap();
    judge(&device, "after it was full");
}

/// What can never be written is not taken.
#[test]
fn nothing_waits_when_the_journal_has_stopped() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, MountOptions::default());
    let context = RequestContext { is_cache: true, ..RequestContext::superuser() };
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"in time").unwrap();
    device.inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError));
    new_file(&fs, "g");
    assert!(fs.sync().is_err());
    device.repair();
    for offset in [0, BLOCK] {
        assert_eq!(fs.write(&context, file, offset, b"late").unwrap_err().errno, Errno::EROFS);
    }
    assert!(fs.sync().is_err());
    assert!(fs.close().is_err());
    drop(fs);
    let fs = open(&memory);
    fs.close().unwrap();
    judge(&memory, "after the journal had stopped");
}

/// When only the first of what waits could be written, the file on the device ends there.
#[test]
fn a_file_half_written_ends_where_its_data_does() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, unhurried());
    let context = RequestContext::superuser();
    let (file, other) = (new_file(&fs, "f"), new_file(&fs, "g"));
    fs.sync().unwrap();
    fs.write(&context, file, 0, &[1; BLOCK as usize]).unwrap();
    fs.write(&context, file, 5 * BLOCK, &[2; BLOCK as usize]).unwrap();
    let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
    device.inject(fault.when(Trigger::Nth(1)));
    assert_eq!(fs.sync_inode(file, true).unwrap_err().errno, Errno::EIO);
    device.repair();
    let changes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(&context, other, &changes).unwrap();
    fs.sync_inode(other, false).unwrap();
    let crashed = Arc::new(memory.snapshot());
    assert_eq!(content_of_f(&crashed), [1; BLOCK as usize]);
    judge(&crashed, "a file half written");
    fs.sync_inode(file, true).unwrap();
    assert_eq!(read_all(&fs, file).len() as u64, 6 * BLOCK);
    fs.close().unwrap();
    judge(&memory, "a file written at last");
}

/// Freezing comes to an end however much is written meanwhile.
#[test]
fn a_busy_mount_can_be_frozen() {
    let device = image(128);
    let fs = open(&device);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (fs, is_over) = (&fs, &is_over);
            scope.spawn(move || {
                let context = RequestContext::superuser();
                let file = new_file(fs, &format!("f{worker}"));
                for step in (0..4000).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    fs.write(&context, file, step * 1000, &[1; 1000]).unwrap();
                }
            });
        }
        for _ in 0..5 {
            fs.freeze().unwrap();
            fs.thaw().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    judge(&device, "after freezes");
}
