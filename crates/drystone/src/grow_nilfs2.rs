//! Grows NILFS2 images.

use crate::error::on_image;
use crate::{Error, ErrorCause, FileSystemKind, VolumeName};
use drystone_blockdev::BlockDevice;
use drystone_nilfs2::{GrownVolume, MountOptions, Nilfs2};
use drystone_reshape::NewSize;
use drystone_sync::Arc;
use drystone_volumes::{ChangeableVolume, undo_file};
use std::path::Path;

/// Grows the NILFS2 image that `name` stands for. A regular file grows with it; a partition or a block
/// device must have become larger before. A crash leaves the old size or the new one.
///
/// # Errors
///
/// [`ErrorCause::InUse`] if a process has it open; [`ErrorCause::Lacks`] for a size that is smaller than that of the
/// file; [`ErrorCause::DeviceSize`] for a partition or a block device of another size.
pub fn grow_nilfs2(name: &Path, size: NewSize) -> Result<GrownVolume, Error> {
    on_image("resize", name, || {
        let name = VolumeName::find_whole(name)?;
        let undo = undo_file(&name)?;
        let volume = ChangeableVolume::open(&name)?;
        if undo.is_incomplete()? {
            return Err(ErrorCause::Interrupted.into());
        }
        let size_before = match &volume {
            ChangeableVolume::Whole(file) => file.size_bytes(),
            ChangeableVolume::Fixed(device) => device.size_bytes(),
        };
        let size_bytes = match size {
            NewSize::Exactly(bytes) => bytes,
            NewSize::More(bytes) => size_before.saturating_add(bytes),
            NewSize::Less(_) | NewSize::Minimum => 0,
        };
        if size_bytes < size_before {
            return Err(ErrorCause::Lacks {
                kind: FileSystemKind::Nilfs2,
                what: "way to become smaller",
            }
            .into());
        }
        let device: Arc<dyn BlockDevice> = match volume {
            ChangeableVolume::Whole(file) if !file.is_block_device() => {
                let file = Arc::new(file);
                // A volume that is refused keeps its file as it is.
                Nilfs2::mount(file.clone(), &MountOptions::default())?.unmount()?;
                file.resize(size_bytes)?;
                file
            }
            _ if size_bytes != size_before => {
                return Err(ErrorCause::DeviceSize { bytes: size_before }.into());
            }
            ChangeableVolume::Whole(device) => Arc::new(device),
            ChangeableVolume::Fixed(device) => device,
        };
        Ok(drystone_nilfs2::grow(&device)?)
    })
}
