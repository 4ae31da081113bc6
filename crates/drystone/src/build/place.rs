//! Where an image goes: a file that gets its name at the end, or a device.

use super::unfinished::{FilePlace, Unfinished};
use crate::{ErrorCause, Result, VolumeError, VolumeName};
use drystone_blockdev::{
    BlockDevice, DeviceError, FileDevice, OpenMode, UndoFile, edges_hold_data, holds_data,
};
use drystone_sync::Arc;
use drystone_volumes::{create_qcow2, is_named_qcow2, open_as_named, undo_file_as_named};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Where an image goes. A file that isn't finished goes away when this is dropped.
#[derive(Debug)]
pub struct BuildPlace {
    target: FileOrDevice,
    /// The log of an interrupted change of what is replaced, found under the name that was given: afterwards, a part
    /// may have another label than the one that names it, and a server be gone.
    undo: UndoFile,
}

/// A file or a device.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum FileOrDevice {
    /// A file that has another name until it is complete.
    File(NewFile),
    /// A block device or a partition.
    Device(Arc<dyn BlockDevice>),
}

/// A file that is made, or replaced.
#[derive(Debug)]
struct NewFile {
    path: PathBuf,
    place: FilePlace,
    /// The old file, held open and locked so that no other process begins to use it.
    _replaced: Option<FileDevice>,
    /// The new one, once it is open.
    unfinished: Option<Unfinished>,
}

impl BuildPlace {
    /// Looks at what `name` stands for and locks it.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::HoldsData`] if it isn't empty, unless `overwrite`; [`ErrorCause::InUse`] if another process uses
    /// it; it is neither a file nor a device.
    pub fn choose(name: &Path, overwrite: bool) -> Result<BuildPlace> {
        let name = VolumeName::find_whole(name)?;
        let path = name.source().to_owned();
        let undo = undo_file_as_named(&name)?;
        if !name.parts().is_empty() || name.is_remote() {
            let device = open_as_named(&name, OpenMode::ReadWrite)?;
            return match overwrite || !edges_hold_data(&device)? {
                true => Ok(BuildPlace { target: FileOrDevice::Device(device), undo }),
                false => Err(ErrorCause::HoldsData.into()),
            };
        }
        let place = FilePlace::find(&path)?;
        let _replaced = match place.existing() {
            None => {
                name.check_new()?;
                None
            }
            Some(found) if found.file_type().is_block_device() => {
                let device = FileDevice::open(&path, OpenMode::ReadWrite)?;
                if !overwrite && holds_data(&device)? {
                    return Err(ErrorCause::HoldsData.into());
                }
                let target = FileOrDevice::Device(Arc::new(device));
                return Ok(BuildPlace { target, undo });
            }
            Some(found) if !found.is_file() => {
                let problem = "it is neither a file nor a block device";
                return Err(io::Error::new(ErrorKind::InvalidInput, problem).into());
            }
            Some(found) if found.len() > 0 && !overwrite => {
                return Err(ErrorCause::HoldsData.into());
            }
            Some(_) => hold(&path)?,
        };
        let target = FileOrDevice::File(NewFile { path, place, _replaced, unfinished: None });
        Ok(BuildPlace { target, undo })
    }

    /// The size of a device.
    pub fn device_bytes(&self) -> Option<u64> {
        match &self.target {
            FileOrDevice::Device(device) => Some(device.size_bytes()),
            FileOrDevice::File(_) => None,
        }
    }

    /// Bytes in a logical sector of a device.
    pub fn sector_bytes(&self) -> Option<u64> {
        match &self.target {
            FileOrDevice::Device(device) => Some(device.sector_bytes()),
            FileOrDevice::File(_) => None,
        }
    }

    /// Whether it holds only zeros, which isn't known for a device.
    pub fn is_zeroed(&self) -> bool {
        matches!(self.target, FileOrDevice::File(_))
    }

    /// Opens it for an image of this size. A file is made, of the format that its name says.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::NoRoom`] if a device is smaller; the file can't be made.
    pub fn open(&mut self, size_bytes: u64) -> Result<Arc<dyn BlockDevice>> {
        match &mut self.target {
            FileOrDevice::File(new) => {
                let (made, file) = Unfinished::create(new.place.clone())?;
                new.unfinished = Some(made);
                let device = FileDevice::from_file(file, &*new.path, OpenMode::ReadWrite)?;
                if is_named_qcow2(&new.path) {
                    return Ok(create_qcow2(device, size_bytes).map_err(VolumeError::from)?);
                }
                device.resize(size_bytes)?;
                Ok(Arc::new(device))
            }
            FileOrDevice::Device(device) => {
                let bytes = device.size_bytes();
                if size_bytes > bytes {
                    return Err(ErrorCause::NoRoom { wanted: size_bytes, bytes }.into());
                }
                Ok(Arc::clone(device))
            }
        }
    }

    /// The image is complete: makes it durable, and gives a file its name. `device` is what
    /// [`open`](BuildPlace::open) gave. Returns a warning if the undo log of a change of what was replaced is left.
    ///
    /// # Errors
    ///
    /// It can't be made durable, or another file has taken the name, which then stays.
    pub fn finish(&mut self, device: &dyn BlockDevice) -> Result<Option<String>> {
        device.flush()?;
        if let FileOrDevice::File(NewFile { unfinished, .. }) = &mut self.target {
            unfinished.take().map_or(Ok(()), Unfinished::finish)?;
        }
        let left = self.undo.forget().err();
        Ok(left.map(|error| format!("an earlier undo log may be left: {error}")))
    }
}

/// Where unpacked archives are kept while the image of this name is built: beside it, where there is space, if it is
/// a file.
pub fn spool_directory(name: &Path) -> PathBuf {
    let found = VolumeName::find_whole(name).ok();
    let is_remote = found.as_ref().is_some_and(VolumeName::is_remote);
    let is_file = !name.starts_with("/dev") && !is_remote;
    match found.as_ref().map_or(name, VolumeName::source).parent() {
        Some(parent) if is_file && parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) if is_file => parent.to_path_buf(),
        _ => std::env::temp_dir(),
    }
}

/// Locks a file that is to be replaced: a process that has it open would go on with a file that has
/// no name any more.
fn hold(path: &Path) -> Result<Option<FileDevice>> {
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        match FileDevice::open(path, mode) {
            Err(DeviceError::Open { source, .. })
                if matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ExecutableFileBusy
                ) => {}
            held => return Ok(Some(held?)),
        }
    }
    // A file that may be neither written nor read can still be replaced, but not locked.
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes an image of one byte, and does something before it gets its name.
    fn build(path: &Path, overwrite: bool, meanwhile: impl FnOnce()) -> Result<()> {
        let mut place = BuildPlace::choose(path, overwrite)?;
        let device = place.open(1)?;
        meanwhile();
        assert_eq!(place.finish(&*device)?, None);
        Ok(())
    }

    #[test]
    fn what_is_replaced_is_held_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        for mode in [0o600, 0o400] {
            let _ = fs::remove_file(&path);
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            build(&path, true, || {
                let used = FileDevice::open(&path, OpenMode::ReadWrite);
                let is_refused = match used {
                    Err(DeviceError::InUse { .. }) => true,
                    Err(DeviceError::Open { .. }) => mode == 0o400,
                    _ => false,
                };
                assert!(is_refused, "{mode:o}");
            })
            .unwrap();
            assert_eq!(fs::read(&path).unwrap(), [0]);
            // And not longer.
            FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        }
    }

    #[test]
    fn what_is_made_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        for overwrite in [false, true] {
            let error = build(&path, overwrite, || fs::write(&path, "new").unwrap()).unwrap_err();
            assert!(error.to_string().contains("another file got this name"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_can_not_be_looked_at_is_not_taken_for_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::os::unix::fs::symlink("a.img", &path).unwrap();
        for overwrite in [false, true] {
            assert!(BuildPlace::choose(&path, overwrite).is_err());
        }
    }
}
