//! Makes images in files, on devices and in partitions.

use crate::error::on_image;
use crate::{Error, ErrorCause, VolumeName};
use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode, edges_hold_data, holds_data};
use drystone_mkfs::{ImageSummary, MkfsOptions, NewImage};
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_sync::Arc;
use drystone_volumes::{VolumeError, is_named_qcow2, open_unless_raw, undo_file_as_named};
use std::io::ErrorKind;
use std::path::Path;

/// Makes an image where `name` says ([`VolumeName`]): in a new file of `options.size_bytes` (a qcow2, if it is called `*.qcow2`), in place of a
/// file that is there, on a block device, or in a partition.
///
/// # Errors
///
/// [`ErrorCause::HoldsData`] if the file or device isn't empty, unless `overwrite`. What is there is
/// untouched after that, and after any error that options or the size cause, or other users of it.
/// After any other error it isn't an image.
pub fn make_image(
    name: &Path,
    options: &MkfsOptions,
    overwrite: bool,
) -> Result<ImageSummary, Error> {
    on_image("make", name, || {
        let name = VolumeName::find_whole(name)?;
        // Afterwards, a part may have another label than the one that names it.
        let undo = undo_file_as_named(&name)?;
        let place = open_or_create(&name, options.size_bytes, overwrite)?;
        let made = keep_if_made(place, name.source(), |place| match place {
            MakingPlace::File { device, .. } => {
                let image = lay_out_for_file(&device, options)?;
                device.clear(options.size_bytes)?;
                Ok(image.write(&device, true)?)
            }
            // It may hold anything.
            MakingPlace::Fixed(device) => Ok(NewImage::new(options)?.write(&*device, false)?),
            MakingPlace::NewContainer(file) => {
                let image = NewImage::new(options)?;
                Ok(image.write(&*new_qcow2(file, options.size_bytes)?, true)?)
            }
        })?;
        undo.forget()?;
        Ok(made)
    })
}

/// Makes an image of NILFS2 where `name` says ([`VolumeName`]): in a new file of `size_bytes`, in place of a
/// file that is there, or on a block device or in a partition, whose size must be `size_bytes`.
///
/// # Errors
///
/// As [`make_image`]; [`ErrorCause::DeviceSize`] for a block device or partition of another size.
pub fn make_nilfs2(
    name: &Path,
    size_bytes: u64,
    options: &MakeOptions,
    overwrite: bool,
) -> Result<(), Error> {
    on_image("make", name, || {
        // Before anything is touched.
        options.geometry(size_bytes)?;
        let name = VolumeName::find_whole(name)?;
        let undo = undo_file_as_named(&name)?;
        let place = open_or_create(&name, size_bytes, overwrite)?;
        keep_if_made(place, name.source(), |place| match place {
            MakingPlace::File { device, .. } => {
                device.clear(size_bytes)?;
                Ok(drystone_nilfs2::mkfs::make(&device, options)?)
            }
            // Its second superblock is looked for at the end of the device.
            MakingPlace::Fixed(device) if device.size_bytes() != size_bytes => {
                Err(ErrorCause::DeviceSize { bytes: device.size_bytes() }.into())
            }
            MakingPlace::Fixed(device) => Ok(drystone_nilfs2::mkfs::make(&*device, options)?),
            MakingPlace::NewContainer(file) => {
                Ok(drystone_nilfs2::mkfs::make(&*new_qcow2(file, size_bytes)?, options)?)
            }
        })?;
        Ok(undo.forget()?)
    })
}

/// Where an image is made.
enum MakingPlace {
    /// A regular file, which gets the size that is wanted.
    File { device: FileDevice, is_new: bool },
    /// A block device or a part of something: its size is given, and it may hold anything.
    Fixed(Arc<dyn BlockDevice>),
    /// A new file for a qcow2.
    NewContainer(FileDevice),
}

/// Has `make` make an image at a place. A new file, at `path`, goes away if that fails.
fn keep_if_made<T>(
    place: MakingPlace,
    path: &Path,
    make: impl FnOnce(MakingPlace) -> Result<T, Error>,
) -> Result<T, Error> {
    let is_new =
        matches!(place, MakingPlace::File { is_new: true, .. } | MakingPlace::NewContainer(_));
    let made = make(place);
    if made.is_err() && is_new {
        // What is told is why it couldn't be made.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Opens what a name stands for, or makes a file.
fn open_or_create(
    name: &VolumeName,
    size_bytes: u64,
    overwrite: bool,
) -> Result<MakingPlace, Error> {
    let path = name.source();
    let is_new = name.parts().is_empty()
        && !name.is_remote()
        && path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let fixed = match name.parts() {
        _ if is_new => {
            name.check_new()?;
            None
        }
        [] => open_unless_raw(name, OpenMode::ReadWrite)?,
        _ => Some(drystone_volumes::open_as_named(name, OpenMode::ReadWrite)?),
    };
    if let Some(device) = fixed {
        return match overwrite || !edges_hold_data(&device)? {
            true => Ok(MakingPlace::Fixed(device)),
            false => Err(ErrorCause::HoldsData.into()),
        };
    }
    if is_new && is_named_qcow2(path) {
        let file = FileDevice::create(path, 0, Existing::Refuse)?;
        return Ok(MakingPlace::NewContainer(file));
    }
    let device = match is_new {
        true => FileDevice::create(path, size_bytes, Existing::Refuse)?,
        false => FileDevice::open(path, OpenMode::ReadWrite)?,
    };
    if !is_new && !overwrite && holds_data(&device)? {
        return Err(ErrorCause::HoldsData.into());
    }
    Ok(match device.is_block_device() {
        true => MakingPlace::Fixed(Arc::new(device)),
        false => MakingPlace::File { device, is_new },
    })
}

fn new_qcow2(file: FileDevice, size_bytes: u64) -> Result<Arc<dyn BlockDevice>, Error> {
    Ok(drystone_volumes::create_qcow2(file, size_bytes).map_err(VolumeError::from)?)
}

/// Lays out an image for a file, whose content stays. The system says first whether a file may be
/// so large: it would take much memory to lay out what no file can hold.
fn lay_out_for_file(file: &FileDevice, options: &MkfsOptions) -> Result<NewImage, Error> {
    let before = file.size_bytes();
    if options.size_bytes > before {
        file.resize(options.size_bytes)?;
    }
    let image = NewImage::new(options);
    if image.is_err() {
        file.resize(before)?;
    }
    Ok(image?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Information;

    #[test]
    fn what_holds_data_is_kept_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        let options = MkfsOptions::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
        let summary = make_image(&path, &options, false).unwrap();
        let Information::Ext4(information) = Information::read(&path).unwrap() else {
            panic!("not ext4");
        };
        assert_eq!(information.blocks, summary.blocks);
        assert_eq!(information.created, 1_000_000_000);
        let refused = make_image(&path, &options, false).unwrap_err();
        assert!(matches!(refused.cause(), ErrorCause::HoldsData));
        let before = std::fs::read(&path).unwrap();
        make_image(&path, &options, true).unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "the same options gave another image");
        assert_eq!(crate::size_of(&path).unwrap(), 8 << 20);
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        make_image(&path, &options, false).unwrap();
    }

    #[test]
    fn what_makes_no_image_leaves_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let mut wrong = MkfsOptions::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
        wrong.block_size = Some(3000);
        // Larger than any file, and too small for what every image has.
        let sizes = [i64::MAX as u64, 4096].map(|size| wrong.clone().size_bytes(size));
        let sizes = sizes.map(|options| options.block_size(None));
        for options in [wrong].iter().chain(&sizes) {
            make_image(&path, options, true).unwrap_err();
            assert!(std::fs::read(&path).unwrap() == vec![7; 1 << 20], "{options:?}");
            let new = folder.path().join("new.img");
            for new in [new.clone(), new.with_extension("qcow2")] {
                make_image(&new, &options.clone().size_bytes(4096), false).unwrap_err();
                assert!(!new.exists());
            }
        }
    }
}
