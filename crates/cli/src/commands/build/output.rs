//! Where the image goes: a file that gets its name at the end, a device, or standard output.

use super::input::spool_directory;
use crate::terminal::tell;
use crate::unfinished::Unfinished;
use anyhow::{Context, anyhow};
use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, OpenMode, holds_data};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Bytes that are copied to standard output at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where an image goes.
pub enum Output {
    /// A file that has another name until it is complete, once it is made.
    File { path: PathBuf, unfinished: Option<Unfinished> },
    /// A block device.
    Device { path: PathBuf, size_bytes: u64 },
    /// Standard output, by way of a file without a name.
    Stream,
}

impl Output {
    /// Finds out what `path` is, and whether it may be written.
    pub fn choose(path: &Path, force: bool) -> anyhow::Result<Output> {
        if path.as_os_str() == "-" {
            return Ok(Output::Stream);
        }
        let refuse = || Err(anyhow!("{} isn't empty; --force replaces it", path.display()));
        match path.metadata() {
            Ok(found) if found.file_type().is_block_device() => {
                let device = FileDevice::open(path, OpenMode::ReadOnly)?;
                let size_bytes = device.size_bytes();
                if !force && holds_data(&device)? {
                    return refuse();
                }
                Ok(Output::Device { path: path.to_owned(), size_bytes })
            }
            Ok(found) if !found.is_file() => {
                Err(anyhow!("{} is neither a file nor a block device", path.display()))
            }
            Ok(found) if found.len() > 0 && !force => refuse(),
            Ok(_) => {
                // A process that has it open would go on with a file that has no name any more.
                let used = FileDevice::open(path, OpenMode::ReadWrite);
                if let Err(
                    error @ (DeviceError::InUse { .. } | DeviceError::InUseByKernel { .. }),
                ) = used
                {
                    return Err(error.into());
                }
                Ok(Output::File { path: path.to_owned(), unfinished: None })
            }
            Err(_) => Ok(Output::File { path: path.to_owned(), unfinished: None }),
        }
    }

    /// The size of a device.
    pub fn device_bytes(&self) -> Option<u64> {
        match self {
            Output::Device { size_bytes, .. } => Some(*size_bytes),
            _ => None,
        }
    }

    /// Whether nothing but zeros is there: nobody knows what is on a device.
    pub fn is_zeroed(&self) -> bool {
        !matches!(self, Output::Device { .. })
    }

    /// Opens it for an image of this size.
    pub fn open(&mut self, size_bytes: u64) -> anyhow::Result<FileDevice> {
        match self {
            Output::File { path, unfinished } => {
                let (made, file) = Unfinished::create(path)?;
                *unfinished = Some(made);
                let device = FileDevice::from_file(file, &*path, OpenMode::ReadWrite)?;
                device.resize(size_bytes)?;
                Ok(device)
            }
            Output::Device { path, size_bytes: room } => {
                if size_bytes > *room {
                    return Err(anyhow!("{size_bytes} bytes are needed, the device has {room}"));
                }
                Ok(FileDevice::open(path, OpenMode::ReadWrite)?)
            }
            Output::Stream => {
                let directory = spool_directory(Path::new("-"));
                let file = tempfile::tempfile_in(&directory);
                let file = file.with_context(|| directory.display().to_string())?;
                let device = FileDevice::from_file(file, &directory, OpenMode::ReadWrite)?;
                device.resize(size_bytes)?;
                Ok(device)
            }
        }
    }

    /// All is written: gives it its name, or sends it on.
    pub fn finish(&mut self, device: FileDevice) -> anyhow::Result<()> {
        match self {
            Output::File { unfinished, .. } => {
                device.flush()?;
                Ok(unfinished.take().map_or(Ok(()), Unfinished::finish)?)
            }
            Output::Device { .. } => Ok(()),
            Output::Stream => send(&device).context("standard output"),
        }
    }

    /// Takes away what was begun, or says that it is no image.
    pub fn abandon(self) {
        match self {
            Output::File { unfinished: Some(unfinished), .. } => unfinished.abandon(),
            Output::Device { path, .. } => {
                tell(format_args!("{} is incomplete and holds no image", path.display()));
            }
            _ => {}
        }
    }
}

fn send(device: &FileDevice) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < device.size_bytes() {
        let length = (device.size_bytes() - at).min(PIECE_BYTES as u64) as usize;
        let read: Result<(), DeviceError> = device.read_at(at, &mut buffer[..length]);
        read?;
        output.write_all(&buffer[..length])?;
        at += length as u64;
    }
    output.flush()?;
    Ok(())
}
