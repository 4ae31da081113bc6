//! Changes that are taken back.

use crate::support::Sample;
use crate::tuning::label;
use drystone::reshape::{FreeSpaceAction, NewSize, Tuning};
use drystone::{
    ChangeOptions, Error, ErrorCause, Features, Image, clear_free_space, resize_image, tune_image,
    undo,
};
use drystone_blockdev::{BlockDevice, FileDevice, OpenMode, UndoFile};

#[test]
fn a_kept_log_takes_a_change_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let log = sample.beside("log");
    let options = ChangeOptions { undo: Some(log.clone()) };
    tune_image(&sample.path(), &label("new"), &options).unwrap();
    assert_eq!(sample.field("Filesystem volume name"), "new");
    let again = tune_image(&sample.path(), &label("newer"), &options);
    assert!(matches!(again.map_err(Error::into_cause), Err(ErrorCause::LogExists(_))));
    assert!(undo(&sample.path(), Some(&log)).unwrap() && !log.exists());
    assert!(std::fs::read(sample.path()).unwrap() == before);
    assert!(!undo(&sample.path(), None).unwrap());
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
    let options = ChangeOptions { undo: Some(log.clone()) };
    // The journal's blocks become free.
    let features = Features::parse("^has_journal").unwrap();
    let tuning = Tuning { features, ..Tuning::default() };
    tune_image(&sample.path(), &tuning, &options).unwrap();
    let tuned = std::fs::read(sample.path()).unwrap();
    let before = sample.tree();
    let later: [&dyn Fn(); 4] = [
        &|| clear(&sample, FreeSpaceAction::Discard),
        &|| clear(&sample, FreeSpaceAction::Zero),
        &|| Image::open(sample.path()).unwrap().close().unwrap(),
        // A change that fills free blocks, and is undone.
        &|| {
            let log = sample.beside("second");
            let options = ChangeOptions { undo: Some(log.clone()) };
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
    std::fs::write(sample.path(), &tuned).unwrap();
    assert!(undo(&sample.path(), Some(&log)).unwrap());
    sample.judge("undone", &before);
}

/// A rollback by a kept log is a change like any other: interrupted, it goes back itself.
#[test]
fn an_interrupted_rollback_goes_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let log = sample.beside("log");
    let options = ChangeOptions { undo: Some(log.clone()) };
    let beside = UndoFile::beside(&sample.path());
    let at_beside = ChangeOptions { undo: Some(beside.path().to_owned()) };
    let refused = tune_image(&sample.path(), &label("new"), &at_beside);
    assert!(matches!(refused.map_err(Error::into_cause), Err(ErrorCause::LogBeside(_))));
    tune_image(&sample.path(), &label("new"), &options).unwrap();
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

/// Nothing reads what may be half old, half new, until it is rolled back.
#[test]
fn an_interrupted_change_is_rolled_back() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let interrupt = || {
        let image = FileDevice::open(sample.path(), OpenMode::ReadWrite).unwrap();
        let size = image.size_bytes();
        let log = UndoFile::beside(&sample.path());
        let device = log.begin(&image, size).unwrap();
        device.write_at(0, &[7; 65536]).unwrap();
        device.flush().unwrap();
    };
    interrupt();
    let opened = Image::open(sample.path());
    assert!(matches!(opened.map_err(Error::into_cause), Err(ErrorCause::Interrupted)));
    assert!(undo(&sample.path(), None).unwrap());
    assert!(std::fs::read(sample.path()).unwrap() == before);
    interrupt();
    tune_image(&sample.path(), &label("new"), &ChangeOptions::default()).unwrap();
    assert_eq!(sample.field("Filesystem volume name"), "new");
}
