//! Changes images as a whole, with an undo log.
//!
//! # Crash
//! The log is beside the image while a change runs ([`undo_file`]). If the change is interrupted, the log
//! stays: nothing opens the image until the next change, or [`undo`], has rolled it back. Until then the superblock
//! has a feature that no other program knows either.

use crate::error::on_image;
use crate::{Error, ErrorCause, FileSystemKind, VolumeName};
use drystone_blockdev::{
    BlockDevice, Cancellable, DeviceError, FileDevice, UndoDevice, UndoFile, UndoTarget,
    sync_directory_of,
};
use drystone_ext4_format::superblock::mark_half_changed;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_volumes::{ChangeableVolume, undo_file};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How an image is changed as a whole.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChangeOptions {
    /// Keeps the undo log in this file, so that [`undo`] can take the change back later. Otherwise there is
    /// a log beside the image while the change runs.
    pub undo: Option<PathBuf>,
    /// Ends the change soon after this is set, for example by a signal: the image is rolled back, and the error is
    /// [`ErrorCause::Cancelled`].
    pub cancelled: Option<Arc<AtomicBool>>,
}

drystone_options::setters! {
    ChangeOptions {
        undo: impl Into<Option<PathBuf>>,
        cancelled: impl Into<Option<Arc<AtomicBool>>>,
    }
}

impl ChangeOptions {
    /// Has `body` work on the device until that is cancelled.
    pub(crate) fn until_cancelled<D: BlockDevice, T>(
        &self,
        device: D,
        body: impl FnOnce(&Cancellable<D>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let never = || Arc::new(AtomicBool::new(false));
        let cancelled = self.cancelled.clone().unwrap_or_else(never);
        let done = body(&Cancellable::new(device, Arc::clone(&cancelled)));
        match cancelled.load(Ordering::Relaxed) {
            // A check may have taken the reads that failed for damage, and a change can be complete.
            true => Err(ErrorCause::Cancelled.into()),
            false => done,
        }
    }
}

/// Undoes a change of the image that `name` stands for: the one that `log` belongs to, or without `log` an
/// interrupted one. Returns false if no change was interrupted.
///
/// # Errors
///
/// [`ErrorCause::Undo`] if the image has changed since.
pub fn undo(name: &Path, log: Option<&Path>) -> Result<bool, Error> {
    on_image("take back a change of", name, || {
        let name = VolumeName::find_whole(name)?;
        // Looking for the volume takes a lock that its opening would keep out.
        let beside = undo_file(&name)?;
        let volume = ChangeableVolume::open(&name)?;
        let Some(log) = log else { return Ok(beside.settle(&volume)?) };
        if is_same_place(log, beside.path()) {
            beside.take_back(&volume)?;
            return Ok(true);
        }
        let log = UndoFile::kept(log.to_owned());
        // Before a log beside the image is removed, which may be the only whole one.
        let checked = log.check_complete().map_err(Error::from);
        checked.map_err(|error| error.during("read the undo log").at(log.path()))?;
        beside.settle(&volume)?;
        let image = SettledImage { volume, undo: beside };
        // Undoing is a change like any other. If it is interrupted, nothing opens the image, and the log is still good.
        let size_bytes = change(&image, &ChangeOptions::default(), None, |device| {
            Ok(log.take_back_as_change(device)?)
        })?;
        image.volume.restore_size(size_bytes)?;
        log.remove()?;
        Ok(true)
    })
}

/// Whether two paths are one file, which need not exist.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    one == other || place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
}

/// An ext4 image that is open to be changed.
pub(crate) struct SettledImage {
    pub volume: ChangeableVolume,
    pub undo: UndoFile,
}

/// Opens an ext4 image to be changed, whatever its journal holds: an interrupted change is rolled back.
pub(crate) fn open_rolled_back(name: &VolumeName) -> Result<SettledImage, Error> {
    let undo = undo_file(name)?;
    let volume = ChangeableVolume::open(name)?;
    if undo.settle(&volume)? {
        let path = undo.path().display();
        tracing::warn!("an interrupted change was rolled back first, by {path}");
    }
    expect_ext4(volume.device())?;
    Ok(SettledImage { volume, undo })
}

/// Refuses NILFS2, which can't be repaired or changed as a whole.
pub(crate) fn expect_ext4(device: &dyn BlockDevice) -> Result<(), Error> {
    match FileSystemKind::of(device)? {
        Some(FileSystemKind::Nilfs2) => Err(ErrorCause::OnlyGrows.into()),
        // The caller reads the superblock and reports what is wrong with it.
        Some(FileSystemKind::Ext4) | None => Ok(()),
    }
}

/// The device of an image that is being changed: old bytes are logged, and the change can be cancelled.
pub(crate) type ChangedDevice<'u, 'd> =
    Cancellable<&'u UndoDevice<&'d dyn BlockDevice, FileDevice>>;

/// Makes a change with an undo log, and rolls it back if it fails or is cancelled. For `growth` a file gets that size first.
pub(crate) fn change<T>(
    image: &SettledImage,
    options: &ChangeOptions,
    growth: Option<(&FileDevice, u64)>,
    body: impl FnOnce(&ChangedDevice<'_, '_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let SettledImage { volume, undo } = image;
    let undo = match &options.undo {
        // The next change would take a log with this name for its own.
        Some(path) if is_same_place(path, undo.path()) => {
            return Err(ErrorCause::LogBeside(path.clone()).into());
        }
        // Beside the image the next change finds it if this one is interrupted.
        Some(path) => {
            reserve(path)?;
            &UndoFile::kept(undo.path().to_owned())
        }
        None => undo,
    };
    let changed =
        change_logged(volume, undo, growth, |device| options.until_cancelled(device, body));
    if let Some(path) = &options.undo {
        match &changed {
            Ok(_) => move_log(undo.path(), path)?,
            // The error of the change counts, not one of the removal.
            Err(_) => drop(std::fs::remove_file(path)),
        }
    }
    changed
}

fn change_logged<T>(
    volume: &ChangeableVolume,
    undo: &UndoFile,
    growth: Option<(&FileDevice, u64)>,
    body: impl FnOnce(&UndoDevice<&dyn BlockDevice, FileDevice>) -> Result<T, Error>,
) -> Result<T, Error> {
    let size_bytes = volume.device().size_bytes();
    let begun = undo.begin(volume.device(), size_bytes);
    let device =
        begun.map_err(|error| Error::from(error).during("make the undo log").at(undo.path()))?;
    // Linux and its tools don't look for the log, but they refuse the mark.
    let device = device.marked_by(mark_half_changed);
    let grown = growth.map_or(Ok(()), |(file, size_bytes)| file.resize(size_bytes));
    let changed = grown.map_err(Error::from).and_then(|()| body(&device));
    let (error, rolled_back) = match changed.and_then(|value| Ok(device.flush().map(|()| value)?)) {
        Ok(value) => match undo.finish(device) {
            Ok(left) => {
                warn_of_log(undo, left);
                return Ok(value);
            }
            Err(error) => (error.into(), undo.give_up_finish(volume)),
        },
        Err(error) => (error, undo.give_up(device, volume)),
    };
    match rolled_back {
        Ok(left) => {
            warn_of_log(undo, left);
            Err(error)
        }
        Err(rollback) => {
            let (change, log) = (Box::new(error), undo.path().to_owned());
            Err(ErrorCause::HalfChanged { change, rollback, log }.into())
        }
    }
}

/// Says why the log of a change that has ended isn't as it should be, which costs space alone.
fn warn_of_log(undo: &UndoFile, left: Option<DeviceError>) {
    if let Some(error) = left {
        let path = undo.path().display();
        tracing::warn!(
            "{path} can't be removed or cut at its end, though its change is over: {error}"
        );
    }
}

/// Makes the file in which a log is to be kept, before anything is changed. An empty file may be reused: a killed
/// change leaves one.
fn reserve(path: &Path) -> Result<(), Error> {
    if path.metadata().is_ok_and(|found| !found.is_file() || found.len() > 0) {
        return Err(ErrorCause::LogExists(path.to_owned()).into());
    }
    let mut options = OpenOptions::new();
    let made = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|error| Error::from(error).during("make the undo log").at(path))
}

/// Moves the log of a complete change over the file that was made for it, which may be in another file system.
fn move_log(from: &Path, to: &Path) -> Result<(), Error> {
    let moved = match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            copy_durably(from, to).and_then(|()| std::fs::remove_file(from))
        }
        moved => moved,
    };
    moved.map_err(|source| ErrorCause::LogStays {
        path: from.to_owned(),
        source: Arc::new(source),
    })?;
    // A power cut could bring it back to where the next change would remove it.
    sync_directory_of(to)?;
    Ok(sync_directory_of(from)?)
}

fn copy_durably(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut copy = OpenOptions::new().write(true).open(to)?;
    std::io::copy(&mut File::open(from)?, &mut copy)?;
    copy.sync_all()
}

/// In seconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(drystone_sync::clock::wall().0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::{DeviceOperation, Effect, Fault, Faulty, MemoryDevice, Trigger};

    const IMAGE_BYTES: usize = 64 << 10;

    /// An image that fails where a test says, and the log beside it.
    struct Sample {
        image: Arc<Faulty<MemoryDevice>>,
        volume: ChangeableVolume,
        undo: UndoFile,
        _folder: tempfile::TempDir,
    }

    impl Sample {
        fn new() -> Sample {
            let folder = tempfile::tempdir().unwrap();
            let image = Arc::new(Faulty::new(MemoryDevice::from_bytes(&[1; IMAGE_BYTES])));
            let volume = ChangeableVolume::Fixed(image.clone());
            Sample {
                image,
                volume,
                undo: UndoFile::beside(&folder.path().join("image")),
                _folder: folder,
            }
        }

        fn change(&self, body: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
            change_logged(&self.volume, &self.undo, None, |device| {
                device.write_at(8192, &[2; 8192])?;
                device.flush()?;
                body()
            })
        }

        fn is_as_before(&self) -> bool {
            let mut bytes = vec![0; IMAGE_BYTES];
            self.image.read_at(0, &mut bytes).unwrap();
            bytes == [1; IMAGE_BYTES]
        }

        /// Puts what can't be removed as a file in the place of the log.
        fn keep_log_from_being_removed(&self) {
            std::fs::remove_file(self.undo.path()).unwrap();
            std::fs::create_dir(self.undo.path()).unwrap();
        }
    }

    /// Whatever fails at the end of a change, it is rolled back, or the error says that it wasn't.
    #[test]
    fn a_change_that_cannot_end_is_rolled_back() {
        for operation in [DeviceOperation::Flush, DeviceOperation::Write] {
            let sound = Sample::new();
            sound.change(|| Ok(())).unwrap();
            let last = sound.image.operations(operation) - 1;
            for (trigger, is_rolled_back) in
                [(Trigger::Nth(last), true), (Trigger::From(last), false)]
            {
                let sample = Sample::new();
                let fault = Fault::of(operation, Effect::InputOutputError).when(trigger);
                sample.image.inject(fault);
                let cause = sample.change(|| Ok(())).unwrap_err().into_cause();
                if is_rolled_back {
                    assert!(matches!(cause, ErrorCause::Device(_)), "{cause:?}");
                } else {
                    let ErrorCause::HalfChanged { change, .. } = cause else { panic!("{cause:?}") };
                    assert!(matches!(change.into_cause(), ErrorCause::Device(_)));
                    assert!(sample.undo.path().exists());
                    sample.image.repair();
                    assert!(sample.undo.settle(&sample.volume).unwrap());
                }
                assert!(sample.is_as_before() && !sample.undo.path().exists());
            }
        }
    }

    /// A log that stays says nothing of the image.
    #[test]
    fn a_log_that_cannot_be_removed_fails_no_change() {
        let sample = Sample::new();
        let changed = sample.change(|| {
            sample.keep_log_from_being_removed();
            Ok(())
        });
        assert!(changed.is_ok() && !sample.is_as_before(), "{changed:?}");
        let sample = Sample::new();
        let changed = sample.change(|| {
            sample.keep_log_from_being_removed();
            Err(ErrorCause::Cancelled.into())
        });
        let cause = changed.unwrap_err().into_cause();
        assert!(matches!(cause, ErrorCause::Cancelled), "{cause:?}");
        assert!(sample.is_as_before());
    }
}
