//! Snapshots that the storage below an image makes.

use crate::error::on_image;
use crate::{Image, Result, VolumeName};
use drystone_sync::Arc;
use drystone_vfs::FileSystem;
use drystone_volumes::{Freezing, SnapshotWatch};
use std::io;
use std::path::Path;

/// Makes the snapshot that a name ends with, as in `rbd:pool/image@name`. The image may be mounted on any machine: then
/// its files are as after a sync, and changes wait for a moment.
///
/// # Errors
///
/// The storage makes no snapshots, or has one with that name; the mounted image can't be made consistent.
pub fn snapshot(name: &Path) -> Result<()> {
    on_image("snapshot", name, || Ok(drystone_volumes::snapshot(&VolumeName::find_whole(name)?)?))
}

/// Has an image, which is open under this name, frozen for each snapshot that the storage makes, until what is
/// returned is dropped. `None` if the storage makes none. It must be dropped before the image is closed.
///
/// # Errors
///
/// What the storage says.
pub fn freeze_for_snapshots(image: &Image, name: &Path) -> Result<Option<SnapshotWatch>> {
    on_image("watch", name, || {
        let frozen = Arc::new(FrozenImage(image.shared_file_system()));
        Ok(drystone_volumes::watch_snapshots(&VolumeName::find_whole(name)?, frozen)?)
    })
}

struct FrozenImage(Arc<dyn FileSystem>);

impl Freezing for FrozenImage {
    fn freeze(&self) -> io::Result<()> {
        let frozen = self.0.freeze();
        frozen.map_err(|error| io::Error::from_raw_os_error(error.errno.code()))
    }

    fn thaw(&self) {
        if let Err(error) = self.0.thaw() {
            tracing::error!(%error, "what was frozen for a snapshot can't go on");
        }
    }
}
