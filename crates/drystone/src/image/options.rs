//! How an image is opened.

use super::Image;
use crate::engine::Engine;
use crate::error::on_image;
use crate::settled::open_settled;
use crate::{Error, ErrorCause, FileSystemKind, Result, VolumeName};
use drystone_blockdev::{BlockDevice, OpenMode};
use drystone_ext4::{AccessTimes, Ext4, InodeSearch, MountOptions, OrphanPolicy, Policy};
use drystone_ext4_format::superblock::ErrorPolicy;
use drystone_nilfs2::Nilfs2;
use drystone_sync::Arc;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to open an image.
///
/// ```no_run
/// # fn main() -> drystone::Result<()> {
/// let image = drystone::Image::options().read_only(true).open("disk.img")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageOptions {
    /// Change nothing, not even to replay the journal, which is replayed into memory instead.
    pub read_only: bool,
    /// With `read_only`: a dirty journal is not even replayed into memory, and files are seen as a
    /// crash left them.
    pub ignore_journal: bool,
    /// What was changed is made durable after this time, asked for or not. `None` for 5 seconds, or what a NILFS2
    /// volume says. Zero is an error.
    pub commit_interval: Option<Duration>,
    /// How long the journal of ext4 waits for room on a full host before the image turns read-only.
    pub full_host_wait: Duration,
    /// Every write gets its blocks at once. Otherwise small ones wait for them in memory, for at most the
    /// commit interval, so that files end up in fewer pieces; a sync writes them.
    pub immediate_allocation: bool,
    /// Which reported accesses ([`accessed`](drystone_vfs::FileSystem::accessed)) change access times.
    /// Reading by itself changes none: a program that reads for itself leaves no traces. One that reads
    /// for others, as a mount does, reports it, and then the rule that ext4 has by default holds
    /// ([`AccessTimes::Relative`]).
    pub access_times: AccessTimes,
    /// Those of directories don't.
    pub ignore_directory_accesses: bool,
    /// Which variant of each mechanism to use.
    pub policy: Policy,
    /// What happens when the image is found damaged; `None`: what its superblock says.
    pub error_policy: Option<ErrorPolicy>,
    /// Bytes of memory for metadata; `None` for 256 MiB.
    pub memory_bytes: Option<usize>,
    /// Shows this checkpoint of NILFS2 instead of the newest state; the image is opened read-only.
    pub checkpoint: Option<u64>,
    /// Where the image will be seen, for its superblock.
    pub last_mounted: Option<PathBuf>,
}

drystone_options::setters! {
    ImageOptions {
        read_only: bool,
        ignore_journal: bool,
        commit_interval: impl Into<Option<Duration>>,
        full_host_wait: Duration,
        immediate_allocation: bool,
        access_times: AccessTimes,
        ignore_directory_accesses: bool,
        policy: Policy,
        error_policy: impl Into<Option<ErrorPolicy>>,
        memory_bytes: impl Into<Option<usize>>,
        checkpoint: impl Into<Option<u64>>,
        last_mounted: impl Into<Option<PathBuf>>,
    }
}

impl ImageOptions {
    /// Opens the image that `name` stands for ([`VolumeName`]): a file, a block device or a partition of one.
    /// What it holds is found in its superblock. `disk.img#2` is partition 2 of `disk.img`, and
    /// `disk.img@12` checkpoint 12 of it, unless there is a file of the whole name.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::InUse`] if another process has it open; [`ErrorCause::UnsafePolicy`] for a policy that
    /// only benchmarks may use; [`ErrorCause::Lacks`] for a checkpoint of what has none; otherwise what the
    /// host says of the file or the engine of the image.
    pub fn open(&self, name: impl AsRef<Path>) -> Result<Image> {
        let name = name.as_ref();
        let (engine, host_file) = on_image("open", name, || self.open_named(name))?;
        Ok(Image::new(engine, Some((name.to_path_buf(), host_file))))
    }

    /// The engine, and the file that the image is in.
    fn open_named(&self, name: &Path) -> Result<(Engine, Option<(u64, u64)>)> {
        let name = VolumeName::find(name)?;
        let checkpoint = self.checkpoint.or(name.checkpoint());
        let is_read_only = self.read_only || checkpoint.is_some();
        let mode = if is_read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let engine = self.mount(open_settled(&name, mode)?, checkpoint)?;
        let metadata = std::fs::metadata(name.source()).ok().filter(|_| !name.is_remote());
        Ok((engine, metadata.map(|metadata| (metadata.dev(), metadata.ino()))))
    }

    /// Opens the image on a device: one in memory, a part of another, or one of the caller's own.
    ///
    /// # Errors
    ///
    /// As [`open`](ImageOptions::open), but for those of the host.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Image> {
        let engine = self.mount(device, self.checkpoint);
        Ok(Image::new(engine.map_err(|error| error.during("open the image"))?, None))
    }

    fn mount(&self, device: Arc<dyn BlockDevice>, checkpoint: Option<u64>) -> Result<Engine> {
        if self.policy.orphans == Some(OrphanPolicy::Unrecorded) {
            return Err(ErrorCause::UnsafePolicy(self.policy).into());
        }
        Ok(match (FileSystemKind::of(&*device)?, checkpoint) {
            (Some(FileSystemKind::Nilfs2), _) => {
                Engine::Nilfs2(Arc::new(Nilfs2::mount(device, &self.for_nilfs2(checkpoint))?))
            }
            (Some(kind), Some(_)) => {
                return Err(Error::from(ErrorCause::Lacks { kind, what: "checkpoints" }));
            }
            (None, _) => return Err(ErrorCause::Unrecognized.into()),
            (Some(FileSystemKind::Ext4), None) => {
                Engine::Ext4(Arc::new(Ext4::open(device, self.for_ext4())?))
            }
        })
    }

    fn for_ext4(&self) -> MountOptions {
        let last_mounted = self.last_mounted.as_ref();
        let mut options = MountOptions::default()
            .read_only(self.read_only)
            .full_medium_wait(self.full_host_wait)
            .ignore_journal(self.ignore_journal)
            .delayed_allocation(!self.immediate_allocation)
            .access_times(self.access_times)
            .directory_access_times(!self.ignore_directory_accesses)
            .policy(self.policy)
            .error_policy(self.error_policy)
            .last_mounted(
                last_mounted.map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec()),
            );
        #[cfg(feature = "reshape")]
        {
            options.growth_planner = Some(super::growing::PLANNER);
        }
        if let Some(interval) = self.commit_interval {
            options.commit_interval = interval;
        }
        if let Some(bytes) = self.memory_bytes {
            options.memory_budget_bytes = bytes;
        }
        options
    }

    fn for_nilfs2(&self, checkpoint: Option<u64>) -> drystone_nilfs2::MountOptions {
        drystone_nilfs2::MountOptions::default()
            .read_only(self.read_only)
            .checkpoint(checkpoint)
            .commit_interval(self.commit_interval)
            .inode_search(match self.policy.inode_search {
                InodeSearch::First => drystone_nilfs2::InodeSearch::First,
                InodeSearch::NextHint => drystone_nilfs2::InodeSearch::NextHint,
                InodeSearch::PerCore => drystone_nilfs2::InodeSearch::PerCore,
            })
            .fixed_time_s(None)
            .full_medium_wait(self.full_host_wait)
    }
}
