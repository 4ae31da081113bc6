//! Gathered writes: the kernel takes any answer but an error as success for all of them.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use drystone_blockdev::{
    BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger,
};
use drystone_ext4::{Ext4, MountOptions};
use drystone_fuse::{NodeId, Operations, RequestCaller, ServingOptions, WriteFlags};
use drystone_sync::Arc;
use drystone_testkit::judges::{FeatureSet, Scratch, mke2fs};
use drystone_vfs::{
    Errno, FallocateMode, FileFlags, FileSystem, InodeNumber, NewNode, RequestContext,
    SetAttributes, SetTime, Timestamp,
};

const IMAGE_BYTES: u64 = 32 << 20;
const BLOCK: usize = 4096;
const GATHERED: WriteFlags = WriteFlags { cached: true, kill_set_id: false };

type Device = Faulty<MemoryDevice>;

struct Served {
    device: Arc<Device>,
    fs: Arc<Ext4>,
    operations: Operations,
}

impl Served {
    fn new(delayed_allocation: bool) -> Served {
        let scratch = Scratch::new("gathered").unwrap();
        let image = scratch.join("disk.img");
        let set = FeatureSet::by_name("modern").unwrap();
        mke2fs(&image, set, IMAGE_BYTES).unwrap().expect_clean("mke2fs");
        let memory = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
        let device = Arc::new(Faulty::new(memory));
        let options = MountOptions::default().delayed_allocation(delayed_allocation);
        let on = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let fs = Arc::new(Ext4::open(on, options).unwrap());
        let operations = Operations::new(Arc::clone(&fs) as _, ServingOptions::default());
        Served { device, fs, operations }
    }

    fn new_file(&self, name: &str) -> InodeNumber {
        let context = RequestContext::superuser();
        let name = name.as_bytes();
        self.fs.create(&context, self.fs.root(), name, NewNode::Regular, 0o644).unwrap().inode
    }

    fn write(&self, file: InodeNumber, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        self.operations.write(&RequestCaller::default(), NodeId(file.0), offset, data, GATHERED)
    }

    fn content(&self, file: InodeNumber) -> Vec<u8> {
        let mut content = vec![0; self.fs.attributes(file).unwrap().size as usize];
        self.fs.read(file, 0, &mut content).unwrap();
        content
    }
}

/// One write to the device fails in the middle of a request: the request is completed anyway, or
/// fails.
#[test]
fn a_write_is_whole_or_fails_when_the_device_fails_in_the_middle() {
    const BLOCKS: usize = 32;
    let served = Served::new(false);
    let context = RequestContext::superuser();
    let mut failures = 0;
    for failing in 0..BLOCKS as u64 + 4 {
        let file = served.new_file(&failing.to_string());
        // Every other block is written, so that each is a run of its own.
        let mode = FallocateMode::Allocate { keep_size: false };
        served.fs.fallocate(&context, file, mode, 0, (BLOCKS * BLOCK) as u64).unwrap();
        for block in (0..BLOCKS).step_by(2) {
            served.write(file, (block * BLOCK) as u64, &[1; BLOCK]).unwrap();
        }
        let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
        served.device.inject(fault.when(Trigger::Nth(failing)));
        let before = served.device.failures();
        let written = served.write(file, 0, &[2; BLOCKS * BLOCK]);
        failures += served.device.failures() - before;
        served.device.repair();
        match written {
            Ok(count) => {
                assert_eq!(count, BLOCKS * BLOCK, "write {failing} to the device failed");
                assert!(served.content(file).iter().all(|byte| *byte == 2), "write {failing}");
            }
            Err(error) => assert_eq!(error, Errno::EIO),
        }
    }
    assert!(failures > BLOCKS as u64 / 2, "only {failures} writes to the device failed");
}

/// Space runs out in the middle of a request: it fails, and the data of all successful requests is
/// there.
#[test]
fn a_write_is_whole_or_fails_when_space_ends_in_the_middle() {
    const LENGTH: usize = 91 * BLOCK;
    for delayed_allocation in [false, true] {
        let served = Served::new(delayed_allocation);
        let mut files = Vec::new();
        let refused = loop {
            let number = files.len();
            let file = served.new_file(&number.to_string());
            match served.write(file, 0, &vec![number as u8 + 1; LENGTH]) {
                Ok(count) => assert_eq!(count, LENGTH, "file {number}, {delayed_allocation}"),
                Err(error) => break error,
            }
            files.push(file);
        };
        assert_eq!(refused, Errno::ENOSPC);
        assert!(files.len() > 20, "{} files", files.len());
        for (number, file) in files.into_iter().enumerate() {
            served.fs.sync_inode(file, true).unwrap();
            assert!(served.content(file) == vec![number as u8 + 1; LENGTH], "file {number}");
        }
    }
}

/// The kernel reports a refused write to one sync and then takes the data for written. Here each later
/// sync fails too, until the bytes are written again or no longer belong to the file.
#[test]
fn syncs_fail_while_bytes_are_missing() {
    const WRITES: u32 = 2;
    let served = Served::new(true);
    let file = served.new_file("f");
    let node = NodeId(file.0);
    let open = || served.operations.open(&RequestCaller::default(), node, WRITES, false).unwrap();
    let sync = || served.operations.fsync(node, true);
    let handle = open();
    served.write(file, 0, &[1; 4 * BLOCK]).unwrap();
    sync().unwrap();
    let refuse = |block: usize| {
        let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
        served.device.inject(fault);
        let written = served.write(file, (block * BLOCK) as u64, &[2; BLOCK]);
        assert_eq!(written, Err(Errno::EIO));
        served.device.repair();
        assert_eq!((sync(), sync()), (Err(Errno::EIO), Err(Errno::EIO)));
    };
    // Written again, in pieces.
    refuse(1);
    served.write(file, BLOCK as u64, &[3; BLOCK - 1]).unwrap();
    assert_eq!(sync(), Err(Errno::EIO));
    served.write(file, 2 * BLOCK as u64 - 1, &[3; 10]).unwrap();
    sync().unwrap();
    // Cut off.
    refuse(3);
    let set_size = |size| {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        served
            .operations
            .set_attributes(&RequestCaller::default(), node, &changes, false, true)
            .unwrap();
    };
    set_size(5 * BLOCK as u64);
    assert_eq!(sync(), Err(Errno::EIO));
    set_size(3 * BLOCK as u64);
    sync().unwrap();
    // Made a hole.
    refuse(2);
    const PUNCH_HOLE_AND_KEEP_SIZE: u32 = 3;
    let (offset, length) = (2 * BLOCK as u64, BLOCK as u64);
    served
        .operations
        .fallocate(&RequestCaller::default(), node, offset, length, PUNCH_HOLE_AND_KEEP_SIZE)
        .unwrap();
    sync().unwrap();
    // Closed by the last of its writers.
    refuse(0);
    let other = open();
    served.operations.release(node, handle).unwrap();
    assert_eq!(sync(), Err(Errno::EIO));
    served.operations.release(node, other).unwrap();
    sync().unwrap();
    // A writer of the file is told at its next write; a reader never is.
    let handle = open();
    refuse(0);
    served.operations.attributes_of_opened(node, 0).unwrap();
    let told = || served.operations.attributes_of_opened(node, handle).map(drop);
    assert_eq!((told(), told()), (Err(Errno::EIO), Ok(())));
    // The close of another opening doesn't matter.
    refuse(0);
    let other = open();
    served.operations.release(node, other).unwrap();
    assert_eq!((told(), told()), (Err(Errno::EIO), Ok(())));
    // The syncs of other files never failed.
    let other = served.new_file("g");
    refuse(0);
    served.operations.fsync(NodeId(other.0), true).unwrap();
}

/// A file that lacks bytes of which a program believes that they are written isn't made immutable without them.
#[test]
fn files_with_missing_bytes_get_no_guard() {
    const SET_FLAGS: u32 = 0x4008_6602;
    let served = Served::new(true);
    let file = served.new_file("f");
    served.write(file, 0, &[1; BLOCK]).unwrap();
    served.fs.sync_inode(file, false).unwrap();
    let guard = |flag: FileFlags| {
        let flags = served.fs.attributes(file).unwrap().flags | flag;
        let (caller, input) = (RequestCaller::default(), flags.bits().to_ne_bytes());
        served.operations.ioctl(&caller, NodeId(file.0), SET_FLAGS, &input, 0).map(drop)
    };
    served.device.inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError));
    assert_eq!(served.write(file, 0, &[2; BLOCK]), Err(Errno::EIO));
    served.device.repair();
    assert_eq!(guard(FileFlags::IMMUTABLE), Err(Errno::EIO));
    assert_eq!(guard(FileFlags::APPEND), Err(Errno::EIO));
    guard(FileFlags::NO_DUMP).unwrap();
    served.write(file, 0, &[2; BLOCK]).unwrap();
    guard(FileFlags::IMMUTABLE).unwrap();
}

/// What may not be changed isn't missing. Appends beside such changes are stored.
#[test]
fn forbidden_changes_are_not_missing() {
    const WRITES: u32 = 2;
    let served = Served::new(true);
    let guarded = |name, flag| {
        let file = served.new_file(name);
        let handle =
            served.operations.open(&RequestCaller::default(), NodeId(file.0), WRITES, false);
        served.write(file, 0, b"stored").unwrap();
        let flags = served.fs.attributes(file).unwrap().flags | flag;
        let changes = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        served.fs.set_attributes(&RequestContext::superuser(), file, &changes).unwrap();
        (file, handle.unwrap())
    };
    let told = |file: InodeNumber, handle| {
        served.operations.attributes_of_opened(NodeId(file.0), handle).map(drop)
    };
    let (file, handle) = guarded("immutable", FileFlags::IMMUTABLE);
    assert_eq!(served.write(file, 0, b"X"), Err(Errno::EPERM));
    served.operations.fsync(NodeId(file.0), false).unwrap();
    assert_eq!((told(file, handle), told(file, handle)), (Err(Errno::EPERM), Ok(())));
    assert_eq!(served.content(file), b"stored");
    let (file, handle) = guarded("append-only", FileFlags::APPEND);
    assert_eq!(served.write(file, 0, b"Xtored more"), Err(Errno::EPERM));
    served.operations.fsync(NodeId(file.0), false).unwrap();
    // Only the kernel tells of it: a program that appends did nothing wrong.
    told(file, handle).unwrap();
    assert_eq!(served.content(file), b"stored more");
}

/// The kernel keeps the times of files and sends them by itself, unless it believes that they are stored already:
/// a time of ours would be stored, but not shown.
#[test]
fn direct_writes_and_holes_leave_times_to_a_kernel_that_keeps_them() {
    for keeps in [true, false] {
        let served = Served::new(true);
        let options = ServingOptions::default().writeback_cache(keeps);
        let operations = Operations::new(Arc::clone(&served.fs) as _, options);
        let file = served.new_file("file");
        let old = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
        let caller = RequestCaller::default();
        let check = |what: &str, change: &dyn Fn(NodeId)| {
            let changes = SetAttributes {
                modified: Some(SetTime::At(old)),
                changed: Some(old),
                ..SetAttributes::default()
            };
            served.fs.set_attributes(&RequestContext::superuser(), file, &changes).unwrap();
            change(NodeId(file.0));
            let after = served.fs.attributes(file).unwrap();
            assert_eq!((after.modified == old, after.changed == old), (keeps, keeps), "{what}");
        };
        check("direct write", &|node| {
            let data = [7; 2 * BLOCK];
            operations.write(&caller, node, 0, &data, WriteFlags::default()).unwrap();
        });
        for (mode, what) in [(3, "hole"), (1, "space"), (0x11, "zeros")] {
            check(what, &|node| {
                operations.fallocate(&caller, node, 0, BLOCK as u64, mode).unwrap();
            });
        }
        check("copy", &|node| {
            let at = BLOCK as u64;
            operations.copy_range(&caller, node, at, node, 4 * at, at, 0).unwrap();
        });
    }
}
