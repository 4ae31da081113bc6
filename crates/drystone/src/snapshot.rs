//! Snapshots that the storage below an image makes.

use crate::error::on_image;
use crate::{Image, Result, VolumeName};
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_vfs::{Errno, FileSystem};
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
        let frozen = Arc::new(FrozenImage::new(image.shared_file_system()));
        Ok(drystone_volumes::watch_snapshots(&VolumeName::find_whole(name)?, frozen)?)
    })
}

struct FrozenImage {
    file_system: Arc<dyn FileSystem>,
    /// This froze it, and has to thaw it.
    is_frozen_here: AtomicBool,
}

impl FrozenImage {
    fn new(file_system: Arc<dyn FileSystem>) -> FrozenImage {
        FrozenImage { file_system, is_frozen_here: AtomicBool::new(false) }
    }
}

impl Freezing for FrozenImage {
    fn freeze(&self) -> io::Result<()> {
        let frozen = match self.file_system.freeze() {
            Ok(()) => {
                self.is_frozen_here.store(true, Ordering::SeqCst);
                Ok(())
            }
            // It is read-only: nothing changes.
            Err(error) if error.errno == Errno::EROFS => Ok(()),
            // Somebody else has frozen it, or is about to: a user of the library, or a growth. What
            // isn't in the image yet is written first.
            Err(error) if error.errno == Errno::EBUSY => self.file_system.sync(),
            Err(error) => Err(error),
        };
        frozen.map_err(|error| io::Error::from_raw_os_error(error.errno.code()))
    }

    fn thaw(&self) {
        if self.is_frozen_here.swap(false, Ordering::SeqCst)
            && let Err(error) = self.file_system.thaw()
        {
            tracing::error!(%error, "what was frozen for a snapshot can't go on");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{CreateOptions, FileSystemKind};

    #[test]
    fn what_is_frozen_or_read_only_already_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
            let name = folder.path().join(kind.name());
            let image = Image::create(&name, &CreateOptions::new(256 << 20).kind(kind)).unwrap();
            image.fs().write("/a", "b").unwrap();
            let frozen = FrozenImage::new(image.shared_file_system());
            frozen.freeze().unwrap();
            frozen.thaw();
            image.fs().write("/a", "c").unwrap();

            image.file_system().freeze().unwrap();
            frozen.freeze().unwrap();
            frozen.thaw();
            // It was still frozen.
            image.file_system().thaw().unwrap();
            image.fs().write("/a", "d").unwrap();
            drop((frozen, image));

            let image = Image::options().read_only(true).open(&name).unwrap();
            let frozen = FrozenImage::new(image.shared_file_system());
            frozen.freeze().unwrap();
            frozen.thaw();
        }
    }
}
