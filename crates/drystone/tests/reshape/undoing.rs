//! Changes that are taken back.

use crate::support::Sample;
use crate::tuning::label;
use drystone::fsck::{CheckOptions, Decision};
use drystone::reshape::{FreeSpaceAction, NewSize, Tuning};
use drystone::{
    ChangeOptions, Error, ErrorCause, Features, Image, VolumeName, check_image, clear_free_space,
    make_image, make_nilfs2, repair_image, resize_image, tune_image, undo,
};
use drystone_blockdev::{BlockDevice, FileDevice, OpenMode, UndoFile};
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::superblock::Superblock;
use drystone_mkfs::MkfsOptions;
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_testkit::judges::{LoopDevice, run};
use drystone_volumes::undo_file;
use std::ffi::OsStr;
use std::path::Path;
use uuid::Uuid;

#[test]
fn a_kept_log_takes_a_change_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let log = sample.beside("log");
    let options = ChangeOptions::default().undo(log.clone());
    tune_image(&sample.path(), &label("new"), &options, &mut |_| {}).unwrap();
    assert_eq!(sample.field("Filesystem volume name"), "new");
    let again = tune_image(&sample.path(), &label("newer"), &options, &mut |_| {});
    assert!(matches!(again.map_err(Error::into_cause), Err(ErrorCause::LogExists(_))));
    assert!(undo(&sample.path(), Some(&log)).unwrap() && !log.exists());
    assert!(std::fs::read(sample.path()).unwrap() == before);
    assert!(!undo(&sample.path(), None).unwrap());
}

/// Growth never cuts a file: the log takes it to be as long as it was.
#[test]
fn a_growth_that_the_image_cannot_use_is_taken_back() {
    // One full group: what follows is too little for another.
    let Some(sample) = Sample::new("default", 128) else { return };
    let file = std::fs::OpenOptions::new().append(true).open(sample.path());
    std::io::Write::write_all(&mut file.unwrap(), &[7; 1 << 20]).unwrap();
    let before = std::fs::read(sample.path()).unwrap();
    let log = sample.beside("log");
    let options = ChangeOptions::default().undo(log.clone());
    let size = NewSize::Exactly(130 << 20);
    let resized = resize_image(&sample.path(), size, &options, &mut |_| {}).unwrap();
    assert_eq!(resized.blocks, resized.blocks_before);
    assert!(std::fs::read(sample.path()).unwrap() == before);
    assert!(undo(&sample.path(), Some(&log)).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == before);
}

/// The start of a log alone would leave an image of two halves.
#[test]
fn a_log_that_was_cut_short_is_refused() {
    let Some(sample) = Sample::new("default-1k", 40) else { return };
    let log = sample.beside("log");
    let options = ChangeOptions::default().undo(log.clone());
    resize_image(&sample.path(), NewSize::Minimum, &options, &mut |_| {}).unwrap();
    let (after, whole) = (std::fs::read(sample.path()).unwrap(), std::fs::read(&log).unwrap());
    // A rollback by the whole log was interrupted, which its own log makes good.
    let beside = UndoFile::beside(&sample.path());
    interrupt(&sample.path(), &beside);
    let interrupted = std::fs::read(sample.path()).unwrap();
    for length in [whole.len() / 2, 8192, 100] {
        std::fs::write(&log, &whole[..length]).unwrap();
        let undone = undo(&sample.path(), Some(&log)).map_err(Error::into_cause);
        assert!(matches!(undone, Err(ErrorCause::Undo(_))), "{length}: {undone:?}");
        assert_eq!(log.metadata().unwrap().len(), length as u64);
        assert!(beside.is_incomplete().unwrap());
        assert!(std::fs::read(sample.path()).unwrap() == interrupted, "{length}");
    }
    assert!(undo(&sample.path(), None).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == after);
}

/// No lock of this machine says that another one has the image mounted.
#[test]
fn what_another_machine_uses_is_not_repaired() {
    let Some(sample) = Sample::new("mmp", 16) else { return };
    let bytes = claim(&sample, MmpState::Checking);
    let mut yes = |_: &_, _| Decision::Repair;
    let options = ChangeOptions::default();
    let refused =
        repair_image(&sample.path(), &options, &CheckOptions::default(), &mut yes, &mut |_| {});
    assert!(matches!(refused.map_err(Error::into_cause), Err(ErrorCause::Engine(_))));
    assert!(std::fs::read(sample.path()).unwrap() == bytes);
}

/// A failed rollback doesn't hide why there was one.
#[test]
fn a_change_that_cannot_be_rolled_back_says_why_it_failed() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let damage = ["-w", "-R", "set_inode_field <11> links_count 7"].map(OsStr::new);
    run("debugfs", damage.into_iter().chain([sample.path().as_os_str()])).unwrap();
    let beside = UndoFile::beside(&sample.path());
    let mut cancel = |_: &_, _| {
        std::fs::write(beside.path(), [b'X'; 8192]).unwrap();
        Decision::Cancel
    };
    let (change, check) = (ChangeOptions::default(), CheckOptions::default());
    let error =
        repair_image(&sample.path(), &change, &check, &mut cancel, &mut |_| {}).unwrap_err();
    let ErrorCause::HalfChanged { change, log, .. } = error.into_cause() else { panic!() };
    assert!(matches!(change.into_cause(), ErrorCause::Cancelled));
    assert_eq!(log, beside.path());
}

/// Wherever a change is cancelled, the image is as it was.
#[test]
fn a_change_that_is_cancelled_is_rolled_back() {
    let Some(sample) = Sample::new("default", 40) else { return };
    let fields =
        || ["Block count", "Free blocks", "Filesystem features"].map(|name| sample.field(name));
    let before = fields();
    let mut steps = Vec::new();
    loop {
        let cancelled = Arc::new(AtomicBool::new(false));
        let options = ChangeOptions::default().cancelled(Arc::clone(&cancelled));
        let resized = resize_image(&sample.path(), NewSize::Minimum, &options, &mut |progress| {
            // Each time at the first step that is new.
            if !cancelled.load(Ordering::Relaxed) && !steps.contains(&progress.step) {
                steps.push(progress.step);
                cancelled.store(true, Ordering::Relaxed);
            }
        });
        if !cancelled.load(Ordering::Relaxed) {
            resized.unwrap();
            break;
        }
        let cause = resized.unwrap_err().into_cause();
        assert!(matches!(cause, ErrorCause::Cancelled), "{steps:?}: {cause:?}");
        assert_eq!(fields(), before, "{steps:?}");
        let checked = check_image(&sample.path(), &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(checked.is_clean(), "{steps:?}: {:?}", checked.problems);
        assert!(!UndoFile::beside(&sample.path()).path().exists(), "{steps:?}");
    }
    assert!(steps.contains(&"checking") && steps.contains(&"checking again"), "{steps:?}");
}

/// That it is dead shows after twenty seconds.
#[test]
#[ignore = "long: ./dev stress runs it"]
fn a_mount_that_died_does_not_keep_an_image_from_being_changed() {
    let Some(sample) = Sample::new("mmp", 16) else { return };
    claim(&sample, MmpState::Mounted(7));
    tune_image(&sample.path(), &label("new"), &ChangeOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(sample.field("Filesystem volume name"), "new");
}

/// Says in the block of multi-mount protection what uses an image. Returns all bytes.
fn claim(sample: &Sample, state: MmpState) -> Vec<u8> {
    let mut bytes = std::fs::read(sample.path()).unwrap();
    let superblock = Superblock::check(&bytes[1024..2048]).unwrap();
    let seed = superblock.layout().checksum_seed();
    let block = superblock.mmp_block().unwrap();
    let place = block.get() as usize * superblock.layout().block_size();
    let mmp = Mmp::check(&bytes[place..place + 1024], seed, block).unwrap();
    let used = Mmp { state, ..mmp };
    used.encode(&mut bytes[place..place + 1024], seed);
    std::fs::write(sample.path(), &bytes).unwrap();
    bytes
}

fn clear(sample: &Sample, action: FreeSpaceAction) {
    clear_free_space(&sample.path(), action, &mut |_| {}).unwrap();
}

/// What is in a kept log relies on blocks that it doesn't have: whatever may overwrite them changes the
/// superblock.
#[test]
fn a_kept_log_does_not_fit_an_image_that_changed_since() {
    let Some(sample) = Sample::new("default-1k", 40) else { return };
    sample.fill(1, 60);
    let log = sample.beside("log");
    let options = ChangeOptions::default().undo(log.clone());
    // The journal's blocks become free.
    let features = Features::parse("^has_journal").unwrap();
    let tuning = Tuning::default().features(features);
    tune_image(&sample.path(), &tuning, &options, &mut |_| {}).unwrap();
    let tuned = std::fs::read(sample.path()).unwrap();
    let before = sample.tree();
    let later: [&dyn Fn(); 5] = [
        // A repair that has nothing to mend in the superblock.
        &|| {
            let damage = ["-w", "-R", "set_inode_field <11> links_count 7"].map(OsStr::new);
            run("debugfs", damage.into_iter().chain([sample.path().as_os_str()])).unwrap();
            let mut damaged = std::fs::read(sample.path()).unwrap();
            damaged[1024..2048].copy_from_slice(&tuned[1024..2048]);
            std::fs::write(sample.path(), damaged).unwrap();
            let mut yes = |_: &_, _| Decision::Repair;
            let options = ChangeOptions::default();
            let report = repair_image(
                &sample.path(),
                &options,
                &CheckOptions::default(),
                &mut yes,
                &mut |_| {},
            )
            .unwrap();
            assert_eq!(report.repaired, 1);
        },
        &|| clear(&sample, FreeSpaceAction::Discard),
        &|| clear(&sample, FreeSpaceAction::Zero),
        &|| Image::open(sample.path()).unwrap().close().unwrap(),
        // A change that fills free blocks, and is undone.
        &|| {
            let log = sample.beside("second");
            let options = ChangeOptions::default().undo(log.clone());
            let size = NewSize::Minimum;
            resize_image(&sample.path(), size, &options, &mut |_| {}).unwrap();
            assert!(undo(&sample.path(), Some(&log)).unwrap());
        },
    ];
    for (number, change) in later.iter().enumerate() {
        std::fs::write(sample.path(), &tuned).unwrap();
        change();
        let undone = undo(&sample.path(), Some(&log)).map_err(Error::into_cause);
        assert!(matches!(undone, Err(ErrorCause::Undo(_))), "{number}: {undone:?}");
        assert!(log.exists());
        sample.judge(&format!("not undone after change {number}"), &before);
    }
    // What is refused leaves the log good.
    std::fs::write(sample.path(), &tuned).unwrap();
    for (size, undo) in [(NewSize::Exactly(300 << 10), None), (NewSize::Minimum, Some(log.clone()))]
    {
        resize_image(&sample.path(), size, &ChangeOptions::default().undo(undo), &mut |_| {})
            .unwrap_err();
    }
    assert!(undo(&sample.path(), Some(&log)).unwrap());
    sample.judge("undone", &before);
}

/// What would keep the log from being kept is told before anything is changed.
#[test]
fn a_log_that_can_not_be_kept_is_refused_first() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let tune = |name: &str, tuning: &Tuning| {
        let options = ChangeOptions::default().undo(sample.beside(name));
        tune_image(&sample.path(), tuning, &options, &mut |_| {})
    };
    let refused = tune("nowhere/log", &label("new")).unwrap_err().to_string();
    assert!(refused.contains("nowhere/log"), "{refused}");
    // A change that fails leaves none.
    tune("log", &label("seventeen letters")).unwrap_err();
    assert!(!sample.beside("log").exists());
    assert!(std::fs::read(sample.path()).unwrap() == before);
    // A change that was killed has left it empty.
    std::fs::write(sample.beside("log"), "").unwrap();
    tune("log", &label("new")).unwrap();
    // In another file system.
    let elsewhere = tempfile::Builder::new().tempdir_in("/dev/shm");
    let Ok(elsewhere) = elsewhere else { return };
    let log = elsewhere.path().join("log");
    let options = ChangeOptions::default().undo(log.clone());
    tune_image(&sample.path(), &label("newer"), &options, &mut |_| {}).unwrap();
    assert!(!UndoFile::beside(&sample.path()).path().exists());
    assert!(undo(&sample.path(), Some(&log)).unwrap() && !log.exists());
    assert!(undo(&sample.path(), Some(&sample.beside("log"))).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == before);
}

/// A rollback by a kept log is a change like any other: interrupted, it goes back itself.
#[test]
fn an_interrupted_rollback_goes_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let log = sample.beside("log");
    let options = ChangeOptions::default().undo(log.clone());
    let beside = UndoFile::beside(&sample.path());
    let at_beside = ChangeOptions::default().undo(beside.path().to_owned());
    let refused = tune_image(&sample.path(), &label("new"), &at_beside, &mut |_| {});
    assert!(matches!(refused.map_err(Error::into_cause), Err(ErrorCause::LogBeside(_))));
    tune_image(&sample.path(), &label("new"), &options, &mut |_| {}).unwrap();
    let tuned = std::fs::read(sample.path()).unwrap();
    {
        let image = FileDevice::open(sample.path(), OpenMode::ReadWrite).unwrap();
        let size = image.size_bytes();
        let device = beside.begin(&image, size).unwrap();
        UndoFile::kept(log.clone()).take_back_as_change(&device).unwrap();
    }
    assert!(std::fs::read(sample.path()).unwrap() == before);
    let opened = Image::open(sample.path());
    assert!(matches!(opened.map_err(Error::into_cause), Err(ErrorCause::Interrupted)));
    assert!(undo(&sample.path(), None).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == tuned);
    assert!(undo(&sample.path(), Some(&log)).unwrap() && !log.exists());
    assert!(std::fs::read(sample.path()).unwrap() == before);
}

/// Linux and its tools know nothing of the log.
#[test]
fn others_refuse_what_is_half_changed() {
    let Some(sample) = Sample::new("default-1k", 40) else { return };
    // The highest bit of the incompatible features, which nothing has a meaning for.
    let is_marked = || std::fs::read(sample.path()).unwrap()[1024 + 0x63] & 0x80 != 0;
    let mut was_marked = false;
    let (size, options) = (NewSize::Exactly(20 << 20), ChangeOptions::default());
    let resized = resize_image(&sample.path(), size, &options, &mut |progress| {
        was_marked |= progress.step == "checking again" && is_marked();
    });
    resized.unwrap();
    assert!(was_marked && !is_marked());
}

/// Nothing reads what may be half old, half new, until it is rolled back.
#[test]
fn an_interrupted_change_is_rolled_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let beside = UndoFile::beside(&sample.path());
    interrupt(&sample.path(), &beside);
    let opened = Image::open(sample.path());
    assert!(matches!(opened.map_err(Error::into_cause), Err(ErrorCause::Interrupted)));
    assert!(undo(&sample.path(), None).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == before);
    interrupt(&sample.path(), &beside);
    tune_image(&sample.path(), &label("new"), &ChangeOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(sample.field("Filesystem volume name"), "new");
}

/// A new image has nothing to do with a change of the old one.
#[test]
fn a_new_image_forgets_an_interrupted_change() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let beside = UndoFile::beside(&sample.path());
    interrupt(&sample.path(), &beside);
    let options = MkfsOptions::new(16 << 20, [1; 16], [2; 4], 1_000_000_000);
    make_image(&sample.path(), &options, true).unwrap();
    Image::open(sample.path()).unwrap().close().unwrap();
    interrupt(&sample.path(), &beside);
    let options = MakeOptions::new(Uuid::nil(), 1, 1).blocks_per_segment(64);
    make_nilfs2(&sample.path(), 16 << 20, &options, true).unwrap();
    assert!(!beside.path().exists());
    // What isn't a log stays.
    std::fs::write(beside.path(), "my notes").unwrap();
    make_nilfs2(&sample.path(), 16 << 20, &options, true).unwrap();
    assert_eq!(std::fs::read(beside.path()).unwrap(), b"my notes");
}

/// Whatever name an image is given, the log of an interrupted change is found.
#[test]
fn a_link_to_an_image_leads_to_its_log() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    std::fs::create_dir(sample.beside("folder")).unwrap();
    let link = sample.beside("folder/link.img");
    std::os::unix::fs::symlink("../disk.img", &link).unwrap();
    interrupt(&sample.path(), &UndoFile::beside(&sample.path()));
    let opened = Image::open(&link);
    assert!(matches!(opened.map_err(Error::into_cause), Err(ErrorCause::Interrupted)));
    assert!(undo(&link, None).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == before);
}

/// Beside a block device, a log would be lost when the machine stops.
#[test]
fn the_log_of_a_block_device_is_on_a_disk() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let Some(device) = LoopDevice::attach(&sample.path(), "a change of a block device").unwrap()
    else {
        return;
    };
    let log = undo_file(&VolumeName::of_file(&device.0)).unwrap();
    assert!(log.path().starts_with("/var/lib/drystone"), "{log:?}");
    let had_folder = log.path().parent().unwrap().exists();
    interrupt(&device.0, &log);
    let opened = Image::open(&device.0);
    assert!(matches!(opened.map_err(Error::into_cause), Err(ErrorCause::Interrupted)));
    assert!(undo(&device.0, None).unwrap() && !log.path().exists());
    tune_image(&device.0, &label("device"), &ChangeOptions::default(), &mut |_| {}).unwrap();
    let kept = ChangeOptions::default().undo(sample.beside("kept"));
    tune_image(&device.0, &label("again"), &kept, &mut |_| {}).unwrap();
    assert!(undo(&device.0, kept.undo.as_deref()).unwrap());
    drop(device);
    assert_eq!(sample.field("Filesystem volume name"), "device");
    assert_ne!(std::fs::read(sample.path()).unwrap(), before);
    if !had_folder {
        std::fs::remove_dir(log.path().parent().unwrap()).unwrap();
    }
}

/// Ends a change in the middle.
fn interrupt(path: &Path, log: &UndoFile) {
    let image = FileDevice::open(path, OpenMode::ReadWrite).unwrap();
    let size = image.size_bytes();
    let device = log.begin(&image, size).unwrap();
    device.write_at(0, &[7; 65536]).unwrap();
    device.flush().unwrap();
}
