//! Makes images in files and on devices.

use crate::Error;
use drystone_blockdev::{BlockDevice, Existing, FileDevice, OpenMode};
use drystone_mkfs::{Options, Summary};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// As much of the start of a file is looked at to see whether it holds anything: the superblocks
/// and signatures of all common formats are there.
const START_BYTES: usize = 64 << 10;

/// Makes an image at `path`: in a new file of `options.size_bytes`, in place of a file that is
/// there, or on a block device.
///
/// # Errors
///
/// [`Error::HoldsData`] if the file or device isn't empty, unless `overwrite`. After any other
/// error what is at `path` is no image.
pub fn make_image(path: &Path, options: &Options, overwrite: bool) -> Result<Summary, Error> {
    let existing = path.metadata().ok();
    if existing.is_some() && !overwrite && holds_data(path)? {
        return Err(Error::HoldsData);
    }
    let is_device = existing.is_some_and(|existing| existing.file_type().is_block_device());
    let device = match is_device {
        true => FileDevice::open(path, OpenMode::ReadWrite)?,
        false => FileDevice::create(path, options.size_bytes, Existing::Overwrite)?,
    };
    // A file that was just made is all zeros; nobody knows what is on a device.
    Ok(drystone_mkfs::make(&device, options, !is_device)?)
}

/// The size of a file or device that exists, in bytes.
///
/// # Errors
///
/// What the host says of it; [`Error::InUse`] if somebody else has it open to write.
pub fn size_of(path: &Path) -> Result<u64, Error> {
    Ok(FileDevice::open(path, OpenMode::ReadOnly)?.size_bytes())
}

fn holds_data(path: &Path) -> Result<bool, Error> {
    let device = FileDevice::open(path, OpenMode::ReadOnly)?;
    let length = device.size_bytes().min(START_BYTES as u64);
    let mut start = vec![0; length as usize];
    device.read_at(0, &mut start)?;
    Ok(start.iter().any(|&byte| byte != 0))
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
        let information = Information::read(&path).unwrap();
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
}
