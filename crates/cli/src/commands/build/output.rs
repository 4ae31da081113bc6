//! Where the image goes: a file that gets its name at the end, a device, or standard output.

use super::input::spool_directory;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::unfinished::{FilePlace, Unfinished};
use anyhow::{Context, anyhow};
use drystone::{VolumeName, create_qcow2};
use drystone_blockdev::{
    BlockDevice, DeviceError, FileDevice, OpenMode, edges_hold_data, holds_data,
};
use drystone_mkfs::Error;
use drystone_sync::Arc;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Bytes that are copied to standard output at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where an image goes.
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum BuildOutput {
    /// A file that has another name until it is complete, once it is made.
    File {
        path: PathBuf,
        place: FilePlace,
        /// The old file, held open and locked so that no other process begins to use it.
        _replaced: Option<FileDevice>,
        unfinished: Option<Unfinished>,
    },
    /// A block device or a partition.
    Device { path: PathBuf, device: Arc<dyn BlockDevice> },
    /// Standard output, by way of a file without a name.
    Stream,
}

/// How far the writing of an image got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    Nothing,
    /// Some of the image.
    Image,
    /// The whole image, and some of its hash tree.
    HashTree,
}

impl BuildOutput {
    /// Checks what `path` is and whether it may be written, and locks it.
    pub fn choose(path: &Path, force: bool) -> anyhow::Result<BuildOutput> {
        if path.as_os_str() == "-" {
            return Ok(BuildOutput::Stream);
        }
        let refuse = || Err(anyhow!("{} isn't empty; --force replaces it", path.display()));
        let name = VolumeName::find_whole(path)?;
        let path = path.to_owned();
        if !name.parts().is_empty() || name.is_remote() {
            let device = drystone::open_as_named(&name, OpenMode::ReadWrite);
            let device = device.with_context(|| path.display().to_string())?;
            return match force || !edges_hold_data(&device)? {
                true => Ok(BuildOutput::Device { path, device }),
                false => refuse(),
            };
        }
        let place = FilePlace::find(&path).with_context(|| path.display().to_string())?;
        let _replaced = match place.existing() {
            None => None,
            Some(found) if found.file_type().is_block_device() => {
                let device = FileDevice::open(&path, OpenMode::ReadWrite)?;
                if !force && holds_data(&device)? {
                    return refuse();
                }
                return Ok(BuildOutput::Device { path, device: Arc::new(device) });
            }
            Some(found) if !found.is_file() => {
                return Err(anyhow!("{} is neither a file nor a block device", path.display()));
            }
            Some(found) if found.len() > 0 && !force => return refuse(),
            Some(_) => hold(&path)?,
        };
        Ok(BuildOutput::File { path, place, _replaced, unfinished: None })
    }

    /// The size of a device.
    pub fn device_bytes(&self) -> Option<u64> {
        match self {
            BuildOutput::Device { device, .. } => Some(device.size_bytes()),
            _ => None,
        }
    }

    /// Whether it holds only zeros, which isn't known for a device.
    pub fn is_zeroed(&self) -> bool {
        !matches!(self, BuildOutput::Device { .. })
    }

    /// Opens it for an image of this size.
    pub fn open(&mut self, size_bytes: u64) -> anyhow::Result<Arc<dyn BlockDevice>> {
        match self {
            BuildOutput::File { path, place, unfinished, .. } => {
                let (made, file) = Unfinished::create(place.clone())?;
                *unfinished = Some(made);
                let device = FileDevice::from_file(file, &*path, OpenMode::ReadWrite)?;
                if drystone::is_named_qcow2(path) {
                    return Ok(create_qcow2(device, size_bytes)?);
                }
                device.resize(size_bytes)?;
                Ok(Arc::new(device))
            }
            BuildOutput::Device { device, .. } => {
                let room = device.size_bytes();
                if size_bytes > room {
                    return Err(anyhow!("{size_bytes} bytes are needed, the device has {room}"));
                }
                Ok(Arc::clone(device))
            }
            BuildOutput::Stream => {
                let directory = spool_directory(Path::new("-"));
                let file = tempfile::tempfile_in(&directory);
                let file = file.with_context(|| directory.display().to_string())?;
                let device = FileDevice::from_file(file, &directory, OpenMode::ReadWrite)?;
                device.resize(size_bytes)?;
                Ok(Arc::new(device))
            }
        }
    }

    /// Everything is written: gives the file its name, or copies it to standard output.
    pub fn finish(
        &mut self,
        device: &dyn BlockDevice,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        match self {
            BuildOutput::File { unfinished, .. } => {
                device.flush()?;
                Ok(unfinished.take().map_or(Ok(()), Unfinished::finish)?)
            }
            BuildOutput::Device { .. } => Ok(()),
            BuildOutput::Stream => send(device, interrupt).context("standard output"),
        }
    }

    /// Removes a partial image, or reports what is left.
    pub fn abandon(self, reached: Reached) {
        match self {
            BuildOutput::File { unfinished: Some(unfinished), .. } => unfinished.abandon(),
            BuildOutput::Device { path, .. } => match reached {
                Reached::Nothing => {}
                Reached::Image => {
                    tell(format_args!("{} is incomplete and holds no image", path.display()));
                }
                Reached::HashTree => tell(format_args!(
                    "{} holds the whole image, but no complete hash tree behind it",
                    path.display()
                )),
            },
            _ => {}
        }
    }
}

/// Locks a file that is to be replaced: a process that has it open would go on with a file that has
/// no name any more.
fn hold(path: &Path) -> anyhow::Result<Option<FileDevice>> {
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

fn send(device: &dyn BlockDevice, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < device.size_bytes() {
        if interrupt.is_asked() {
            return Err(Error::Cancelled.into());
        }
        let length = (device.size_bytes() - at).min(PIECE_BYTES as u64) as usize;
        let read: Result<(), DeviceError> = device.read_at(at, &mut buffer[..length]);
        read?;
        output.write_all(&buffer[..length])?;
        at += length as u64;
    }
    output.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes an image of one byte, and does something before it gets its name.
    fn build(path: &Path, force: bool, meanwhile: impl FnOnce()) -> anyhow::Result<()> {
        let mut output = BuildOutput::choose(path, force)?;
        let device = output.open(1)?;
        meanwhile();
        output.finish(&device, &Interrupt::install()?)
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
        for force in [false, true] {
            let error = build(&path, force, || fs::write(&path, "new").unwrap()).unwrap_err();
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
        for force in [false, true] {
            assert!(BuildOutput::choose(&path, force).is_err());
        }
    }
}
