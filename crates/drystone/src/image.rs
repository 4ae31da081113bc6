//! An open image.

use crate::Error;
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4::{
    AccessTimes, Ext4, MemoryUse, MountOptions, OrphanPolicy, Policy, QuotaLimits, QuotaReport,
};
use drystone_ext4_format::quota::QuotaKind;
use drystone_ext4_format::superblock::ErrorPolicy;
use drystone_sync::Arc;
use drystone_vfs::FileSystem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to open an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Change nothing, not even to replay the journal, which is replayed into memory instead.
    pub read_only: bool,
    /// With `read_only`: a dirty journal is not even replayed into memory, and files are seen as a
    /// crash left them.
    pub ignore_journal: bool,
    /// What was changed is made durable after this time, asked for or not. `None` for 5 seconds.
    pub commit_interval: Option<Duration>,
    /// Every write gets its blocks at once. Otherwise small ones wait for them in memory, for at most the
    /// commit interval, so that files end up in fewer pieces; a sync writes them.
    pub immediate_allocation: bool,
    /// Which accesses that are told ([`accessed`](FileSystem::accessed)) change times of last access. Reading
    /// by itself changes none: a program that reads for itself leaves no traces, one that reads for others,
    /// as a mount does, tells, and then they find what ext4 has by default ([`AccessTimes::Relative`]).
    pub access_times: AccessTimes,
    /// Those of directories don't.
    pub ignore_directory_accesses: bool,
    /// Which form of each mechanism to use.
    pub policy: Policy,
    /// What happens when the image is found damaged; `None`: what its superblock says.
    pub error_policy: Option<ErrorPolicy>,
    /// Bytes of memory for metadata; `None` for 256 MiB.
    pub memory_bytes: Option<usize>,
    /// Where the image will be seen, for its superblock.
    pub last_mounted: Option<PathBuf>,
}

/// An open image, which nobody else may open meanwhile unless all only read.
///
/// Dropping it is like a crash: what was synced is kept, the next opening recovers the rest.
#[derive(Debug)]
pub struct Image {
    ext4: Arc<Ext4>,
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
            ignore_journal: options.ignore_journal,
            delayed_allocation: !options.immediate_allocation,
            access_times: options.access_times,
            directory_access_times: !options.ignore_directory_accesses,
            policy: options.policy,
            error_policy: options.error_policy,
            memory_budget_bytes: options.memory_bytes.unwrap_or(defaults.memory_budget_bytes),
            last_mounted: options
                .last_mounted
                .as_ref()
                .map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec()),
            ..defaults
        };
        Ok(Image { ext4: Arc::new(Ext4::open(Arc::new(device), options)?) })
    }

    /// Its files.
    pub fn file_system(&self) -> &dyn FileSystem {
        &*self.ext4
    }

    /// Its files, to be handed on. Nobody may use them any more when the image is closed.
    pub fn shared_file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.ext4) as Arc<dyn FileSystem>
    }

    /// What is in memory now.
    pub fn memory_use(&self) -> MemoryUse {
        self.ext4.memory_use()
    }

    /// What users, groups and projects use, and may use: of each kind that the image counts.
    ///
    /// # Errors
    ///
    /// A usage file can't be read, or is damaged.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>, Error> {
        Ok(self.ext4.quota_reports()?)
    }

    /// Sets the limits of a user, group or project. If one is exceeded, its time of grace begins.
    ///
    /// # Errors
    ///
    /// The image doesn't count this kind, or can't be changed.
    pub fn set_quota_limits(
        &self,
        kind: QuotaKind,
        id: u32,
        limits: &QuotaLimits,
    ) -> Result<(), Error> {
        Ok(self.ext4.set_quota_limits(kind, id, limits)?)
    }

    /// Sets for how many seconds the soft limits of a kind may be exceeded. Grace that runs ends when
    /// it would have.
    ///
    /// # Errors
    ///
    /// As [`set_quota_limits`](Image::set_quota_limits).
    pub fn set_quota_grace(
        &self,
        kind: QuotaKind,
        space_seconds: u32,
        inode_seconds: u32,
    ) -> Result<(), Error> {
        Ok(self.ext4.set_quota_grace(kind, space_seconds, inode_seconds)?)
    }

    /// Makes everything durable and marks the image clean, which takes no changes from now on. Does
    /// nothing if it was opened to be read only.
    ///
    /// # Errors
    ///
    /// Something could not be written; the image takes changes as before, unless that is why.
    pub fn make_read_only(&self) -> Result<(), Error> {
        Ok(self.ext4.make_read_only()?)
    }

    /// Has the image take changes again after [`make_read_only`](Image::make_read_only).
    ///
    /// # Errors
    ///
    /// It was opened to be read only, or can't be written to.
    pub fn make_writable(&self) -> Result<(), Error> {
        Ok(self.ext4.make_writable()?)
    }

    /// Chooses which accesses change times of access from now on; `of_directories`: also of
    /// directories.
    pub fn set_access_times(&self, times: AccessTimes, of_directories: bool) {
        self.ext4.set_access_times(times, of_directories);
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
