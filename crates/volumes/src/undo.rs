//! Where the undo log of a volume is while the volume is changed.
//!
//! # Crash
//!
//! The next opening has to find the log, whatever name the volume is given. So symbolic links are followed
//! first. The log of a file is beside it. Beside a block device it would be in memory only, and lost when
//! the machine stops: it is in [`LOG_FOLDER`], by a name that the device has after the next start too. A device
//! may have several, and gets others with other rules of the system: a log that is there under one is used. A
//! partition with a device of its own has the log that it has as a part of its disk. The log of a volume
//! behind a server is there too, by its address without what else is said of the connection.

use crate::open::{find_range, look};
use crate::{VolumeError, VolumeName, remote};
use drystone_blockdev::{OpenMode, UndoFile};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the logs of block devices and of servers' exports are.
const LOG_FOLDER: &str = "/var/lib/drystone";
/// Where the system has names for block devices that stay.
const STABLE_NAMES: &str = "/dev/disk/by-id";
/// Where the system describes block devices, by their numbers.
const DEVICES: &str = "/sys/dev/block";
/// The unit in which it tells where partitions begin.
const SECTOR_BYTES: u64 = 512;

/// The undo log that a change of a volume has while it runs. Whatever name the volume was given, this is the
/// same file.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn undo_file(name: &VolumeName) -> Result<UndoFile, VolumeError> {
    Ok(log_of(name, find_range(&look(name)?.device()?, name, OpenMode::ReadOnly, true)?))
}

/// The same for a volume that is about to be replaced, as it is named. A whole one isn't looked at: it need not
/// be there, and a server may end with its first connection.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn undo_file_as_named(name: &VolumeName) -> Result<UndoFile, VolumeError> {
    let range = match name.parts().is_empty() {
        true => None,
        false => find_range(&look(name)?.device()?, name, OpenMode::ReadOnly, false)?,
    };
    Ok(log_of(name, range))
}

fn log_of(name: &VolumeName, range: Option<Range<u64>>) -> UndoFile {
    let (paths, start) = beside(name);
    let place = (range.is_some() || start.is_some())
        .then(|| start.unwrap_or(0) + range.map_or(0, |range| range.start));
    first_log(&paths, place)
}

/// The log that is there beside one of these, and belongs to the volume that begins at `place`; if there is none,
/// where it is to be.
fn first_log(paths: &[PathBuf], place: Option<u64>) -> UndoFile {
    let files = paths.iter().map(|path| match place {
        Some(place) => UndoFile::beside_part(path, place),
        None => UndoFile::beside(path),
    });
    let mut files: Vec<UndoFile> = files.collect();
    // What can't be looked for may be there.
    let is_there = |file: &UndoFile| !matches!(file.path().try_exists(), Ok(false));
    let found = files.iter().position(is_there);
    files.swap_remove(found.unwrap_or(0))
}

/// What the log may be beside, the usual place first, and where the source begins in that, if the source is a
/// partition of it.
fn beside(name: &VolumeName) -> (Vec<PathBuf>, Option<u64>) {
    if let Some(address) = name.address() {
        let volume = remote::volume_name(address).replace('/', "%2F");
        return (vec![Path::new(LOG_FOLDER).join(volume)], None);
    }
    let source = name.source().canonicalize().unwrap_or_else(|_| name.source().to_owned());
    let Some(found) = source.metadata().ok().filter(|found| found.file_type().is_block_device())
    else {
        return (vec![source], None);
    };
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    match partition_of(&Path::new(DEVICES).join(format!("{major}:{minor}"))) {
        Some((disk, start)) => (device_logs(&disk, Path::new(STABLE_NAMES)), Some(start)),
        None => (device_logs(&source, Path::new(STABLE_NAMES)), None),
    }
}

/// The disk that a block device is a partition of, and where it begins there, by what the system says of it.
fn partition_of(description: &Path) -> Option<(PathBuf, u64)> {
    let description = description.canonicalize().ok()?;
    if !description.join("partition").exists() {
        return None;
    }
    let start = std::fs::read_to_string(description.join("start")).ok()?;
    let start = start.trim().parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?;
    // Names of devices may have slashes, which are marks there.
    let disk = description.parent()?.file_name()?.to_str()?.replace('!', "/");
    Some((Path::new("/dev").join(disk), start))
}

/// What the log of a block device would be beside, by its names in a folder of stable ones. There is always one.
fn device_logs(device: &Path, stable_names: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(stable_names).into_iter().flatten().flatten();
    let is_same = |path: &Path| path.canonicalize().is_ok_and(|found| found == device);
    let names = entries.filter(|entry| is_same(&entry.path())).map(|entry| entry.file_name());
    let mut names: Vec<OsString> = names.collect();
    names.sort_unstable();
    if names.is_empty() {
        names.push(device.to_string_lossy().trim_start_matches('/').replace('/', "-").into());
    }
    names.iter().map(|name| Path::new(LOG_FOLDER).join(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_one_log_whatever_is_said_of_the_connection() {
        let beside = |name: &str| beside(&VolumeName::find(Path::new(name)).unwrap()).0.remove(0);
        let log = beside("nbd://host/export");
        for name in
            ["nbd://host:10809/export", "nbd://HOST/export?timeout=5", "nbd://host/%65xport"]
        {
            assert_eq!(beside(name), log, "{name}");
        }
        let log = beside("nbd+unix:///export?socket=/no/where");
        assert_eq!(beside("nbd+unix:///export?connections=1&socket=/no/%77here"), log);
        for name in ["nbd://host/other", "nbd://host:1/export", "nbd://other/export"] {
            assert_ne!(beside(name), beside("nbd://host/export"), "{name}");
        }
    }

    /// Rules of the system give it a name that comes first.
    #[test]
    fn a_log_is_found_by_any_name_of_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().canonicalize().unwrap().join("sdb");
        std::fs::write(&device, "").unwrap();
        let names = |device: &Path| {
            let logs = device_logs(device, folder.path());
            logs.iter().map(|log| log.file_name().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            device_logs(Path::new("/dev/x/y"), folder.path()),
            [Path::new(LOG_FOLDER).join("dev-x-y")]
        );
        for name in ["wwn-1", "ata-1"] {
            std::os::unix::fs::symlink(&device, folder.path().join(name)).unwrap();
        }
        assert_eq!(names(&device), ["ata-1", "sdb", "wwn-1"]);
        let paths = ["ata-1", "wwn-1"].map(|name| folder.path().join(name));
        let log = |place| first_log(&paths, place).path().file_name().unwrap().to_owned();
        assert_eq!(log(Some(7)), "ata-1@7.undo");
        std::fs::write(folder.path().join("wwn-1@7.undo"), "").unwrap();
        assert_eq!((log(Some(7)), log(None)), ("wwn-1@7.undo".into(), "ata-1.undo".into()));
    }

    /// `/dev/sdb2` is `/dev/sdb#2`.
    #[test]
    fn a_partition_with_a_device_belongs_to_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("devices/cciss!c0d0");
        let partition = disk.join("cciss!c0d0p2");
        std::fs::create_dir_all(&partition).unwrap();
        std::fs::write(partition.join("partition"), "2\n").unwrap();
        std::fs::write(partition.join("start"), "2048\n").unwrap();
        let number = folder.path().join("104:2");
        std::os::unix::fs::symlink(&partition, &number).unwrap();
        assert_eq!(partition_of(&number), Some(("/dev/cciss/c0d0".into(), 1 << 20)));
        assert_eq!(partition_of(&disk), None);
    }
}
