//! Changes settings, features and the size of ext4 images, with a check before and afterwards.
//!
//! # Crash
//! As in [`change`](crate::change): an interrupted change is rolled back.

use crate::change::{ChangeOptions, SettledImage, change, now, open_rolled_back};
use crate::error::on_image;
use crate::{Error, ErrorCause, Image, VolumeName};
use drystone_blockdev::{BlockDevice, UndoTarget};
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::mmp::{Mmp, MmpState};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_fsck as fsck;
use drystone_reshape::{
    Defragmented, FreeSpaceAction, FreedSpace, NewSize, ReshapeProgress, Resized, Tuned, Tuning,
    needs_recovery, new_size_bytes,
};
use drystone_volumes::{ChangeableVolume, FileSystemKind};
use std::path::Path;

/// Changes the settings of the ext4 image that `name` stands for. A journal that has to be replayed is, first.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open; [`ErrorCause::Reshape`] if the image can't be changed so. The image
/// is as it was, or will be when it is opened to be changed the next time.
pub fn tune_image(
    name: &Path,
    tuning: &Tuning,
    options: &ChangeOptions,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Tuned, Error> {
    on_image("tune", name, || {
        let image = open_settled(name)?;
        let is_checked = tuning.changes_structure();
        if is_checked {
            options.until_cancelled(image.volume.device(), |device| {
                check(device, "checking", progress)
            })?;
        }
        change(&image, options, None, |device| {
            let tuned = drystone_reshape::tune(device, tuning, now(), progress)?;
            if is_checked {
                check(device, "checking again", progress)?;
            }
            Ok(tuned)
        })
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
    on_image("resize", name, || {
        let image = open_settled(name)?;
        let volume = &image.volume;
        options.until_cancelled(volume.device(), |device| check(device, "checking", progress))?;
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
            if growth.is_some() {
                // An image that can't use all of its new size may end in front of the file's old end.
                file.resize(end.max(device_bytes))?;
            } else if resized.blocks < resized.blocks_before && options.undo.is_none() {
                // A kept log restores only what is still there.
                file.resize(end)?;
            }
        }
        Ok(resized)
    })
}

/// Moves the blocks of each file of the ext4 image that `name` stands for together, as far as free space allows. The
/// image is checked before and afterwards.
///
/// # Errors
///
/// As [`tune_image`]; [`ErrorCause::HasErrors`] if the image has errors.
pub fn defragment_image(
    name: &Path,
    options: &ChangeOptions,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Defragmented, Error> {
    on_image("defragment", name, || {
        let image = open_settled(name)?;
        options
            .until_cancelled(image.volume.device(), |device| check(device, "checking", progress))?;
        change(&image, options, None, |device| {
            let done = drystone_reshape::defragment(device, now(), progress)?;
            check(device, "checking again", progress)?;
            Ok(done)
        })
    })
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
    on_image("clear the free space of", name, || {
        let image = open_settled(name)?;
        let step = match action {
            FreeSpaceAction::Discard => "discarding free blocks",
            FreeSpaceAction::Zero => "zeroing free blocks",
        };
        // No mark keeps other machines away, as in a change with an undo log.
        drystone_ext4::while_claimed(image.volume.device(), |device| {
            check(device, "checking", progress)?;
            Ok(drystone_reshape::clear_free_space(&device, action, now(), &mut |done, total| {
                progress(ReshapeProgress { step, done, total });
            })?)
        })?
    })
}

/// Checks an image that has no journal to be replayed.
fn check(
    device: &dyn BlockDevice,
    step: &'static str,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<(), Error> {
    let options = fsck::CheckOptions::default().replay(false).problems_max(1).now_seconds(None);
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

/// Opens an ext4 image to be changed: an interrupted change is rolled back, and the journal replayed.
fn open_settled(name: &Path) -> Result<SettledImage, Error> {
    let volume_name = VolumeName::find_whole(name)?;
    let settled = open_rolled_back(&volume_name)?;
    let device = settled.volume.device();
    let found = superblock(device)?;
    if !needs_recovery(&found) && !is_claimed(device, &found)? {
        return Ok(settled);
    }
    drop(settled.volume);
    Image::open(name)?.close()?;
    open_rolled_back(&volume_name)
}

/// Whether a clean image is claimed by its multi-mount protection. The engine finds out if that is left of a mount
/// that died.
fn is_claimed(device: &dyn BlockDevice, superblock: &Superblock) -> Result<bool, Error> {
    let layout = superblock.layout();
    let has_mmp = superblock.features().incompat.contains(Incompat::MMP)
        && superblock.state().contains(StateFlags::CLEAN);
    let is_there = |&block: &PhysicalBlock| has_mmp && layout.contains_blocks(block, 1);
    let Some(block) = superblock.mmp_block().filter(is_there) else { return Ok(false) };
    let mut bytes = vec![0; layout.block_size()];
    device.read_at(block.get() << layout.log_block_size(), &mut bytes)?;
    let mmp = Mmp::check(&bytes, layout.checksum_seed(), block);
    Ok(matches!(mmp, Ok(Mmp { state: MmpState::Mounted(_), .. })))
}

fn superblock(device: &dyn BlockDevice) -> Result<Superblock, Error> {
    FileSystemKind::of(device)?.ok_or(ErrorCause::Unrecognized)?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    Ok(Superblock::check(&bytes).map_err(ErrorCause::Superblock)?)
}
