//! Looks inside ext4 images, which may be damaged, and sets single fields.

use crate::change::{ChangeOptions, change, open_rolled_back};
use crate::error::on_image;
use crate::settled::open_settled;
use crate::{Error, ErrorCause, FileSystemKind, VolumeError, VolumeName};
use drystone_blockdev::{
    BlockDevice, Cancellable, DeviceError, DeviceOperation, Existing, FileDevice, OpenMode,
    Overlay, UndoTarget,
};
use drystone_ext4_format::InodeNumber;
use drystone_inspect::{
    BlockOwner, Decoded, DeletedFile, Fragmentation, ImagePart, InodeName, InspectedImage,
    JournalLog, MetadataOptions, MetadataSummary, ScrambleKey, SetField, SetOptions, copy_metadata,
    copy_scrambled, find_deleted, fragmentation_of, inspect, names_of, owners_of,
};
use drystone_sync::Arc;
use drystone_volumes::{create_qcow2, is_named_qcow2};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Called with the current step, the number of inodes that were read, and the number of inodes.
pub(crate) type DeletedProgress<'p> = dyn FnMut(&'static str, u64, u64) + 'p;

/// What NILFS2 hasn't, in errors.
const INSPECTION: &str = "inspection: this works on ext4 only";
pub(crate) const UNDELETE: &str = "undelete: read the files in an older checkpoint (IMAGE@NUMBER)";

/// Has `body` read the ext4 volume that `name` stands for, after checking that no change of it was interrupted. What
/// is asked for is `what`.
pub(crate) fn look_into<T>(
    operation: &'static str,
    what: &'static str,
    name: &Path,
    body: impl FnOnce(&dyn BlockDevice) -> Result<T, Error>,
) -> Result<T, Error> {
    on_image(operation, name, || {
        let name = VolumeName::find_whole(name)?;
        let device = open_settled(&name, OpenMode::ReadOnly)?;
        if let Some(kind @ FileSystemKind::Nilfs2) = FileSystemKind::of(&*device)? {
            return Err(ErrorCause::Lacks { kind, what }.into());
        }
        body(&*device)
    })
}

/// Shows a part of the ext4 image that `name` stands for, as it is stored. Its journal isn't replayed.
///
/// # Errors
///
/// [`ErrorCause::Inspect`](crate::ErrorCause::Inspect) if there is no such part. Damage is no error: it is shown.
pub fn inspect_image(name: &Path, subject: &ImagePart) -> Result<Decoded, Error> {
    look_into("inspect", INSPECTION, name, |device| Ok(inspect(device, subject)?))
}

/// Sets fields of a part of the ext4 image that `name` stands for, as [`inspection::set_fields`] says: each assignment
/// is `FIELD=VALUE`. The journal isn't replayed, and nothing but the fields and their checksums changes. The image may
/// be damaged before and will be afterwards, if the values say so: this is for tests and for repairs by hand.
///
/// # Errors
///
/// [`ErrorCause::Inspect`](crate::ErrorCause::Inspect) if a field can't be set so;
/// [`ErrorCause::InUse`](crate::ErrorCause::InUse) if a process has it open;
/// [`ErrorCause::Engine`](crate::ErrorCause::Engine) if another machine does, as its multi-mount protection says. The
/// image is as it was, or will be when it is opened to be changed the next time.
///
/// [`inspection::set_fields`]: crate::inspection::set_fields
pub fn set_fields(
    name: &Path,
    part: &ImagePart,
    assignments: &[String],
    set: SetOptions,
    options: &ChangeOptions,
) -> Result<Vec<SetField>, Error> {
    on_image("set a field of", name, || {
        let image = open_rolled_back(&VolumeName::find_whole(name)?)?;
        // The locks of this machine don't keep others out.
        drystone_ext4::check_multi_mount(image.volume.device())?;
        change(&image, options, None, |device| {
            Ok(drystone_inspect::set_fields(device, part, assignments, set)?)
        })
    })
}

/// What each of these blocks is for, in the ext4 image that `name` stands for.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn which_inode(name: &Path, blocks: &[u64]) -> Result<Vec<BlockOwner>, Error> {
    look_into("inspect", INSPECTION, name, |device| {
        Ok(owners_of(&InspectedImage::open(device)?, blocks)?)
    })
}

/// All names of these inodes, in the ext4 image that `name` stands for.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn which_name(name: &Path, inodes: &[u32]) -> Result<Vec<InodeName>, Error> {
    look_into("inspect", INSPECTION, name, |device| {
        let inodes: Vec<InodeNumber> =
            inodes.iter().map(|&inode| InodeNumber::new(inode)).collect();
        Ok(names_of(&InspectedImage::open(device)?, &inodes)?)
    })
}

/// Measures how fragmented files and free space of the ext4 image are that `name` stands for. Its journal isn't
/// replayed. `progress` is called with the number of inodes that were read, and the number of inodes.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn fragmentation(
    name: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Fragmentation, Error> {
    look_into("inspect", "report on fragmentation", name, |device| {
        Ok(fragmentation_of(&InspectedImage::open(device)?, progress)?)
    })
}

/// Finds the files that were deleted from the ext4 image that `name` stands for. The image isn't changed: its journal
/// is replayed in memory. `progress` is called with the current step, the number of inodes that were read, and the
/// number of inodes.
///
/// # Errors
///
/// As for [`inspect_image`].
pub fn deleted_files(
    name: &Path,
    progress: &mut DeletedProgress<'_>,
) -> Result<Vec<DeletedFile>, Error> {
    look_into("look for deleted files in", UNDELETE, name, |device| {
        with_deleted(device, progress, |_, files| Ok(files))
    })
}

/// Calls `body` with the image as a replay of its journal leaves it, and with its deleted files.
pub(crate) fn with_deleted<T>(
    device: &dyn BlockDevice,
    progress: &mut DeletedProgress<'_>,
    body: impl FnOnce(&InspectedImage<'_>, Vec<DeletedFile>) -> Result<T, Error>,
) -> Result<T, Error> {
    let stored = InspectedImage::open(device)?;
    let log = JournalLog::read(&stored)?;
    let view = Overlay::new(device);
    log.replay(&stored, &view)?;
    let image = InspectedImage::open(&view)?;
    let files = find_deleted(&image, &log, progress)?;
    body(&image, files)
}

/// Copies the metadata of the ext4 image that `name` stands for to a new file, without the data of files, for a bug
/// report. The file is sparse, or a qcow2 if its name ends with `.qcow2`. The journal isn't replayed, unless the copy is
/// scrambled. `progress` is called with the number of inodes that were read, and the number of inodes.
///
/// # Errors
///
/// A file of that name exists; otherwise as for [`inspect_image`].
pub fn save_metadata(
    name: &Path,
    target: &Path,
    options: &MetadataOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MetadataSummary, Error> {
    look_into("copy the metadata of", "copy of its metadata", name, |device| {
        let image = InspectedImage::open(device)?;
        let size_bytes = device.size_bytes();
        let made = FileDevice::create(target, 0, Existing::Refuse);
        let file = made.map_err(|error| Error::from(error).during("make").at(target))?;
        let written = write_metadata(&image, size_bytes, file, target, options, progress);
        if written.is_err() {
            // It was made by this call.
            let _ = std::fs::remove_file(target);
        }
        written
    })
}

/// Copies metadata to the new, empty file `target`, as which it is open.
fn write_metadata(
    image: &InspectedImage<'_>,
    size_bytes: u64,
    file: FileDevice,
    target: &Path,
    options: &MetadataOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MetadataSummary, Error> {
    // It holds names and content of files that not everybody may read.
    std::fs::set_permissions(target, Permissions::from_mode(0o600))
        .map_err(|error| Error::from(error).during("protect").at(target))?;
    let made = match is_named_qcow2(target) {
        true => create_qcow2(file, size_bytes).map_err(|error| VolumeError::from(error).into()),
        false => file
            .resize(size_bytes)
            .map(|()| Arc::new(file) as Arc<dyn BlockDevice>)
            .map_err(Error::from),
    };
    let copy = made.map_err(|error: Error| error.during("make").at(target))?;
    let copy: Arc<dyn BlockDevice> = match &options.cancelled {
        Some(cancelled) => Arc::new(Cancellable::new(copy, Arc::clone(cancelled))),
        None => copy,
    };
    let copied = match options.scramble {
        true => copy_scrambled(image, &copy, ScrambleKey::random(), progress),
        false => copy_metadata(image, &copy, progress),
    };
    copied.map_err(|error| match Error::from(error) {
        error if matches!(error.cause(), ErrorCause::Device(DeviceError::Cancelled)) => {
            ErrorCause::Cancelled.into()
        }
        error if is_of_write(error.cause()) => error.during("write").at(target),
        error => error,
    })
}

/// Whether a device failed at something else than a read.
fn is_of_write(cause: &ErrorCause) -> bool {
    match cause {
        ErrorCause::Device(DeviceError::NoSpace { .. } | DeviceError::FlushFailed { .. }) => true,
        ErrorCause::Device(DeviceError::Io { operation, .. }) => {
            *operation != DeviceOperation::Read
        }
        _ => false,
    }
}
