//! Makes images in files and on devices.

use crate::Error;
use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode, holds_data};
use drystone_mkfs::{NewImage, Options, Summary};
use drystone_nilfs2::mkfs::MakeOptions;
use std::io::ErrorKind;
use std::path::Path;

/// Makes an image at `path`: in a new file of `options.size_bytes`, in place of a file that is
/// there, or on a block device.
///
/// # Errors
///
/// [`Error::HoldsData`] if the file or device isn't empty, unless `overwrite`. What is at `path` is
/// untouched after that, and after any error that options or the size cause, or other users of it.
/// After any other error it is no image.
pub fn make_image(path: &Path, options: &Options, overwrite: bool) -> Result<Summary, Error> {
    let (device, is_new) = open_or_create(path, options.size_bytes, overwrite)?;
    // A file is all zeros then; a device may hold anything.
    let is_zeroed = !device.is_block_device();
    let image = match is_zeroed {
        true => lay_out_for_file(&device, options),
        false => NewImage::new(options).map_err(Error::from),
    };
    if image.is_err() && is_new {
        // What the options don't allow is what is told.
        let _ = std::fs::remove_file(path);
    }
    let image = image?;
    if is_zeroed {
        device.clear(options.size_bytes)?;
    }
    Ok(image.write(&device, is_zeroed)?)
}

/// Makes an image of NILFS2 at `path`: in a new file of `size_bytes`, in place of a file that is there, or
/// on a block device, whose size must be `size_bytes`.
///
/// # Errors
///
/// As [`make_image`]; [`Error::DeviceSize`] for a block device of another size.
pub fn make_nilfs2(
    path: &Path,
    size_bytes: u64,
    options: &MakeOptions,
    overwrite: bool,
) -> Result<(), Error> {
    // Before anything is touched.
    options.geometry(size_bytes)?;
    let (device, _) = open_or_create(path, size_bytes, overwrite)?;
    if !device.is_block_device() {
        device.clear(size_bytes)?;
    } else if device.size_bytes() != size_bytes {
        // Its second superblock is looked for at the end of the device.
        let bytes = device.size_bytes();
        return Err(Error::DeviceSize { bytes });
    }
    Ok(drystone_nilfs2::mkfs::make(&device, options)?)
}

/// Opens what is at `path`, or makes a file there; true if it was made.
fn open_or_create(
    path: &Path,
    size_bytes: u64,
    overwrite: bool,
) -> Result<(FileDevice, bool), Error> {
    let is_new = path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let device = match is_new {
        true => FileDevice::create(path, size_bytes, Existing::Refuse)?,
        false => FileDevice::open(path, OpenMode::ReadWrite)?,
    };
    if !is_new && !overwrite && holds_data(&device)? {
        return Err(Error::HoldsData);
    }
    Ok((device, is_new))
}

/// Lays out an image for a file, whose content stays. The system says first whether a file may be
/// so large: it would take much memory to lay out what no file can hold.
fn lay_out_for_file(file: &FileDevice, options: &Options) -> Result<NewImage, Error> {
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

/// The size of a file or device that exists, in bytes.
///
/// # Errors
///
/// What the host says of it; [`Error::InUse`] if another process has it open to write.
pub fn size_of(path: &Path) -> Result<u64, Error> {
    Ok(FileDevice::open(path, OpenMode::ReadOnly)?.size_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Information;

    #[test]
    fn what_holds_data_is_kept_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        let options = Options::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
        let summary = make_image(&path, &options, false).unwrap();
        let Information::Ext4(information) = Information::read(&path).unwrap() else {
            panic!("not ext4");
        };
        assert_eq!(information.blocks, summary.blocks);
        assert_eq!(information.created, 1_000_000_000);
        assert!(matches!(make_image(&path, &options, false), Err(Error::HoldsData)));
        let before = std::fs::read(&path).unwrap();
        make_image(&path, &options, true).unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "the same options gave another image");
        assert_eq!(size_of(&path).unwrap(), 8 << 20);
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        make_image(&path, &options, false).unwrap();
    }

    #[test]
    fn what_makes_no_image_leaves_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let mut wrong = Options::new(8 << 20, [1; 16], [2; 4], 1_000_000_000);
        wrong.block_size = Some(3000);
        // Larger than any file, and too small for what every image has.
        let sizes =
            [i64::MAX as u64, 4096].map(|size| Options { size_bytes: size, ..wrong.clone() });
        let sizes = sizes.map(|options| Options { block_size: None, ..options });
        for options in [wrong].iter().chain(&sizes) {
            make_image(&path, options, true).unwrap_err();
            assert!(std::fs::read(&path).unwrap() == vec![7; 1 << 20], "{options:?}");
            let new = folder.path().join("new.img");
            make_image(&new, &Options { size_bytes: 4096, ..options.clone() }, false).unwrap_err();
            assert!(!new.exists());
        }
    }
}
