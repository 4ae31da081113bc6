//! An open image.

use crate::Error;
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions, OrphanPolicy, Policy};
use drystone_sync::Arc;
use drystone_vfs::FileSystem;
use std::path::Path;
use std::time::Duration;

/// How to open an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Change nothing, not even to replay the journal, which is replayed into memory instead.
    pub read_only: bool,
    /// What was changed is made durable after this time, asked for or not. `None` for 5 seconds.
    pub commit_interval: Option<Duration>,
    /// Which form of each mechanism to use.
    pub policy: Policy,
}

/// An open image, which nobody else may open meanwhile unless all only read.
///
/// Dropping it is like a crash: what was synced is kept, the next opening recovers the rest.
#[derive(Debug)]
pub struct Image {
    ext4: Ext4,
}

impl Image {
    /// Opens the image at `path`, a file or a block device.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if somebody else has it open; [`Error::UnsafePolicy`] for a policy that
    /// only benchmarks may use; otherwise what the host says of the file or the engine of the
    /// image.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Image, Error> {
        if options.policy.orphans == Some(OrphanPolicy::Unrecorded) {
            return Err(Error::UnsafePolicy(options.policy));
        }
        let mode = if options.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let device = FileDevice::open(path, mode)?;
        let defaults = MountOptions::default();
        let options = MountOptions {
            read_only: options.read_only,
            commit_interval: options.commit_interval.unwrap_or(defaults.commit_interval),
            policy: options.policy,
            ..defaults
        };
        Ok(Image { ext4: Ext4::open(Arc::new(device), options)? })
    }

    /// Its files.
    pub fn file_system(&self) -> &dyn FileSystem {
        &self.ext4
    }

    /// Makes everything durable and marks the image clean.
    ///
    /// # Errors
    ///
    /// If something could not be written; the image must then be opened again to recover.
    pub fn close(self) -> Result<(), Error> {
        Ok(self.ext4.close()?)
    }
}
