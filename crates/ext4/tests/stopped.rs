//! Nothing may be written after an error has stopped the journal, or while the image is frozen.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Stepped,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes};
use std::time::Duration;
use support::{image_with, judge};

const BLOCK: usize = 4096;
/// Time in which an operation would go on if nothing held it back.
const MEANWHILE: Duration = Duration::from_millis(100);

fn image() -> MemoryDevice {
    image_with(64, |options| options.block_size = Some(BLOCK as u32))
}

fn options() -> MountOptions {
    MountOptions::default().delayed_allocation(false).commit_interval(Duration::from_secs(3600))
}

fn file(fs: &Ext4, name: &str) -> InodeNumber {
    let me = RequestContext::superuser();
    fs.create(&me, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap().inode
}

/// The context with which the kernel writes pages of its cache: without changing times.
fn cache() -> RequestContext {
    RequestContext { is_cache: true, ..RequestContext::superuser() }
}

/// The offset of a block of these bytes on the device.
fn place_of(device: &dyn BlockDevice, byte: u8) -> u64 {
    let mut block = [0; BLOCK];
    let places = (0..device.size_bytes()).step_by(BLOCK);
    let mut found = places.filter(|place| {
        device.read_at(*place, &mut block).unwrap();
        block.iter().all(|found| *found == byte)
    });
    found.next().unwrap()
}

/// Another host may use the image by then, with another file in those blocks.
#[test]
fn nothing_is_overwritten_after_the_journal_has_stopped() {
    let device = Arc::new(Faulty::new(image()));
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let (old, other) = (file(&fs, "old"), file(&fs, "other"));
    fs.write(&cache(), old, 0, &[7; BLOCK]).unwrap();
    fs.sync().unwrap();
    let place = place_of(&device, 7);
    device.inject(Fault::of(DeviceOperation::Flush, Effect::InputOutputError));
    fs.write(&cache(), other, 0, &[8; BLOCK]).unwrap();
    assert!(fs.sync().is_err());
    device.repair();
    let mut block = [0; BLOCK];
    for context in [cache(), RequestContext::superuser()] {
        assert_eq!(fs.write(&context, old, 0, &[9; BLOCK]).unwrap_err().errno, Errno::EROFS);
        device.read_at(place, &mut block).unwrap();
        assert_eq!(block, [7; BLOCK]);
    }
}

/// Data that no sync has written can still be read, and be rescued.
#[test]
fn a_truncation_that_is_refused_keeps_data_that_waits() {
    let device = Arc::new(Faulty::new(image()));
    let fs = Ext4::open(device.clone(), options().delayed_allocation(true)).unwrap();
    let me = RequestContext::superuser();
    let (waiting, other) = (file(&fs, "waiting"), file(&fs, "other"));
    device.inject(Fault::of(DeviceOperation::Flush, Effect::InputOutputError));
    fs.write(&me, waiting, 0, &[7; 2 * BLOCK]).unwrap();
    assert!(fs.sync_inode(other, false).is_err());
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(&me, waiting, &empty).unwrap_err().errno, Errno::EROFS);
    let mut found = [0; 2 * BLOCK];
    assert_eq!(fs.read(waiting, 0, &mut found).unwrap(), found.len());
    assert_eq!(found, [7; 2 * BLOCK]);
}

#[test]
fn a_freeze_waits_for_writes_in_place_and_holds_back_later_ones() {
    let device = Arc::new(Stepped::new(image()));
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let old = file(&fs, "old");
    fs.write(&cache(), old, 0, &[7; 2 * BLOCK]).unwrap();
    fs.sync().unwrap();
    let place = place_of(&device, 7);
    device.hold(move |operation, offset, _| {
        (operation == DeviceOperation::Write && offset == place).then_some(0)
    });
    thread::scope(|scope| {
        let first = scope.spawn(|| fs.write(&cache(), old, 0, &[8; BLOCK]));
        let held = device.wait();
        let freeze = scope.spawn(|| fs.freeze());
        thread::sleep(MEANWHILE);
        assert!(!freeze.is_finished(), "frozen while a write is under way");
        device.release(held.number);
        freeze.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
        device.release_all();
        let frozen = device.inner().snapshot();
        let second = scope.spawn(|| fs.write(&cache(), old, BLOCK as u64, &[9; BLOCK]));
        thread::sleep(MEANWHILE);
        assert!(!second.is_finished());
        assert!(same(&frozen, device.inner()));
        fs.thaw().unwrap();
        second.join().unwrap().unwrap();
    });
    fs.close().unwrap();
    judge(device.inner(), "after a thaw");
}

fn same(a: &MemoryDevice, b: &MemoryDevice) -> bool {
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    (0..a.size_bytes()).step_by(1 << 20).all(|place| {
        a.read_at(place, &mut left).unwrap();
        b.read_at(place, &mut right).unwrap();
        left == right
    })
}

/// The truncation of many extents takes several handles.
#[test]
fn a_cut_does_not_go_on_while_frozen() {
    // On a busy machine a cut may end before the freeze begins.
    const TRIES: usize = 10;
    assert!((0..TRIES).any(|_| is_cut_held_by_a_freeze()), "every cut ended before the freeze");
}

/// Freezes while a file is cut. False if the cut ended before.
fn is_cut_held_by_a_freeze() -> bool {
    const EXTENTS: u64 = 2000;
    let device = Arc::new(Stepped::new(image()));
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let large = file(&fs, "large");
    for extent in 0..EXTENTS {
        // Holes between the extents keep them from becoming one.
        fs.write(&cache(), large, 2 * extent * BLOCK as u64, &[7; BLOCK]).unwrap();
    }
    fs.close().unwrap();
    // Nothing of the tree is in memory now: the cut reads leaf after leaf.
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let me = RequestContext::superuser();
    let large = fs.lookup(&me, fs.root(), b"large").unwrap().inode;
    let size = fs.attributes(large).unwrap().size;
    assert_eq!(size, (2 * EXTENTS - 1) * BLOCK as u64);
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    device.hold(|operation, _, length| {
        (operation == DeviceOperation::Read && length == BLOCK as u64).then_some(0)
    });
    let is_held = thread::scope(|scope| {
        let cut = scope.spawn(|| fs.set_attributes(&me, large, &empty));
        // The cut has begun once the new size is visible.
        while fs.attributes(large).unwrap().size == size {
            for waiting in device.waiting() {
                device.release(waiting.number);
            }
            thread::yield_now();
        }
        let freeze = scope.spawn(|| fs.freeze());
        // The freeze gets in between two handles of the cut, each of which waits for a leaf.
        while !freeze.is_finished() {
            thread::sleep(MEANWHILE / 2);
            for waiting in device.waiting() {
                device.release(waiting.number);
            }
        }
        device.release_all();
        freeze.join().unwrap().unwrap();
        let is_held = !cut.is_finished();
        let frozen = device.inner().snapshot();
        thread::sleep(MEANWHILE);
        assert_eq!(!cut.is_finished(), is_held, "the cut went on");
        assert!(same(&frozen, device.inner()));
        fs.thaw().unwrap();
        cut.join().unwrap().unwrap();
        is_held
    });
    fs.close().unwrap();
    judge(device.inner(), "after a cut");
    is_held
}

/// Otherwise a thread that freezes, reads and thaws would wait for itself.
#[test]
fn damage_that_is_found_while_frozen_is_told_at_once_and_noted_later() {
    let device = Arc::new(image());
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let me = RequestContext::superuser();
    let directory = fs.create(&me, fs.root(), b"d", NewNode::Directory, 0o755).unwrap().inode;
    for number in 0..200 {
        let name = format!("a name that is rather long, number {number}");
        let made = fs.create(&me, directory, name.as_bytes(), NewNode::Regular, 0o644).unwrap();
        fs.forget(made.inode, 1);
    }
    let block = fs.extents(directory, 0, u64::MAX, 1).unwrap()[0].physical;
    fs.close().unwrap();
    device.write_at(block + 4, &[0xff; 64]).unwrap();
    let fs = Ext4::open(device.clone(), options()).unwrap();
    let directory = fs.lookup(&me, fs.root(), b"d").unwrap().inode;
    fs.freeze().unwrap();
    assert_eq!(fs.lookup(&me, directory, b"x").unwrap_err().errno, Errno::EUCLEAN);
    fs.thaw().unwrap();
    let has_errors = |device: &MemoryDevice| {
        let mut state = [0; 2];
        // `s_state`, in the superblock at byte 1024.
        device.read_at(1024 + 0x3a, &mut state).unwrap();
        u16::from_le_bytes(state) & 2 != 0
    };
    assert!(!has_errors(&device));
    assert_eq!(fs.lookup(&me, directory, b"x").unwrap_err().errno, Errno::EUCLEAN);
    fs.close().unwrap();
    assert!(has_errors(&device));
}
