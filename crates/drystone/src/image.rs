//! An open image.

use crate::settled::check_settled;
use crate::{Error, FileSystemKind, VolumeName};
use drystone_blockdev::OpenMode;
use drystone_ext4::{
    AccessTimes, Ext4, InodeSearch, MemoryUse, MountOptions, OrphanPolicy, Policy, QuotaLimits,
    QuotaReport,
};
use drystone_ext4_format::quota::QuotaKind;
use drystone_ext4_format::superblock::ErrorPolicy;
use drystone_nilfs2::{CheckpointSummary, Nilfs2};
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
    /// How long the journal of ext4 waits for room on a full host before the image turns read-only.
    pub full_host_wait: Duration,
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
    /// Shows this checkpoint of NILFS2 instead of the newest state; the image is opened read-only.
    pub checkpoint: Option<u64>,
    /// Where the image will be seen, for its superblock.
    pub last_mounted: Option<PathBuf>,
}

/// An open image. No other process may open it meanwhile, unless all of them only read.
///
/// Dropping it is like a crash: what was synced is kept, the next opening recovers the rest.
#[derive(Debug)]
pub struct Image {
    engine: Engine,
}

/// What serves the files of an image.
#[derive(Debug)]
enum Engine {
    Ext4(Arc<Ext4>),
    Nilfs2(Arc<Nilfs2>),
}

impl Image {
    /// Opens the image that `name` stands for ([`VolumeName`]): a file, a block device or a partition of one.
    /// What it holds is found in its superblock. `disk.img@12` is checkpoint 12 of `disk.img`, unless there
    /// is a file of the whole name.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process has it open; [`Error::UnsafePolicy`] for a policy that
    /// only benchmarks may use; [`Error::Lacks`] for a checkpoint of what has none; otherwise what the
    /// host says of the file or the engine of the image.
    pub fn open(name: &Path, options: &OpenOptions) -> Result<Image, Error> {
        if options.policy.orphans == Some(OrphanPolicy::Unrecorded) {
            return Err(Error::UnsafePolicy(options.policy));
        }
        let name = VolumeName::find(name)?;
        let checkpoint = options.checkpoint.or(name.checkpoint());
        let is_read_only = options.read_only || checkpoint.is_some();
        let mode = if is_read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        check_settled(&name)?;
        let device = drystone_volumes::open(&name, mode)?;
        let engine = match (FileSystemKind::of(&*device)?, checkpoint) {
            (Some(FileSystemKind::Nilfs2), _) => {
                let options = options.for_nilfs2(checkpoint);
                Engine::Nilfs2(Arc::new(Nilfs2::mount(device, &options)?))
            }
            (Some(kind), Some(_)) => return Err(Error::Lacks { kind, what: "checkpoints" }),
            // The engine says what is wrong with an unknown superblock.
            _ => Engine::Ext4(Arc::new(Ext4::open(device, options.for_ext4())?)),
        };
        Ok(Image { engine })
    }

    /// What it holds.
    pub fn kind(&self) -> FileSystemKind {
        match &self.engine {
            Engine::Ext4(_) => FileSystemKind::Ext4,
            Engine::Nilfs2(_) => FileSystemKind::Nilfs2,
        }
    }

    /// Its files.
    pub fn file_system(&self) -> &dyn FileSystem {
        match &self.engine {
            Engine::Ext4(engine) => &**engine,
            Engine::Nilfs2(engine) => &**engine,
        }
    }

    /// Its files, to be handed on. Nobody may use them any more when the image is closed.
    pub fn shared_file_system(&self) -> Arc<dyn FileSystem> {
        match &self.engine {
            Engine::Ext4(engine) => Arc::clone(engine) as Arc<dyn FileSystem>,
            Engine::Nilfs2(engine) => Arc::clone(engine) as Arc<dyn FileSystem>,
        }
    }

    /// What is in memory now, where the engine counts it.
    pub fn memory_use(&self) -> Option<MemoryUse> {
        match &self.engine {
            Engine::Ext4(engine) => Some(engine.memory_use()),
            Engine::Nilfs2(_) => None,
        }
    }

    /// What users, groups and projects use, and may use: of each kind that the image counts.
    ///
    /// # Errors
    ///
    /// A usage file can't be read, or is damaged.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>, Error> {
        match &self.engine {
            Engine::Ext4(engine) => Ok(engine.quota_reports()?),
            Engine::Nilfs2(_) => Ok(Vec::new()),
        }
    }

    /// Sets the limits of a user, group or project. If one is exceeded, its grace period begins.
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
        Ok(self.ext4("quotas")?.set_quota_limits(kind, id, limits)?)
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
        Ok(self.ext4("quotas")?.set_quota_grace(kind, space_seconds, inode_seconds)?)
    }

    /// The engine of ext4, for `what` no other engine has.
    fn ext4(&self, what: &'static str) -> Result<&Ext4, Error> {
        match &self.engine {
            Engine::Ext4(engine) => Ok(engine),
            Engine::Nilfs2(_) => Err(Error::Lacks { kind: self.kind(), what }),
        }
    }

    /// The checkpoints that the image holds, the oldest first.
    ///
    /// # Errors
    ///
    /// [`Error::Lacks`] if it holds ext4; the checkpoint file is damaged or can't be read.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointSummary>, Error> {
        Ok(self.nilfs2("checkpoints")?.checkpoints()?)
    }

    /// Makes everything durable and returns the number of the newest checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Lacks`] if it holds ext4; something can't be written.
    pub fn make_checkpoint(&self) -> Result<u64, Error> {
        Ok(self.nilfs2("checkpoints")?.make_checkpoint()?)
    }

    /// Makes a checkpoint a snapshot, which the cleaner keeps, or a plain one again.
    ///
    /// # Errors
    ///
    /// [`Error::Lacks`] if it holds ext4; there is no such checkpoint, or something can't be written.
    pub fn set_snapshot(&self, number: u64, is_snapshot: bool) -> Result<(), Error> {
        Ok(self.nilfs2("checkpoints")?.set_snapshot(number, is_snapshot)?)
    }

    /// Deletes a checkpoint. The cleaner takes back what only this one had.
    ///
    /// # Errors
    ///
    /// [`Error::Lacks`] if it holds ext4; there is no such checkpoint, it is a snapshot or the newest, or
    /// something can't be written.
    pub fn delete_checkpoint(&self, number: u64) -> Result<(), Error> {
        Ok(self.nilfs2("checkpoints")?.delete_checkpoint(number)?)
    }

    /// The engine of NILFS2, for `what` no other engine has.
    fn nilfs2(&self, what: &'static str) -> Result<&Nilfs2, Error> {
        match &self.engine {
            Engine::Nilfs2(engine) => Ok(engine),
            Engine::Ext4(_) => Err(Error::Lacks { kind: self.kind(), what }),
        }
    }

    /// Makes everything durable and marks the image clean, which takes no changes from now on. Does
    /// nothing if it was opened to be read only.
    ///
    /// # Errors
    ///
    /// Something could not be written; the image takes changes as before, unless that is why.
    pub fn make_read_only(&self) -> Result<(), Error> {
        Ok(self.ext4("change to read-only while it is open")?.make_read_only()?)
    }

    /// Has the image take changes again after [`make_read_only`](Image::make_read_only).
    ///
    /// # Errors
    ///
    /// It was opened to be read only, or can't be written to.
    pub fn make_writable(&self) -> Result<(), Error> {
        Ok(self.ext4("change to read-only while it is open")?.make_writable()?)
    }

    /// Chooses which accesses change times of access from now on; `of_directories`: also of
    /// directories. NILFS2 keeps no times of access.
    pub fn set_access_times(&self, times: AccessTimes, of_directories: bool) {
        if let Engine::Ext4(engine) = &self.engine {
            engine.set_access_times(times, of_directories);
        }
    }

    /// Makes everything durable and marks the image clean.
    ///
    /// # Errors
    ///
    /// If something could not be written; the image must then be opened again to recover.
    pub fn close(self) -> Result<(), Error> {
        match self.engine {
            Engine::Ext4(engine) => Ok(engine.close()?),
            Engine::Nilfs2(engine) => Ok(engine.unmount()?),
        }
    }
}

impl OpenOptions {
    fn for_ext4(&self) -> MountOptions {
        let defaults = MountOptions::default();
        let last_mounted = self.last_mounted.as_ref();
        MountOptions {
            read_only: self.read_only,
            commit_interval: self.commit_interval.unwrap_or(defaults.commit_interval),
            full_medium_wait: self.full_host_wait,
            ignore_journal: self.ignore_journal,
            delayed_allocation: !self.immediate_allocation,
            access_times: self.access_times,
            directory_access_times: !self.ignore_directory_accesses,
            policy: self.policy,
            error_policy: self.error_policy,
            memory_budget_bytes: self.memory_bytes.unwrap_or(defaults.memory_budget_bytes),
            last_mounted: last_mounted
                .map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec()),
            ..defaults
        }
    }

    fn for_nilfs2(&self, checkpoint: Option<u64>) -> drystone_nilfs2::MountOptions {
        drystone_nilfs2::MountOptions {
            read_only: self.read_only,
            checkpoint,
            commit_interval: self.commit_interval,
            inode_search: match self.policy.inode_search {
                InodeSearch::First => drystone_nilfs2::InodeSearch::First,
                InodeSearch::NextHint => drystone_nilfs2::InodeSearch::NextHint,
                InodeSearch::PerCore => drystone_nilfs2::InodeSearch::PerCore,
            },
            fixed_time_s: None,
        }
    }
}
