//! Files, memory and the views over them: every device must behave as a plain byte array.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{
    BlockDevice, Delays, DeviceError, Existing, Faulty, FileDevice, MemoryDevice, OpenMode,
    Overlay, ReadOnly, Recording, Region, Timed, UndoDevice,
};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use std::io::IoSlice;
use std::path::PathBuf;

/// Not a multiple of any chunk, so that the last one is cut.
const SIZE: usize = 300_000;

fn image(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    (directory, path)
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

fn content(device: &impl BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Random operations on `device`, which holds `model` at the start, and on `model`.
fn behaves_as(device: &impl BlockDevice, model: &mut [u8]) {
    const SEED: u64 = 7;
    let mut random = fastrand::Rng::with_seed(SEED);
    let size = model.len();
    for step in 0..400 {
        let offset = random.usize(..size);
        let length = random.usize(..=(size - offset).min(if step % 8 == 0 { size } else { 9000 }));
        let range = offset..offset + length;
        let data = pattern(length, step);
        let position = offset as u64;
        match random.u8(..6) {
            0 => {
                device.write_at(position, &data).unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
            1 => {
                let (first, second) = data.split_at(random.usize(..=length));
                let slices = [IoSlice::new(&[]), IoSlice::new(first), IoSlice::new(second)];
                device.write_vectored_at(position, &slices).unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
            2 => {
                device.write_durable_at(position, &data).unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
            3 => {
                device.zero_range(position, length as u64).unwrap();
                model[range.clone()].fill(0);
            }
            4 => {
                device.discard(position, length as u64).unwrap();
                let mut after = vec![0; length];
                device.read_at(position, &mut after).unwrap();
                for (after, before) in after.iter().zip(&mut model[range.clone()]) {
                    assert!(after == before || *after == 0, "step {step} of seed {SEED}");
                    *before = *after;
                }
            }
            _ => device.flush().unwrap(),
        }
        let mut read = vec![0xEE; length];
        device.read_at(position, &mut read).unwrap();
        assert!(read == model[range], "step {step} of seed {SEED} at {offset} + {length}");
    }
    assert!(content(device) == model, "the whole device after seed {SEED}");
    refuses_what_is_outside(device);
}

fn refuses_what_is_outside(device: &impl BlockDevice) {
    let size = device.size_bytes();
    let outside = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{result:?}");
    };
    outside(device.read_at(size - 1, &mut [0; 2]));
    outside(device.read_at(u64::MAX, &mut [0; 2]));
    outside(device.write_at(size - 1, &[0; 2]));
    outside(device.write_durable_at(size, &[0]));
    outside(device.write_vectored_at(size - 1, &[IoSlice::new(&[0]), IoSlice::new(&[0])]));
    outside(device.discard(1, size));
    outside(device.zero_range(1, u64::MAX));
    device.read_at(size, &mut []).unwrap();
}

#[test]
fn memory_behaves() {
    behaves_as(&MemoryDevice::new(SIZE as u64), &mut vec![0; SIZE]);
    let mut bytes = pattern(SIZE, 1);
    behaves_as(&MemoryDevice::from_bytes(&bytes.clone()), &mut bytes);
}

#[test]
fn a_file_behaves() {
    let (_directory, path) = image("image");
    let mut model = vec![0; SIZE];
    let device = FileDevice::create(&path, SIZE as u64, Existing::Refuse).unwrap();
    behaves_as(&device, &mut model);
    drop(device);
    let device = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(content(&device) == model);
}

#[test]
fn wrappers_behave() {
    let bytes = pattern(SIZE, 2);
    let memory = || MemoryDevice::from_bytes(&bytes);
    behaves_as(&Recording::new(memory()), &mut bytes.clone());
    behaves_as(&Faulty::new(memory()), &mut bytes.clone());
    behaves_as(&Timed::new(memory(), Delays::none()), &mut bytes.clone());
    behaves_as(&Overlay::new(memory()), &mut bytes.clone());
    let timed: Arc<dyn BlockDevice> = Arc::new(Timed::new(memory(), Delays::none()));
    let stacked = Faulty::new(Recording::new(Recording::new(Overlay::new(timed))));
    behaves_as(&stacked, &mut bytes.clone());
}

#[test]
fn a_region_is_a_device_and_no_more() {
    let mut bytes = pattern(SIZE, 4);
    let (start, end) = (70_001, 230_000);
    let below = MemoryDevice::from_bytes(&bytes);
    let region = Region::new(&below, start as u64, (end - start) as u64).unwrap();
    behaves_as(&region, &mut bytes[start..end]);
    assert!(content(&below) == bytes);
    let inner = Region::new(&region, 10, 20).unwrap();
    inner.write_at(19, &[9]).unwrap();
    let mut byte = [0];
    below.read_at(start as u64 + 29, &mut byte).unwrap();
    assert_eq!((byte, inner.offset()), ([9], 10));
    for (offset, length) in [(0, SIZE as u64 + 1), (SIZE as u64, 1), (u64::MAX, 1)] {
        let refused = Region::new(&below, offset, length);
        assert!(matches!(refused, Err(DeviceError::OutOfRange { .. })), "{offset} {length}");
    }
    assert!(Region::new(ReadOnly::new(&below), 0, 1).unwrap().is_read_only());
}

/// Two processes may write two parts of a file; nobody else writes or reads them meanwhile. A lock belongs
/// to what is open, so that this process can stand for several.
#[test]
fn parts_of_a_file_are_locked_apart() {
    let (_directory, path) = image("image");
    drop(FileDevice::create(&path, SIZE as u64, Existing::Refuse).unwrap());
    let part = |mode, range| FileDevice::open_part(&path, mode, range).map(drop);
    let whole = |mode| FileDevice::open(&path, mode).map(drop);
    let refused = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::InUse { .. })), "{result:?}");
    };
    let (read, write) = (OpenMode::ReadOnly, OpenMode::ReadWrite);

    let held = FileDevice::open_part(&path, write, 1000..2000).unwrap();
    part(write, 0..1000).unwrap();
    part(write, 2000..3000).unwrap();
    drop(FileDevice::open_to_look(&path).unwrap());
    for range in [1000..2000, 0..1001, 1999..2000, 0..SIZE as u64] {
        refused(part(write, range.clone()));
        refused(part(read, range));
    }
    refused(whole(read));
    refused(whole(write));
    held.write_at(0, &[5]).unwrap();
    drop(held);

    let held = FileDevice::open_part(&path, read, 1000..2000).unwrap();
    let mut byte = [0];
    held.read_at(0, &mut byte).unwrap();
    assert_eq!(byte, [5]);
    whole(read).unwrap();
    part(read, 0..1500).unwrap();
    part(write, 0..1000).unwrap();
    refused(part(write, 0..1500));
    refused(whole(write));
    drop(held);

    let held = FileDevice::open(&path, read).unwrap();
    part(read, 0..1).unwrap();
    refused(part(write, 0..1));
    drop(held);
    let held = FileDevice::open(&path, write).unwrap();
    refused(part(read, 0..1));
    refused(FileDevice::open_to_look(&path).map(drop));
    drop(held);
    let outside = part(write, 0..SIZE as u64 + 1);
    assert!(matches!(outside, Err(DeviceError::OutOfRange { .. })), "{outside:?}");
    whole(write).unwrap();
}

#[test]
fn an_overlay_never_writes_its_base() {
    let bytes = pattern(SIZE, 3);
    let base = Arc::new(ReadOnly::new(MemoryDevice::from_bytes(&bytes)));
    let overlay = Overlay::new(Arc::clone(&base));
    assert_eq!(overlay.changed_bytes(), 0);
    overlay.write_at(4000, &[1; 200]).unwrap();
    assert_eq!(overlay.changed_bytes(), 8192);
    assert!(!overlay.is_read_only());
    behaves_as(&Overlay::new(Arc::clone(&base)), &mut bytes.clone());
    assert!(content(&base) == bytes);
}

#[test]
fn read_only_refuses_changes() {
    let device = ReadOnly::new(MemoryDevice::new(SIZE as u64));
    let refused = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::ReadOnly)), "{result:?}");
    };
    refused(device.write_at(0, &[1]));
    refused(device.write_durable_at(0, &[1]));
    refused(device.write_vectored_at(0, &[IoSlice::new(&[1])]));
    refused(device.zero_range(0, 1));
    refused(device.discard(0, 1));
    device.flush().unwrap();
    assert!(device.is_read_only());
    refuses_what_is_outside(&device);
}

#[test]
fn memory_is_sparse_and_copies_are_independent() {
    const HUGE: u64 = 16 << 40;
    let device = MemoryDevice::new(HUGE);
    device.write_at(HUGE - 5, &[0; 5]).unwrap();
    assert_eq!(device.allocated_bytes(), 0);
    device.write_at(HUGE - 5, &[9; 5]).unwrap();
    assert_eq!(device.allocated_bytes(), 64 * 1024);
    let copy = device.clone();
    device.zero_range(HUGE - (1 << 20), 1 << 20).unwrap();
    assert_eq!(device.allocated_bytes(), 0);
    let mut bytes = [0; 6];
    copy.read_at(HUGE - 6, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 9, 9, 9, 9, 9]);
    let bytes = pattern(SIZE, 4);
    assert!(MemoryDevice::from_bytes(&bytes).snapshot().to_vec() == bytes);
}

#[test]
fn memory_is_written_by_many_threads() {
    const THREADS: usize = 4;
    const SHARE: usize = 150_000;
    let device = MemoryDevice::new((THREADS * SHARE) as u64);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                let bytes = pattern(SHARE, number as u64);
                for (piece, data) in bytes.chunks(777).enumerate() {
                    device.write_at((number * SHARE + piece * 777) as u64, data).unwrap();
                }
            });
        }
    });
    let expected: Vec<u8> = (0..THREADS).flat_map(|number| pattern(SHARE, number as u64)).collect();
    assert!(device.to_vec() == expected);
}

/// After a crash no place is newer than one that was written before it.
#[test]
fn a_snapshot_of_memory_is_of_one_moment() {
    const LAST: u64 = 8 << 20;
    let device = MemoryDevice::from_bytes(&[0; LAST as usize + 8]);
    device.write_at(8, &[1; LAST as usize - 8]).unwrap();
    let number_at = |device: &MemoryDevice, offset| {
        let mut bytes = [0; 8];
        device.read_at(offset, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                device.write_at(0, &number.to_le_bytes()).unwrap();
                device.write_at(LAST, &number.to_le_bytes()).unwrap();
            }
        });
        while number_at(&device, LAST) == 0 {
            thread::yield_now();
        }
        let numbers = (0..100).map(|_| device.snapshot());
        let mut numbers = numbers.map(|copy| (number_at(&copy, 0), number_at(&copy, LAST)));
        let torn = numbers.find(|&(first, last)| first != last && first != last + 1);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(torn, None);
    });
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let (_directory, path) = image("locked.img");
    let writer = FileDevice::create(&path, 4096, Existing::Refuse).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let error = FileDevice::open(&path, mode).unwrap_err();
        assert!(matches!(error, DeviceError::InUse { .. }), "{error:?}");
        assert!(error.to_string().contains("locked.img is in use by another process"), "{error}");
    }
    // A device in use keeps its bytes.
    writer.write_at(0, &[7]).unwrap();
    let error = FileDevice::create(&path, 1, Existing::Overwrite).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { .. }), "{error:?}");
    assert_eq!(content(&writer)[0], 7);
    drop(writer);
    let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    let _second = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(FileDevice::open(&path, OpenMode::ReadWrite).is_err());
    assert!(reader.is_read_only());
    assert!(matches!(reader.write_at(0, &[1]), Err(DeviceError::ReadOnly)));
    assert!(matches!(reader.resize(1), Err(DeviceError::ReadOnly)));
    reader.flush().unwrap();
}

#[test]
fn a_file_is_created_sparse_and_never_by_accident() {
    use std::os::unix::fs::MetadataExt;
    const HUGE: u64 = 1 << 40;
    let (_directory, path) = image("image");
    let device = FileDevice::create(&path, HUGE, Existing::Refuse).unwrap();
    assert_eq!(device.size_bytes(), HUGE);
    assert!(device.path().metadata().unwrap().blocks() < 64);
    device.write_at(HUGE - 1, &[1]).unwrap();
    device.resize(HUGE + 4096).unwrap();
    device.write_at(HUGE + 4095, &[1]).unwrap();
    drop(device);
    let error = FileDevice::create(&path, 4096, Existing::Refuse).unwrap_err();
    assert!(matches!(error, DeviceError::Open { .. }), "{error:?}");
    assert!(error.to_string().contains("exists"), "{error}");
    let device = FileDevice::create(&path, 4096, Existing::Overwrite).unwrap();
    assert!(content(&device).iter().all(|&byte| byte == 0));
    assert_eq!(device.size_bytes(), 4096);
}

#[test]
fn a_file_is_opened_only_if_it_can_be_a_device() {
    let (directory, path) = image("missing");
    let error = FileDevice::open(&path, OpenMode::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let error = FileDevice::open(directory.path(), OpenMode::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("a directory, not an image"), "{error}");
}

#[test]
fn many_slices_are_written_in_one_call() {
    let (_directory, path) = image("image");
    let device = FileDevice::create(&path, 5000, Existing::Refuse).unwrap();
    let bytes = pattern(5000, 5);
    let slices: Vec<_> = bytes.chunks(2).map(IoSlice::new).collect();
    device.write_vectored_at(0, &slices).unwrap();
    assert!(content(&device) == bytes);
}

#[test]
fn a_file_that_shrank_gives_an_error_with_its_place() {
    let (_directory, path) = image("image");
    let device = FileDevice::create(&path, 8192, Existing::Refuse).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = device.read_at(4096, &mut [0; 10]).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("read of 10 bytes at byte 4096 failed"), "{message}");
}

/// Nothing opens the other end.
#[test]
fn a_pipe_is_refused_at_once() {
    let (_folder, path) = image("pipe");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let error = FileDevice::open(&path, mode).unwrap_err();
        assert!(error.to_string().contains("neither a regular file nor a block device"), "{error}");
    }
}

/// A size that the system refuses changes nothing.
#[test]
fn a_file_that_can_not_be_made_so_large_is_kept() {
    let (_folder, path) = image("file");
    std::fs::write(&path, "content").unwrap();
    FileDevice::create(&path, u64::MAX, Existing::Overwrite).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
}

/// What was never written is passed over, on a file, in memory and through every wrapper.
#[test]
fn holes_are_passed_over() {
    let (_folder, path) = image("sparse");
    let file = FileDevice::create(&path, 64 << 20, Existing::Refuse).unwrap();
    let memory = MemoryDevice::new(64 << 20);
    let at = 40 << 20;
    for device in [&file as &dyn BlockDevice, &memory] {
        device.write_at(at, &[1; 4096]).unwrap();
        // Not every file system has holes.
        let next = device.next_data(0).unwrap();
        assert!(next == Some(at) || next == Some(0), "{next:?}");
        assert_eq!(device.next_data(at + 5).unwrap(), Some(at + 5));
        assert_eq!(device.next_data(64 << 20).unwrap(), None);
    }
    assert_eq!(memory.next_data(41 << 20).unwrap(), None);
    let region = Region::new(&memory, 1 << 20, 50 << 20).unwrap();
    assert_eq!(region.next_data(0).unwrap(), Some(at - (1 << 20)));
    let region = Region::new(&memory, 1 << 20, 10 << 20).unwrap();
    assert_eq!(region.next_data(0).unwrap(), None);
    assert_eq!(ReadOnly::new(&memory).next_data(0).unwrap(), Some(at));
    let overlay = Overlay::new(&memory);
    assert_eq!(overlay.next_data(0).unwrap(), Some(at));
    overlay.write_at(50 << 20, b"x").unwrap();
    overlay.write_at((9 << 20) + 7, b"x").unwrap();
    assert_eq!(overlay.next_data(0).unwrap(), Some(9 << 20));
    assert_eq!(overlay.next_data((9 << 20) + 4096).unwrap(), Some(at));
    assert_eq!(overlay.next_data(at + 65536).unwrap(), Some(50 << 20));
    assert_eq!(overlay.next_data((50 << 20) + 4096).unwrap(), None);
    let undo = UndoDevice::begin(&memory, MemoryDevice::new(1 << 20), 64 << 20).unwrap();
    undo.write_at((3 << 20) + 5, b"held").unwrap();
    assert_eq!(undo.next_data(0).unwrap(), Some(3 << 20));
    assert_eq!(undo.next_data((3 << 20) + 1).unwrap(), Some((3 << 20) + 1));
    assert_eq!(undo.next_data(4 << 20).unwrap(), Some(at));
}
