//! An open image.

#[cfg(feature = "mkfs")]
mod create;
#[cfg(feature = "reshape")]
mod growing;
mod options;

#[cfg(feature = "mkfs")]
pub use create::CreateOptions;
#[cfg(feature = "reshape")]
pub use growing::ImageShape;
pub use options::ImageOptions;

use crate::engine::{Engine, ImageReference, OpenImage};
use crate::foreign::ForeignFileSystem;
use crate::fs::Fs;
use crate::{Error, ErrorCause, FileSystemKind, Result};
use drystone_blockdev::BlockDevice;
use drystone_ext4::{AccessTimes, JournalStatistics, MemoryUse, QuotaLimits, QuotaReport};
use drystone_ext4_format::quota::QuotaKind;
use drystone_nilfs2::CheckpointSummary;
use drystone_sync::Arc;
use drystone_vfs::FileSystem;
use std::path::{Path, PathBuf};

/// An open image. No other process may open it meanwhile, unless all of them only read. A child that `fork` made can
/// neither use nor close it: calls fail with `EBADF`, and the parent is not affected.
///
/// Dropping it makes everything durable and marks it clean; [`close`](Image::close) does the same and
/// reports errors.
#[derive(Debug)]
pub struct Image {
    open: Arc<OpenImage>,
}

impl Image {
    /// Opens the image that `name` stands for, for reading and writing: `disk.img`, `/dev/sdb1`,
    /// `disk.img#2` (a partition).
    ///
    /// # Errors
    ///
    /// As [`ImageOptions::open`].
    pub fn open(name: impl AsRef<Path>) -> Result<Image> {
        ImageOptions::default().open(name)
    }

    /// What [`open`](Image::open) chooses by default can be chosen here.
    pub fn options() -> ImageOptions {
        ImageOptions::default()
    }

    /// Opens the image on a device: one in memory, a part of another, or one of the caller's own.
    ///
    /// # Errors
    ///
    /// As [`ImageOptions::open_device`].
    pub fn open_device(device: Arc<dyn BlockDevice>) -> Result<Image> {
        ImageOptions::default().open_device(device)
    }

    /// Makes an image in a new file, on a device or in a partition, and opens it.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::HoldsData`] if something is there that may not be replaced; the options contradict
    /// each other; something can't be written.
    #[cfg(feature = "mkfs")]
    pub fn create(name: impl AsRef<Path>, options: &CreateOptions) -> Result<Image> {
        let name = name.as_ref();
        options.create(name).map_err(|error| error.during("create").at(name))
    }

    /// Makes an image in memory, where it takes as much as is written to it.
    ///
    /// # Errors
    ///
    /// The options contradict each other.
    #[cfg(feature = "mkfs")]
    pub fn in_memory(options: &CreateOptions) -> Result<Image> {
        options.in_memory().map_err(|error| error.during("create an image in memory"))
    }

    /// `named`: what it was opened as, and the file of this machine that it is in.
    pub(crate) fn new(engine: Engine, named: Option<(PathBuf, Option<(u64, u64)>)>) -> Image {
        let (name, host_file) = named.unzip();
        Image { open: Arc::new(OpenImage::new(engine, name, host_file.flatten())) }
    }

    /// Does something with the engine; an error says what, and with which image.
    fn run<T>(
        &self,
        operation: &'static str,
        body: impl FnOnce(&Engine) -> std::result::Result<T, ErrorCause>,
    ) -> Result<T> {
        self.open
            .engine()
            .and_then(body)
            .map_err(|cause| error(cause, operation, self.open.name.as_deref()))
    }

    /// Its files, used as the superuser, who may do everything.
    pub fn fs(&self) -> Fs<'_> {
        Fs::new(ImageReference::Open(&self.open))
    }

    /// Its files, for a thread or a structure of its own. They keep the image open: it is closed when the
    /// image and all of these are dropped.
    pub fn shared_fs(&self) -> Fs<'static> {
        Fs::new(ImageReference::Shared(Arc::clone(&self.open)))
    }

    /// The file or device of this machine that it is in, as device and inode number: a copy into the image
    /// must leave it out ([`CopyOptions::excluded`](crate::transfer::CopyOptions::excluded)).
    pub fn host_file(&self) -> Option<(u64, u64)> {
        self.open.host_file
    }

    /// What it holds.
    pub fn kind(&self) -> FileSystemKind {
        self.open.kind()
    }

    /// The inode level below [`fs`](Image::fs): for servers, which know their callers' inodes.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.open.file_system()
    }

    /// The same, to be handed on. It must not be used any more when the image is closed.
    pub fn shared_file_system(&self) -> Arc<dyn FileSystem> {
        match self.open.engine() {
            Ok(Engine::Ext4(engine)) => Arc::clone(engine) as Arc<dyn FileSystem>,
            Ok(Engine::Nilfs2(engine)) => Arc::clone(engine) as Arc<dyn FileSystem>,
            Err(_) => Arc::new(ForeignFileSystem),
        }
    }

    /// What is in memory now, where the engine counts it.
    pub fn memory_use(&self) -> Option<MemoryUse> {
        match self.open.engine() {
            Ok(Engine::Ext4(engine)) => Some(engine.memory_use()),
            _ => None,
        }
    }

    /// What the journal has done since the image was opened, if it has one.
    pub fn journal_statistics(&self) -> Option<JournalStatistics> {
        match self.open.engine() {
            Ok(Engine::Ext4(engine)) => engine.journal_statistics(),
            _ => None,
        }
    }

    /// The error that has stopped all changes since the image was opened, if one has: reads go on, and
    /// changes fail until the image is closed and opened again.
    pub fn stopped_by(&self) -> Option<String> {
        match self.open.engine() {
            Ok(Engine::Ext4(engine)) => engine.stopped_by().map(|error| error.to_string()),
            Ok(Engine::Nilfs2(engine)) => engine.stopped_by().map(|error| error.to_string()),
            Err(_) => None,
        }
    }

    /// What users, groups and projects use, and may use: of each kind that the image counts.
    ///
    /// # Errors
    ///
    /// A usage file can't be read, or is damaged.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>> {
        self.run("read the quotas of", |engine| match engine {
            Engine::Ext4(engine) => Ok(engine.quota_reports()?),
            Engine::Nilfs2(_) => Ok(Vec::new()),
        })
    }

    /// Sets the limits of a user, group or project. If one is exceeded, its grace period begins.
    ///
    /// # Errors
    ///
    /// The image doesn't count this kind, or can't be changed.
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Result<()> {
        self.run("set quota limits of", |engine| {
            Ok(engine.ext4("quotas")?.set_quota_limits(kind, id, limits)?)
        })
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
    ) -> Result<()> {
        self.run("set a quota grace period of", |engine| {
            Ok(engine.ext4("quotas")?.set_quota_grace(kind, space_seconds, inode_seconds)?)
        })
    }

    /// The checkpoints that the image holds, the oldest first.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Lacks`] if it holds ext4; the checkpoint file is damaged or can't be read.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointSummary>> {
        self.run("list the checkpoints of", |engine| {
            Ok(engine.nilfs2("checkpoints")?.checkpoints()?)
        })
    }

    /// Makes everything durable and returns the number of the newest checkpoint.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Lacks`] if it holds ext4; something can't be written.
    pub fn make_checkpoint(&self) -> Result<u64> {
        self.run("make a checkpoint of", |engine| {
            Ok(engine.nilfs2("checkpoints")?.make_checkpoint()?)
        })
    }

    /// Makes a checkpoint a snapshot, which the cleaner keeps, or a plain one again.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Lacks`] if it holds ext4; there is no such checkpoint, or something can't be written.
    pub fn set_snapshot(&self, number: u64, is_snapshot: bool) -> Result<()> {
        self.run("change a checkpoint of", |engine| {
            Ok(engine.nilfs2("checkpoints")?.set_snapshot(number, is_snapshot)?)
        })
    }

    /// Deletes a checkpoint. The cleaner takes back what only this one had.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Lacks`] if it holds ext4; there is no such checkpoint, it is a snapshot or the newest, or
    /// something can't be written.
    pub fn delete_checkpoint(&self, number: u64) -> Result<()> {
        self.run("delete a checkpoint of", |engine| {
            Ok(engine.nilfs2("checkpoints")?.delete_checkpoint(number)?)
        })
    }

    /// Makes everything durable and marks the image clean, which takes no changes from now on. Does
    /// nothing if it was opened to be read only.
    ///
    /// # Errors
    ///
    /// Something could not be written; the image takes changes as before, unless that is why.
    pub fn make_read_only(&self) -> Result<()> {
        self.run("make read-only", |engine| {
            Ok(engine.ext4("change to read-only while it is open")?.make_read_only()?)
        })
    }

    /// Has the image take changes again after [`make_read_only`](Image::make_read_only).
    ///
    /// # Errors
    ///
    /// It was opened to be read only, or can't be written to.
    pub fn make_writable(&self) -> Result<()> {
        self.run("make writable", |engine| {
            Ok(engine.ext4("change to read-only while it is open")?.make_writable()?)
        })
    }

    /// Chooses which accesses change times of access from now on; `of_directories`: also of
    /// directories. NILFS2 keeps no times of access.
    pub fn set_access_times(&self, times: AccessTimes, of_directories: bool) {
        if let Ok(Engine::Ext4(engine)) = self.open.engine() {
            engine.set_access_times(times, of_directories);
        }
    }

    /// Makes everything durable and marks the image clean.
    ///
    /// # Errors
    ///
    /// Something could not be written; the image must then be opened again to recover.
    /// [`ErrorCause::StillUsed`] if a [`shared_fs`](Image::shared_fs) or a handle from it is still there:
    /// everything is durable then, and the image is closed when the last of them is dropped.
    pub fn close(self) -> Result<()> {
        let name = self.open.name.clone();
        let closed = match Arc::try_unwrap(self.open) {
            Ok(open) => open.engine().and_then(Engine::close),
            Err(open) => match open.file_system().sync() {
                Ok(()) => Err(ErrorCause::StillUsed),
                Err(error) => Err(error.into()),
            },
        };
        closed.map_err(|cause| error(cause, "close", name.as_deref()))
    }
}

/// Why something with an image failed, which has a name unless it is on a device of the caller.
fn error(cause: ErrorCause, operation: &'static str, name: Option<&Path>) -> Error {
    let error = Error::from(cause).during(operation);
    match name {
        Some(name) => error.at(name),
        None => error,
    }
}
