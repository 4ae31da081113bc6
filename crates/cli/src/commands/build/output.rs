//! Where the image goes: a file that gets its name at the end, a device, or standard output.

use super::input::spool_directory;
use crate::image::AtImage;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use anyhow::{Context, anyhow};
use drystone::ErrorCause;
use drystone::build::BuildPlace;
use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, OpenMode};
use drystone_mkfs::Error;
use drystone_sync::Arc;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes that are copied to standard output at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where an image goes.
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum BuildOutput {
    /// A file, a block device or a partition.
    Named { path: PathBuf, place: BuildPlace },
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
        let path = path.to_owned();
        match BuildPlace::choose(&path, force) {
            Ok(place) => Ok(BuildOutput::Named { path, place }),
            Err(error) if matches!(error.cause(), ErrorCause::HoldsData) => {
                Err(anyhow!("{} isn't empty; --force replaces it", path.display()))
            }
            Err(error) => Err(error).at_image(&path),
        }
    }

    /// The size of a device.
    pub fn device_bytes(&self) -> Option<u64> {
        match self {
            BuildOutput::Named { place, .. } => place.device_bytes(),
            BuildOutput::Stream => None,
        }
    }

    /// Bytes in a logical sector of a device.
    pub fn sector_bytes(&self) -> Option<u64> {
        match self {
            BuildOutput::Named { place, .. } => place.sector_bytes(),
            BuildOutput::Stream => None,
        }
    }

    /// Whether it holds only zeros, which isn't known for a device.
    pub fn is_zeroed(&self) -> bool {
        match self {
            BuildOutput::Named { place, .. } => place.is_zeroed(),
            BuildOutput::Stream => true,
        }
    }

    /// Opens it for an image of this size.
    pub fn open(&mut self, size_bytes: u64) -> anyhow::Result<Arc<dyn BlockDevice>> {
        match self {
            BuildOutput::Named { place, .. } => Ok(place.open(size_bytes)?),
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
            BuildOutput::Named { place, .. } => {
                place.finish(device)?.into_iter().for_each(tell);
                Ok(())
            }
            BuildOutput::Stream => send(device, interrupt).context("standard output"),
        }
    }

    /// Removes a partial image, or reports what is left.
    pub fn abandon(self, reached: Reached) {
        let BuildOutput::Named { path, place } = self else { return };
        match reached {
            _ if place.device_bytes().is_none() => {}
            Reached::Nothing => {}
            Reached::Image => {
                tell(format_args!("{} is incomplete and holds no image", path.display()));
            }
            Reached::HashTree => tell(format_args!(
                "{} holds the whole image, but no complete hash tree after it",
                path.display()
            )),
        }
    }
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
