//! Changes that are logged, interrupted and undone.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, Effect, Existing, Fault, Faulty,
    FileDevice, MemoryDevice, OpenMode, Recording, Trigger, UndoDevice, UndoError, UndoFile,
    roll_back,
};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::environment;
use drystone_testkit::skip::is_root;
use std::os::unix::fs::{PermissionsExt, chown};

const IMAGE_BYTES: u64 = 200_000;
const PROTECTED_BYTES: u64 = 150_500;
const LOG_BYTES: u64 = 8 << 20;

fn seed() -> u64 {
    environment::number("DRYSTONE_SEED").unwrap_or(1)
}

fn filled(random: &mut fastrand::Rng) -> MemoryDevice {
    let image = MemoryDevice::new(IMAGE_BYTES);
    // The rest is zeros, which the log stores without bytes.
    let bytes: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
    image.write_at(0, &bytes).unwrap();
    image
}

/// Part of a device as a device. Image and log share one recording, which has the order of both.
#[derive(Debug)]
struct Window<D> {
    device: D,
    start: u64,
    length: u64,
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn size_bytes(&self) -> u64 {
        self.length
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.device.read_at(self.start + offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.device.write_at(self.start + offset, data)
    }
    fn flush(&self) -> DeviceResult {
        self.device.flush()
    }
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.device.write_durable_at(self.start + offset, data)
    }
    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        self.device.zero_range(self.start + offset, length)
    }
}

/// Makes random changes, and the same to `model`.
fn change(random: &mut fastrand::Rng, device: &dyn BlockDevice, model: &MemoryDevice) {
    for _ in 0..120 {
        let length = random.u64(1..12_000);
        let offset = random.u64(..IMAGE_BYTES - length);
        let bytes = vec![random.u8(..); length as usize];
        match random.u8(..10) {
            0 => device.flush().unwrap(),
            1..=3 => {
                device.zero_range(offset, length).unwrap();
                model.zero_range(offset, length).unwrap();
            }
            _ => {
                device.write_at(offset, &bytes).unwrap();
                model.write_at(offset, &bytes).unwrap();
            }
        }
        let (mut found, mut expected) = (bytes.clone(), bytes);
        let offset = random.u64(..IMAGE_BYTES - length);
        device.read_at(offset, &mut found).unwrap();
        model.read_at(offset, &mut expected).unwrap();
        assert!(found == expected, "at {offset}");
    }
}

#[test]
fn changes_are_seen_kept_and_taken_back() {
    for seed in seed()..seed() + 20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let image = filled(&mut random);
        let (before, model) = (image.to_vec(), image.snapshot());
        let log = MemoryDevice::new(LOG_BYTES);
        let device = UndoDevice::begin(&image, &log, PROTECTED_BYTES).unwrap();
        change(&mut random, &device, &model);
        device.finish().unwrap();
        assert!(image.to_vec() == model.to_vec(), "DRYSTONE_SEED={seed}");
        assert_eq!(roll_back(&image, &log).unwrap(), PROTECTED_BYTES);
        let protected = PROTECTED_BYTES as usize;
        assert!(image.to_vec()[..protected] == before[..protected], "DRYSTONE_SEED={seed}");
    }
}

/// More is changed than is held in memory, and neighbours are more than is written at once.
#[test]
fn changes_of_several_batches_are_taken_back() {
    const BYTES: u64 = 12 << 20;
    for seed in seed()..seed() + 4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let image = MemoryDevice::new(BYTES);
        let bytes: Vec<u8> = (0..BYTES / 2).map(|_| random.u8(..)).collect();
        image.write_at(0, &bytes).unwrap();
        let (before, model) = (image.to_vec(), image.snapshot());
        let log = MemoryDevice::new(2 * BYTES);
        let device = UndoDevice::begin(&image, &log, BYTES).unwrap();
        for turn in 0..12 {
            let length = random.u64(1..3 << 20);
            let offset = random.u64(..BYTES - length);
            if turn % 4 == 3 {
                device.zero_range(offset, length).unwrap();
                model.zero_range(offset, length).unwrap();
            } else {
                let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                device.write_at(offset, &bytes).unwrap();
                model.write_at(offset, &bytes).unwrap();
            }
            let mut found = vec![0; BYTES as usize];
            device.read_at(0, &mut found).unwrap();
            assert!(found == model.to_vec(), "{turn}: DRYSTONE_SEED={seed}");
        }
        // It was written without a flush, but for what is still held.
        assert!(image.to_vec() != before);
        let (interrupted, log_then) = (image.snapshot(), log.snapshot());
        roll_back(&interrupted, &log_then).unwrap();
        assert!(interrupted.to_vec() == before, "DRYSTONE_SEED={seed}");
        device.finish().unwrap();
        assert!(image.to_vec() == model.to_vec(), "DRYSTONE_SEED={seed}");
        roll_back(&image, &log).unwrap();
        assert!(image.to_vec() == before, "DRYSTONE_SEED={seed}");
    }
}

/// Other programs, which don't look for the log, see the mark until the change is complete or rolled back.
#[test]
fn an_image_is_marked_while_it_is_half_changed() {
    let image = MemoryDevice::from_bytes(&[1; 40_000]);
    let first = || image.to_vec()[..4].to_vec();
    let begin = || {
        let log = MemoryDevice::new(LOG_BYTES);
        UndoDevice::begin(&image, log, 40_000).unwrap().marked_by(|first| first[..4].fill(0xee))
    };
    let change = |device: &dyn BlockDevice| {
        let mut bytes = [0; 4];
        device.write_at(20_000, &[2; 8]).unwrap();
        device.flush().unwrap();
        assert_eq!(first(), [0xee; 4]);
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 4]);
        device.write_at(1, &[2]).unwrap();
        device.write_at(30_000, &[2; 8]).unwrap();
        device.flush().unwrap();
        assert_eq!(first(), [0xee; 4]);
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 1, 1]);
    };
    let device = begin();
    change(&device);
    let (_, log) = device.into_parts();
    // The rollback can't write the last piece, and so leaves the mark.
    let faulty = Faulty::new(image.snapshot());
    let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
    faulty.inject(fault.when(Trigger::From(1)));
    roll_back(&faulty, &log).unwrap_err();
    assert_eq!(faulty.inner().to_vec()[..4], [0xee; 4]);
    assert_eq!(roll_back(&image, &log).unwrap(), 40_000);
    assert_eq!(image.to_vec(), [1; 40_000]);
    let device = begin();
    change(&device);
    device.finish().unwrap();
    assert_eq!(first(), [1, 2, 1, 1]);
}

/// What isn't logged is changed at once, and so only in a marked image.
#[test]
fn an_image_is_marked_before_writes_that_are_not_logged() {
    for case in 0..3 {
        let image = MemoryDevice::from_bytes(&[1; 50_000]);
        let log = MemoryDevice::new(LOG_BYTES);
        let device = UndoDevice::begin(&image, log, 40_000).unwrap();
        let device = device.marked_by(|first| first[..4].fill(0xee));
        // A rollback keeps this.
        device.write_unlogged_at(3, &[9]).unwrap();
        device.write_at(1, &[2]).unwrap();
        match case {
            0 => device.write_unlogged_at(20_000, &[2; 8]).unwrap(),
            1 => device.write_at(39_000, &[2; 8000]).unwrap(),
            _ => device.zero_range(39_000, 8000).unwrap(),
        }
        assert_eq!(image.to_vec()[..4], [0xee; 4]);
        let (_, log) = device.finish().unwrap();
        assert_eq!(image.to_vec()[..4], [1, 2, 1, 9]);
        roll_back(&image, log).unwrap();
        assert_eq!(image.to_vec()[..4], [1, 1, 1, 9]);
    }
}

/// Or part of a change would be taken back, and the log removed.
#[test]
fn a_damaged_entry_is_not_the_end_of_the_log() {
    let image = MemoryDevice::from_bytes(&[1; 40_000]);
    let log = MemoryDevice::new(LOG_BYTES);
    let device = UndoDevice::begin(&image, &log, 40_000).unwrap();
    for step in 0..3 {
        device.write_at(step * 8192, &[2; 8]).unwrap();
        device.flush().unwrap();
    }
    drop(device);
    let changed = image.to_vec();
    // The old bytes of the first entry, and the begin of its header.
    for at in [1000, 40] {
        let damaged = log.snapshot();
        damaged.write_at(at, &[3]).unwrap();
        let error = roll_back(&image, &damaged).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(image.to_vec() == changed);
    }
    roll_back(&image, &log).unwrap();
    assert_eq!(image.to_vec(), [1; 40_000]);
}

/// Whatever a crash leaves of image and log, the image is restored, even if the rollback is
/// interrupted.
#[test]
fn any_crash_is_taken_back() {
    for seed in seed()..seed() + 4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let image = filled(&mut random);
        let before = image.to_vec();
        let base = MemoryDevice::new(IMAGE_BYTES + LOG_BYTES);
        base.write_at(0, &before).unwrap();
        let recording = Arc::new(Recording::new(base.snapshot()));
        let windows = |device: &Arc<Recording<MemoryDevice>>| {
            let image = Window { device: Arc::clone(device), start: 0, length: IMAGE_BYTES };
            (image, Window { device: Arc::clone(device), start: IMAGE_BYTES, length: LOG_BYTES })
        };
        let (image, log) = windows(&recording);
        let device = UndoDevice::begin(image, log, PROTECTED_BYTES).unwrap();
        change(&mut random, &device, &filled(&mut fastrand::Rng::with_seed(seed)));
        device.flush().unwrap();
        let images = CrashImages::new(&base, recording.events(), seed).unwrap();
        for crash in images.take(60) {
            let crash = crash.unwrap();
            let copy = MemoryDevice::new(IMAGE_BYTES + LOG_BYTES);
            let mut bytes = vec![0; (IMAGE_BYTES + LOG_BYTES) as usize];
            crash.device.read_at(0, &mut bytes).unwrap();
            copy.write_at(0, &bytes).unwrap();
            let second = Arc::new(Recording::new(copy.snapshot()));
            let (image, log) = windows(&second);
            let check = |result: Result<u64, UndoError>, image: &dyn BlockDevice| {
                // A crash while the log was made left the image alone, and one at the end of a rollback
                // left it restored.
                let is_restored =
                    matches!(result, Ok(_) | Err(UndoError::NoLog | UndoError::TakenBack));
                assert!(is_restored, "{}: {result:?}", crash.description);
                let mut found = vec![0; PROTECTED_BYTES as usize];
                image.read_at(0, &mut found).unwrap();
                assert!(found == before[..found.len()], "{}", crash.description);
            };
            check(roll_back(&image, &log), &image);
            for again in CrashImages::new(&copy, second.events(), seed).unwrap().take(6) {
                let device = again.unwrap().device;
                let image = Window { device: &device, start: 0, length: IMAGE_BYTES };
                let log = Window { device: &device, start: IMAGE_BYTES, length: LOG_BYTES };
                check(roll_back(&image, &log), &image);
            }
        }
    }
}

#[test]
fn an_image_that_changed_since_is_left_alone() {
    let image = MemoryDevice::new(IMAGE_BYTES);
    let log = MemoryDevice::new(LOG_BYTES);
    let device = UndoDevice::begin(&image, &log, IMAGE_BYTES).unwrap();
    device.write_at(10_000, b"changed").unwrap();
    device.finish().unwrap();
    image.write_at(10_000, b"again").unwrap();
    let refused = roll_back(&image, &log);
    assert!(matches!(refused, Err(UndoError::OtherImage { offset: 8192 })), "{refused:?}");
    image.write_at(10_000, b"chang").unwrap();
    // What wrote elsewhere has changed the superblock, which the log doesn't cover.
    image.write_at(1100, b"mounted").unwrap();
    let refused = roll_back(&image, &log);
    assert!(matches!(refused, Err(UndoError::OtherImage { offset: 0 })), "{refused:?}");
    image.zero_range(1100, 7).unwrap();
    roll_back(&image, &log).unwrap();
    assert!(image.to_vec().iter().all(|&byte| byte == 0));
    // A log that comes back when the host crashes after it was removed.
    let again = roll_back(&image, &log);
    assert!(matches!(again, Err(UndoError::TakenBack)), "{again:?}");
    let short = MemoryDevice::new(1000);
    assert!(matches!(roll_back(&short, &log), Err(UndoError::OtherSize { .. })));
    assert!(matches!(roll_back(&image, &short), Err(UndoError::NoLog)));
}

/// An interrupted change has written each sector of its last batch or not. Nothing else is taken for it.
#[test]
fn another_image_is_not_taken_for_an_interrupted_change() {
    let mut random = fastrand::Rng::with_seed(seed());
    let image = filled(&mut random);
    let before = image.to_vec();
    let log = MemoryDevice::new(LOG_BYTES);
    let device = UndoDevice::begin(&image, &log, PROTECTED_BYTES).unwrap();
    device.write_at(0, &[1; 6000]).unwrap();
    device.flush().unwrap();
    device.write_at(3000, &[2; 10_000]).unwrap();
    device.flush().unwrap();
    let log_now = log.snapshot();
    drop(device);
    let torn = image.snapshot();
    torn.write_at(8192, &before[8192..8704]).unwrap();
    torn.write_at(3072, &[1; 512]).unwrap();
    for (offset, bytes) in [(8192, &[7; 512][..]), (3072, &before[3072..3584]), (512, &[2])] {
        let other = torn.snapshot();
        other.write_at(offset, bytes).unwrap();
        let kept = other.to_vec();
        let refused = roll_back(&other, log_now.snapshot());
        assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{offset}: {refused:?}");
        assert!(other.to_vec() == kept, "{offset}");
    }
    roll_back(&torn, &log).unwrap();
    assert!(torn.to_vec() == before);
}

/// Whoever changes a file system changes its superblock, which need not be part of an interrupted change.
#[test]
fn an_image_that_changed_since_an_interruption_is_left_alone() {
    let image = MemoryDevice::new(IMAGE_BYTES);
    let log = MemoryDevice::new(LOG_BYTES);
    let device = UndoDevice::begin(&image, &log, PROTECTED_BYTES).unwrap();
    device.write_at(10_000, b"changed").unwrap();
    device.flush().unwrap();
    drop(device);
    image.write_at(1100, b"mounted").unwrap();
    let refused = roll_back(&image, &log);
    assert!(matches!(refused, Err(UndoError::OtherImage { offset: 0 })), "{refused:?}");
    image.zero_range(1100, 7).unwrap();
    roll_back(&image, &log).unwrap();
    assert!(image.to_vec().iter().all(|&byte| byte == 0));
}

/// On a full host, neither the end of a change nor its rollback needs space.
#[test]
fn a_full_host_keeps_no_change_from_its_end() {
    for (is_undone, is_marked) in [(false, false), (true, false), (false, true), (true, true)] {
        let image = Faulty::new(MemoryDevice::new(IMAGE_BYTES));
        let log = Faulty::new(Recording::new(MemoryDevice::new(LOG_BYTES)));
        let mut device = UndoDevice::begin(&image, &log, IMAGE_BYTES).unwrap();
        if is_marked {
            device = device.marked_by(|first| first[100] = 1);
        }
        device.write_at(0, &[1; 9000]).unwrap();
        device.flush().unwrap();
        if is_undone {
            image.inject(Fault::of(DeviceOperation::Write, Effect::NoSpace));
            device.write_at(20_000, &[1; 9000]).unwrap();
            assert!(device.flush().is_err());
        }
        let events = log.inner().events();
        let ends = events.iter().filter_map(|event| event.kind.range());
        let end = ends.map(|(offset, length)| offset + length).max().unwrap();
        for operation in [DeviceOperation::Write, DeviceOperation::Zero] {
            log.inject(Fault::of(operation, Effect::NoSpace).in_range(end..LOG_BYTES));
        }
        if is_undone {
            drop(device);
            roll_back(&image, &log).unwrap();
            assert!(image.inner().to_vec().iter().all(|&byte| byte == 0));
        } else {
            device.finish().unwrap();
        }
    }
}

#[test]
fn writes_where_nothing_is_to_be_kept_are_not_logged() {
    let image = MemoryDevice::new(IMAGE_BYTES);
    let log = Recording::new(MemoryDevice::new(LOG_BYTES));
    let device = UndoDevice::begin(&image, &log, IMAGE_BYTES).unwrap();
    device.write_unlogged_at(5000, &[1; 50_000]).unwrap();
    assert_eq!(log.events().len(), 1);
    // The last piece is logged in part, so it is restored as a whole.
    device.write_at(54_900, &[2; 200]).unwrap();
    device.write_unlogged_at(54_000, &[3; 9000]).unwrap();
    let mut found = vec![0; 20_000];
    device.read_at(50_000, &mut found).unwrap();
    assert!(found[..4000].iter().all(|&byte| byte == 1));
    assert!(found[4000..13_000].iter().all(|&byte| byte == 3));
    device.finish().unwrap();
    roll_back(&image, log.inner()).unwrap();
    let mut found = vec![0; 10_000];
    image.read_at(50_000, &mut found).unwrap();
    assert!(found[4000..5000].iter().all(|&byte| byte == 1));
    assert!(found[5100..].iter().all(|&byte| byte == 0 || byte == 3));
}

#[test]
fn a_failure_stops_the_change() {
    let image = Arc::new(Faulty::new(MemoryDevice::new(IMAGE_BYTES)));
    let log = MemoryDevice::new(LOG_BYTES);
    let device = UndoDevice::begin(Arc::clone(&image), &log, IMAGE_BYTES).unwrap();
    device.write_at(0, &[1; 9000]).unwrap();
    image.inject(Fault::of(DeviceOperation::Write, Effect::Short { bytes: 5120 }));
    assert!(device.flush().is_err());
    image.repair();
    assert!(matches!(device.write_at(0, &[2; 10]), Err(DeviceError::Io { .. })));
    assert!(device.flush().is_err());
    let (image, log) = device.into_parts();
    roll_back(&*image, log).unwrap();
    let mut found = [1; 9000];
    image.read_at(0, &mut found).unwrap();
    assert_eq!(found, [0; 9000]);
    // A log without room fails before the image is touched.
    let log = MemoryDevice::new(5000);
    let device = UndoDevice::begin(&image, log, IMAGE_BYTES).unwrap();
    device.write_at(0, &[1; 9000]).unwrap();
    device.flush().unwrap();
    let device = UndoDevice::begin(&image, MemoryDevice::new(5000), IMAGE_BYTES).unwrap();
    device.write_at(0, &[2; 9000]).unwrap();
    assert!(matches!(device.flush(), Err(DeviceError::NoSpace { .. })));
    image.read_at(0, &mut found).unwrap();
    assert_eq!(found, [1; 9000]);
    // Of several threads, any may be the one whose error is shown.
    assert!(matches!(device.write_at(0, &[3; 10]), Err(DeviceError::NoSpace { .. })));
}

#[test]
fn a_file_beside_the_image_is_found_by_the_next_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let image = FileDevice::create(&path, 40_000, Existing::Refuse).unwrap();
    let undo = UndoFile::beside(&path);
    assert!(!undo.settle(&image).unwrap());

    // A complete change leaves no file.
    let device = undo.begin(&image, 40_000).unwrap();
    device.write_at(0, &[1; 20_000]).unwrap();
    undo.finish(device).unwrap();
    assert!(!undo.path().exists());

    // An interrupted one leaves the file, and is undone together with the size.
    let device = undo.begin(&image, 40_000).unwrap();
    image.resize(90_000).unwrap();
    device.write_at(0, &[2; 90_000]).unwrap();
    device.flush().unwrap();
    drop(device);
    assert!(undo.is_incomplete().unwrap());
    assert!(matches!(undo.begin(&image, 40_000), Err(DeviceError::Open { .. })));
    assert!(undo.settle(&image).unwrap());
    assert_eq!(image.size_bytes(), 40_000);
    let mut found = vec![0; 40_000];
    image.read_at(0, &mut found).unwrap();
    assert!(found[..20_000].iter().all(|&byte| byte == 1));
    assert!(found[20_000..].iter().all(|&byte| byte == 0));
    assert!(!undo.path().exists() && !undo.is_incomplete().unwrap());

    // A foreign file of this name stays.
    std::fs::write(undo.path(), "my notes").unwrap();
    assert!(undo.settle(&image).is_err() && undo.path().exists());
    let mut late = vec![0; 9000];
    late[8000] = 1;
    std::fs::write(undo.path(), late).unwrap();
    assert!(undo.settle(&image).is_err() && undo.path().exists());
    std::fs::write(undo.path(), [0; 100]).unwrap();
    assert!(!undo.settle(&image).unwrap());
    assert!(!undo.path().exists());
}

/// In a folder where all may make files, somebody else's log could write anything into the image.
#[test]
fn a_log_of_somebody_else_is_not_obeyed() {
    if !is_root("a log of another user") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let image = FileDevice::create(&path, 40_000, Existing::Refuse).unwrap();
    let undo = UndoFile::beside(&path);
    let device = undo.begin(&image, 40_000).unwrap();
    device.write_at(0, &[2; 20_000]).unwrap();
    device.flush().unwrap();
    drop(device);
    let first_byte = || {
        let mut byte = [0];
        image.read_at(0, &mut byte).unwrap();
        byte[0]
    };
    chown(undo.path(), Some(1234), None).unwrap();
    for settled in [undo.is_incomplete().map_err(UndoError::from), undo.settle(&image)] {
        let error = settled.unwrap_err().to_string();
        assert!(error.contains("user 1234"), "{error}");
    }
    // What isn't a log keeps nobody from the image.
    let other = UndoFile::beside(&folder.path().join("other"));
    std::fs::write(other.path(), "notes").unwrap();
    chown(other.path(), Some(1234), None).unwrap();
    assert!(!other.is_incomplete().unwrap() && first_byte() == 2);
    chown(&path, Some(1234), None).unwrap();
    // The log of a part of the image belongs to the image's owner, too.
    let part = UndoFile::beside_part(&path, 4096);
    std::fs::rename(undo.path(), part.path()).unwrap();
    assert!(part.is_incomplete().unwrap());
    std::fs::rename(part.path(), undo.path()).unwrap();
    assert!(undo.settle(&image).unwrap() && first_byte() == 0);
}

#[test]
fn a_kept_file_takes_a_complete_change_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let image = FileDevice::create(&path, 40_000, Existing::Refuse).unwrap();
    let undo = UndoFile::kept(folder.path().join("kept"));
    let device = undo.begin(&image, 40_000).unwrap();
    device.write_at(0, &[7; 40_000]).unwrap();
    undo.finish(device).unwrap();
    // Also the next change, which looks there for a log of its own.
    let [kept, beside] = ["kept", "image.undo"].map(|name| folder.path().join(name));
    std::fs::rename(&kept, &beside).unwrap();
    assert!(UndoFile::beside(&path).settle(&image).is_err());
    std::fs::rename(&beside, &kept).unwrap();
    assert!(!undo.is_incomplete().unwrap());
    drop(image);
    let image = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    // A log that could not be cut at its end is whole, too.
    let log = std::fs::OpenOptions::new().write(true).open(&kept).unwrap();
    log.set_len(70_000_000).unwrap();
    undo.check_complete().unwrap();
    // Nobody else reads old bytes.
    assert_eq!(undo.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    undo.take_back(&image).unwrap();
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
    assert!(!undo.path().exists());
}
