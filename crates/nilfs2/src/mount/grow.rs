//! Grows a volume to the size of a device that has become larger.
//!
//! # Crash
//! The superblocks get the new size first, then the segment usage file counts the new segments. Any mount for
//! writing counts them if a crash has come in between.

use super::{MountOptions, Nilfs2, read_superblocks};
use crate::error::{Error, Result};
use crate::log::CleanerWork;
use crate::log_writer::LogWriter;
use drystone_blockdev::BlockDevice;
use drystone_nilfs2_format::Corrupt;
use drystone_nilfs2_format::geometry::SUPERBLOCK_OFFSET_BYTES;
use drystone_sync::Arc;

/// How a volume has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrownVolume {
    /// Segments before.
    pub segments_before: u64,
    /// Segments now.
    pub segments: u64,
}

/// Grows the volume on a device over all of it. A volume that wasn't unmounted is recovered first.
///
/// # Errors
/// If there is no volume, it is damaged, or the device has become smaller.
pub fn grow(device: &Arc<dyn BlockDevice>) -> Result<GrownVolume> {
    let mount = || Nilfs2::mount(Arc::clone(device), &MountOptions::default());
    mount()?.unmount()?;
    let mut superblock = match read_superblocks(&**device)?.into_iter().next() {
        Some(superblock) => superblock,
        None => return Err(Error::Mount("no superblock".to_owned())),
    };
    let segments_before = superblock.geometry().segments();
    superblock
        .set_device_bytes(device.size_bytes())
        .map_err(|problem| Error::Corrupt(Corrupt::Superblock { problem }))?;
    let geometry = *superblock.geometry();
    if geometry.segments() < segments_before {
        let segments = geometry.segments();
        return Err(Error::Mount(format!(
            "the volume has {segments_before} segments, the device has room for {segments}"
        )));
    }
    let bytes = superblock.encode();
    device.write_durable_at(geometry.second_superblock_offset(), &bytes)?;
    device.write_durable_at(SUPERBLOCK_OFFSET_BYTES, &bytes)?;
    let grown = mount()?;
    {
        let mut log = grown.engine.log.lock();
        LogWriter::new(&grown.engine).log_checkpoint(&mut log, CleanerWork::default())?;
    }
    grown.unmount()?;
    Ok(GrownVolume { segments_before, segments: geometry.segments() })
}
