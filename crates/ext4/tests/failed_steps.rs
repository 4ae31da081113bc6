//! Operations of several handles, of which a later one fails or has to wait.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Stepped,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FallocateMode, FileSystem, InodeNumber, NewNode};
use drystone_vfs::{OpenFlags, RequestContext, SetAttributes};
use std::time::Duration;
use support::{image_with, judge};

const BLOCK: usize = 4096;
/// Holes between the extents keep them from becoming one. They need six leaves.
const EXTENTS: u64 = 2000;

fn open(device: Arc<dyn BlockDevice>) -> Ext4 {
    let options = MountOptions::default().commit_interval(Duration::from_secs(3600));
    Ext4::open(device, options.delayed_allocation(false)).unwrap()
}

/// An image with a file of many extents, of which nothing is in memory.
fn image() -> MemoryDevice {
    let device = Arc::new(image_with(64, |options| options.block_size = Some(BLOCK as u32)));
    let fs = open(device.clone());
    let me = RequestContext::superuser();
    let made = fs.create(&me, fs.root(), b"large", NewNode::Regular, 0o644).unwrap();
    for extent in 0..EXTENTS {
        let offset = 2 * extent * BLOCK as u64;
        fs.write(&me, made.inode, offset, &[extent as u8 | 1; BLOCK]).unwrap();
    }
    fs.close().unwrap();
    device.snapshot()
}

fn large(fs: &Ext4) -> InodeNumber {
    fs.lookup(&RequestContext::superuser(), fs.root(), b"large").unwrap().inode
}

fn set_size(fs: &Ext4, file: InodeNumber, size: u64) -> Result<(), Errno> {
    let size = SetAttributes { size: Some(size), ..SetAttributes::default() };
    let set = fs.set_attributes(&RequestContext::superuser(), file, &size);
    set.map(|_| ()).map_err(|error| error.errno)
}

fn content(fs: &Ext4, file: InodeNumber) -> Vec<u8> {
    let mut content = vec![0; fs.attributes(file).unwrap().size as usize];
    let length = content.len();
    assert_eq!(fs.read(file, 0, &mut content).unwrap(), length);
    content
}

/// Makes reads of one leaf fail, in its place and in the log: the `number`th, or the `number`th last.
fn spoil_leaf(device: &Faulty<MemoryDevice>, number: usize, is_from_end: bool) {
    let mut block = [0; BLOCK];
    let mut leaves = Vec::new();
    for place in (0..device.size_bytes()).step_by(BLOCK) {
        device.read_at(place, &mut block).unwrap();
        let field = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        // Magic number, and depth.
        if field(0) == 0xf30a && field(6) == 0 {
            leaves.push((field(12), place));
        }
    }
    leaves.sort_unstable();
    let mut starts: Vec<_> = leaves.iter().map(|leaf| leaf.0).collect();
    starts.dedup();
    let number = if is_from_end { starts.len() - 1 - number } else { number };
    for (_, place) in leaves.iter().filter(|leaf| leaf.0 == starts[number]) {
        let fault = Fault::of(DeviceOperation::Read, Effect::InputOutputError);
        device.inject(fault.in_range(*place..place + BLOCK as u64));
    }
}

/// A file whose truncation to nothing fails after its first steps.
fn cut_in_part() -> (Arc<Faulty<MemoryDevice>>, Ext4, InodeNumber) {
    let device = Arc::new(Faulty::new(image()));
    // The last step but one joins the first leaf with the root.
    spoil_leaf(&device, 2, false);
    let fs = open(device.clone());
    let file = large(&fs);
    assert_eq!(set_size(&fs, file, 0), Err(Errno::EIO));
    assert_eq!(fs.attributes(file).unwrap().size, 0);
    (device, fs, file)
}

/// Otherwise what was cut off could be read again.
#[test]
fn a_file_does_not_grow_over_what_a_failed_cut_has_left() {
    let me = RequestContext::superuser();
    let end = 2 * EXTENTS * BLOCK as u64;
    type Growth = fn(&Ext4, &RequestContext, InodeNumber, u64) -> Result<(), Errno>;
    let ways: [Growth; 4] = [
        |fs, _, file, end| set_size(fs, file, end),
        |fs, me, file, end| {
            fs.write(me, file, end - 1, &[0]).map(|_| ()).map_err(|error| error.errno)
        },
        |fs, me, file, end| {
            let mode = FallocateMode::Allocate { keep_size: false };
            fs.fallocate(me, file, mode, 0, end).map_err(|error| error.errno)
        },
        |fs, me, file, end| {
            let mode = FallocateMode::ZeroRange { keep_size: false };
            fs.fallocate(me, file, mode, end - 1, 1).map_err(|error| error.errno)
        },
    ];
    for is_linked in [true, false] {
        for grow in ways {
            let (device, fs, file) = cut_in_part();
            if !is_linked {
                fs.unlink(&me, fs.root(), b"large").unwrap();
            }
            assert_eq!(grow(&fs, &me, file, end), Err(Errno::EIO), "the old blocks are there");
            assert_eq!(fs.attributes(file).unwrap().size, 0);
            device.repair();
            grow(&fs, &me, file, end).unwrap();
            assert!(content(&fs, file) == vec![0; end as usize], "old content came back");
            fs.close().unwrap();
            judge(device.inner(), "after a cut that was finished late");
        }
    }
}

#[test]
fn the_end_of_the_mount_finishes_a_failed_cut() {
    let (device, fs, file) = cut_in_part();
    // Nobody uses the file any more.
    fs.forget(file, 1);
    device.repair();
    fs.close().unwrap();
    judge(device.inner(), "after a cut that was finished late");
    let fs = open(device.clone());
    let file = large(&fs);
    assert!(fs.extents(file, 0, u64::MAX, 1).unwrap().is_empty());
    assert_eq!(fs.attributes(file).unwrap().sectors, 0);
    fs.close().unwrap();
}

/// A part of the file would have moved.
#[test]
fn a_range_moves_whole_or_not_at_all() {
    let me = RequestContext::superuser();
    // The one moves the first leaves first, the other the last ones.
    for (mode, is_from_end) in
        [(FallocateMode::CollapseRange, true), (FallocateMode::InsertRange, false)]
    {
        let device = Arc::new(Faulty::new(image()));
        let fs = open(device.clone());
        let before = content(&fs, large(&fs));
        fs.close().unwrap();
        spoil_leaf(&device, 1, is_from_end);
        let fs = open(device.clone());
        let file = large(&fs);
        let moved = fs.fallocate(&me, file, mode, BLOCK as u64, 2 * BLOCK as u64);
        assert_eq!(moved.unwrap_err().errno, Errno::EIO);
        device.repair();
        assert!(content(&fs, file) == before, "a part has moved: {mode:?}");
        fs.fallocate(&me, file, mode, BLOCK as u64, 2 * BLOCK as u64).unwrap();
        fs.close().unwrap();
        judge(device.inner(), "after a range has moved");
    }
}

/// The truncation would fail half way.
#[test]
fn a_mount_is_not_made_read_only_between_two_steps_of_a_cut() {
    let device = Arc::new(Stepped::new(image()));
    let fs = open(device.clone());
    let me = RequestContext::superuser();
    let file = large(&fs);
    fs.open(&me, file, OpenFlags::WRITE).unwrap();
    device.hold(|operation, _, length| {
        (operation == DeviceOperation::Read && length == BLOCK as u64).then_some(0)
    });
    thread::scope(|scope| {
        let cut = scope.spawn(|| set_size(&fs, file, 0));
        // The cut has begun once the new size is visible.
        while fs.attributes(file).unwrap().size > 0 {
            for waiting in device.waiting() {
                device.release(waiting.number);
            }
            thread::yield_now();
        }
        let change = scope.spawn(|| fs.make_read_only());
        while !change.is_finished() {
            thread::sleep(Duration::from_millis(20));
            for waiting in device.waiting() {
                device.release(waiting.number);
            }
        }
        device.release_all();
        change.join().unwrap().unwrap();
        assert_eq!(cut.join().unwrap(), Ok(()));
    });
    judge(device.inner(), "read-only");
    fs.close().unwrap();
}

/// The edges of a hole may be zeroed only once the extent is split, for which there may be no block.
#[test]
fn a_hole_that_finds_no_room_changes_no_byte() {
    const SMALL: u64 = 1024;
    let device = Arc::new(image_with(8, |options| options.block_size = Some(SMALL as u32)));
    let fs = open(device.clone());
    let me = RequestContext::superuser();
    let new = |name: &str| {
        fs.create(&me, fs.root(), name.as_bytes(), NewNode::Regular, 0o644).unwrap().inode
    };
    let give = |file, blocks| {
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(&me, file, mode, 0, blocks * SMALL).map_err(|error| error.errno)
    };
    // The root has room for four extents.
    let file = new("file");
    fs.write(&me, file, 0, &[7; 100 * SMALL as usize]).unwrap();
    for block in [110, 120, 130] {
        fs.write(&me, file, block * SMALL, &[7; SMALL as usize]).unwrap();
    }
    // Some blocks are kept for nodes. Each of these files takes one, since it gets more extents.
    let small: Vec<_> = (0..300).map(|number| new(&number.to_string())).collect();
    for file in &small {
        give(*file, 9).unwrap();
    }
    let filler = new("filler");
    let mut blocks = 1 << 13;
    let mut filled = 0;
    while blocks > 0 {
        let mode = FallocateMode::Allocate { keep_size: false };
        match fs.fallocate(&me, filler, mode, filled * SMALL, blocks * SMALL) {
            Ok(()) => filled += blocks,
            Err(_) => blocks /= 2,
        }
    }
    let mut splits = small.iter().flat_map(|file| [1, 3, 5, 7].map(|block| (*file, block)));
    let refused = splits
        .any(|(file, block)| fs.write(&me, file, block * SMALL, &[8; SMALL as usize]).is_err());
    assert!(refused, "blocks for nodes are left");
    let before = content(&fs, file);
    let punched = fs.fallocate(&me, file, FallocateMode::PunchHole, 100, 20 * SMALL);
    assert_eq!(punched.unwrap_err().errno, Errno::ENOSPC);
    assert!(content(&fs, file) == before, "bytes were zeroed");
    // Where extents only become shorter, or go, there is room.
    let across = fs.fallocate(&me, file, FallocateMode::PunchHole, 50 * SMALL + 100, 65 * SMALL);
    assert_eq!(across.map_err(|error| error.errno), Ok(()));
    fs.close().unwrap();
    judge(&device, "full");
}
