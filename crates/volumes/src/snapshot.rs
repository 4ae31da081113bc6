//! Snapshots that the storage of a volume makes.

use crate::{VolumeError, VolumeName};
use drystone_blockdev::DeviceError;
use drystone_rbd::{Freezing, RbdAddress, SnapshotWatch};
use drystone_sync::Arc;
use std::io;

/// The address of a volume whose storage makes snapshots.
fn rbd_address(name: &VolumeName) -> Option<&str> {
    name.address().filter(|address| RbdAddress::is_address(address.as_bytes()))
}

/// Makes the snapshot that a name ends with.
///
/// # Errors
///
/// [`DeviceError::Open`] if the storage makes none, or with what it says.
pub fn snapshot(name: &VolumeName) -> Result<(), VolumeError> {
    let Some(address) = rbd_address(name).filter(|_| name.parts().is_empty()) else {
        let problem = "only images of Ceph have snapshots: rbd:POOL/IMAGE@SNAPSHOT is expected";
        let source = Arc::new(io::Error::new(io::ErrorKind::Unsupported, problem));
        return Err(DeviceError::Open { path: name.source().to_owned(), source }.into());
    };
    Ok(drystone_rbd::create_snapshot(address)?)
}

/// Freezes something for each snapshot that the storage of a volume makes, until the watch is dropped; `None` if it
/// makes none.
///
/// # Errors
///
/// [`DeviceError::Open`] with what the storage says.
pub fn watch_snapshots(
    name: &VolumeName,
    frozen: Arc<dyn Freezing>,
) -> Result<Option<SnapshotWatch>, VolumeError> {
    let address = rbd_address(name);
    Ok(address.map(|address| SnapshotWatch::new(address, frozen)).transpose()?)
}
