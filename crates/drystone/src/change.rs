//! Changes images as a whole, with an undo log.
//!
//! # Crash
//! The log is beside the image while a change runs ([`undo_file`]). If the change is interrupted, the log
//! stays: nothing opens the image until the next change, or [`undo`], has rolled it back.

use crate::{Error, ErrorCause, FileSystemKind, Image, VolumeName};
use drystone_blockdev::{BlockDevice, FileDevice, UndoDevice, UndoFile, UndoTarget};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_fsck as fsck;
use drystone_reshape::{
    FreeSpaceAction, FreedSpace, NewSize, ReshapeProgress, Resized, Tuning, needs_recovery,
    new_size_bytes,
};
use drystone_volumes::{ChangeableVolume, undo_file};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How an image is changed as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Keeps the undo log in this file, so that [`undo`] can take the change back later. Otherwise there is
    /// a log beside the image while the change runs.
    pub undo: Option<PathBuf>,
}

/// Changes the settings of the ext4 image that `name` stands for. A journal that has to be replayed is, first.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open; [`ErrorCause::Reshape`] if the image can't be changed so. The image
/// is as it was, or will be when it is opened to be changed the next time.
pub fn tune_image(name: &Path, tuning: &Tuning, options: &ChangeOptions) -> Result<(), Error> {
    let image = open_settled(name)?;
    let is_checked = tuning.changes_structure();
    if is_checked {
        check(image.volume.device(), "checking", &mut |_| {})?;
    }
    change(&image, options, None, |device| {
        drystone_reshape::tune(device, tuning, now())?;
        if is_checked {
            check(device, "checking again", &mut |_| {})?;
        }
        Ok(())
    })
}

/// Grows or shrinks the ext4 image that `name` stands for. A regular file grows and is cut with it; a
/// partition or a block device keeps its size. The image is checked before and afterwards.
///
/// # Errors
///
/// As [`tune_image`]; [`ErrorCause::HasErrors`] if the image has errors; [`ErrorCause::NoRoom`] if it can't be as large.
pub fn resize_image(
    name: &Path,
    size: NewSize,
    options: &ChangeOptions,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Resized, Error> {
    let image = open_settled(name)?;
    let volume = &image.volume;
    check(volume.device(), "checking", progress)?;
    let size_bytes = new_size_bytes(volume.device(), size)?;
    let device_bytes = volume.device().size_bytes();
    let file = match volume {
        ChangeableVolume::Whole(file) if !file.is_block_device() => Some(file),
        _ if size_bytes > device_bytes => {
            return Err(ErrorCause::NoRoom { wanted: size_bytes, bytes: device_bytes }.into());
        }
        _ => None,
    };
    let growth = file.filter(|_| size_bytes > device_bytes);
    let resized = change(&image, options, growth.map(|file| (file, size_bytes)), |device| {
        let resized = drystone_reshape::resize(device, size, now(), progress)?;
        check(device, "checking again", progress)?;
        Ok(resized)
    })?;
    if let Some(file) = file {
        let end = resized.blocks * u64::from(resized.block_size);
        // A kept log restores only what is still there.
        if growth.is_some() || resized.blocks < resized.blocks_before && options.undo.is_none() {
            file.resize(end)?;
        }
    }
    Ok(resized)
}

/// Discards or zeroes the free blocks of the ext4 image that `name` stands for. The image is checked before,
/// so that what its bitmaps call free is free.
///
/// # Errors
///
/// As [`tune_image`]; [`ErrorCause::HasErrors`] if the image has errors.
pub fn clear_free_space(
    name: &Path,
    action: FreeSpaceAction,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<FreedSpace, Error> {
    let image = open_settled(name)?;
    let device = image.volume.device();
    check(device, "checking", progress)?;
    let step = match action {
        FreeSpaceAction::Discard => "discarding free blocks",
        FreeSpaceAction::Zero => "zeroing free blocks",
    };
    Ok(drystone_reshape::clear_free_space(&device, action, &mut |done, total| {
        progress(ReshapeProgress { step, done, total });
    })?)
}

/// Checks an image that has no journal to be replayed.
fn check(
    device: &dyn BlockDevice,
    step: &'static str,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<(), Error> {
    let options = fsck::CheckOptions { replay: false, problems_max: 1, now_seconds: None };
    let report = fsck::check(device, &options, &mut |told| {
        // What takes the time.
        if let fsck::CheckProgress::Step { pass: fsck::Pass::Inodes, done, total } = told {
            progress(ReshapeProgress { step, done, total });
        }
    })?;
    match report.problems.first() {
        Some(problem) if report.errors > 0 => {
            Err(ErrorCause::HasErrors { errors: report.errors, first: problem.to_string() }.into())
        }
        _ => Ok(()),
    }
}

/// Takes a change of the image that `name` stands for back: what is in `log`, if given, and otherwise an
/// interrupted change. False if there is none.
///
/// # Errors
///
/// [`ErrorCause::Undo`] if the image has changed since.
pub fn undo(name: &Path, log: Option<&Path>) -> Result<bool, Error> {
    let name = VolumeName::find_whole(name)?;
    // Looking for the volume takes a lock that its opening would keep out.
    let interrupted = undo_file(&name)?;
    let volume = ChangeableVolume::open(&name)?;
    let is_settled = interrupted.settle(&volume)?;
    let Some(log) = log else { return Ok(is_settled) };
    UndoFile::kept(log.to_owned()).take_back(&volume)?;
    Ok(true)
}

/// An ext4 image that is open to be changed.
pub(crate) struct SettledImage {
    pub volume: ChangeableVolume,
    pub undo: UndoFile,
}

/// Opens an ext4 image to be changed: an interrupted change is rolled back, and the journal replayed.
fn open_settled(name: &Path) -> Result<SettledImage, Error> {
    let volume_name = VolumeName::find_whole(name)?;
    let settled = open_rolled_back(&volume_name)?;
    if !needs_recovery(&superblock(settled.volume.device())?) {
        return Ok(settled);
    }
    drop(settled.volume);
    Image::open(name)?.close()?;
    Ok(SettledImage { volume: ChangeableVolume::open(&volume_name)?, undo: settled.undo })
}

/// Opens an ext4 image to be changed, whatever its journal holds: an interrupted change is rolled back.
pub(crate) fn open_rolled_back(name: &VolumeName) -> Result<SettledImage, Error> {
    let undo = undo_file(name)?;
    let volume = ChangeableVolume::open(name)?;
    undo.settle(&volume)?;
    match FileSystemKind::of(volume.device())? {
        Some(kind @ FileSystemKind::Nilfs2) => {
            Err(ErrorCause::Lacks { kind, what: "changes of the whole image" }.into())
        }
        // What is wrong with an unknown superblock is told when it is read.
        Some(FileSystemKind::Ext4) | None => Ok(SettledImage { volume, undo }),
    }
}

fn superblock(device: &dyn BlockDevice) -> Result<Superblock, Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    Ok(Superblock::check(&bytes).map_err(ErrorCause::Superblock)?)
}

/// Makes a change with an undo log, and rolls it back if it fails. For `growth` a file gets that size first.
pub(crate) fn change<T>(
    image: &SettledImage,
    options: &ChangeOptions,
    growth: Option<(&FileDevice, u64)>,
    body: impl FnOnce(&UndoDevice<&dyn BlockDevice, FileDevice>) -> Result<T, Error>,
) -> Result<T, Error> {
    let SettledImage { volume, undo } = image;
    let size_bytes = volume.device().size_bytes();
    let undo = match &options.undo {
        Some(path) if path.exists() => return Err(ErrorCause::LogExists(path.clone()).into()),
        // Beside the image the next change finds it if this one is interrupted.
        Some(_) => &UndoFile::kept(undo.path().to_owned()),
        None => undo,
    };
    if let Some((file, size_bytes)) = growth {
        file.resize(size_bytes)?;
    }
    let device = undo.begin(volume.device(), size_bytes)?;
    match body(&device) {
        Ok(value) => {
            undo.finish(device)?;
            if let Some(path) = &options.undo {
                move_file(undo.path(), path)?;
            }
            Ok(value)
        }
        Err(error) => {
            drop(device);
            undo.take_back(volume)?;
            Err(error)
        }
    }
}

/// Moves a file, to another file system too.
fn move_file(from: &Path, to: &Path) -> Result<(), Error> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            Ok(std::fs::copy(from, to).and_then(|_| std::fs::remove_file(from))?)
        }
        moved => Ok(moved?),
    }
}

/// In seconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(drystone_sync::clock::wall().0).unwrap_or(0)
}
