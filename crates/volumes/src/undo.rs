//! Where the undo log of a volume is while the volume is changed.
//!
//! # Crash
//!
//! The next opening has to find the log, whatever name the volume is given. So symbolic links are followed
//! first. The log of a file is beside it. Beside a block device it would be in memory only, and lost when the
//! machine stops: it is in [`LOG_FOLDER`], by a name that the device has after the next start too. The log of an
//! export of a server is there too, by its address.

use crate::open::{find_range, look};
use crate::{VolumeError, VolumeName};
use drystone_blockdev::UndoFile;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Where the logs of block devices and of servers' exports are.
const LOG_FOLDER: &str = "/var/lib/drystone";
/// Where the system has names for block devices that stay.
const STABLE_NAMES: &str = "/dev/disk/by-id";

/// The undo log that a change of a volume has while it runs. Whatever name the volume was given, this is the
/// same file.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn undo_file(name: &VolumeName) -> Result<UndoFile, VolumeError> {
    let range = find_range(&look(name)?.device()?, name, true)?;
    let mut path = beside(name).into_os_string();
    if let Some(range) = range {
        path.push(format!("@{}", range.start));
    }
    Ok(UndoFile::beside(Path::new(&path)))
}

/// What the log is beside.
fn beside(name: &VolumeName) -> PathBuf {
    if let Some(address) = name.address() {
        return Path::new(LOG_FOLDER).join(address.replace('/', "%2F"));
    }
    let source = name.source().canonicalize().unwrap_or_else(|_| name.source().to_owned());
    let is_device = source.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if is_device { device_log(&source) } else { source }
}

/// What the log of a block device would be beside.
fn device_log(device: &Path) -> PathBuf {
    let entries = std::fs::read_dir(STABLE_NAMES).into_iter().flatten().flatten();
    let is_same = |path: &Path| path.canonicalize().is_ok_and(|found| found == device);
    let names = entries.filter(|entry| is_same(&entry.path())).map(|entry| entry.file_name());
    let flat = || device.to_string_lossy().trim_start_matches('/').replace('/', "-").into();
    Path::new(LOG_FOLDER).join(names.min().unwrap_or_else(flat))
}
