//! Why something failed: a case for each crate below, and what the library itself refuses.

use crate::{FileSystemKind, VolumeError};
use drystone_blockdev::{DeviceError, KernelUse};
use drystone_vfs::Errno;
use std::io;

/// Why something failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorCause {
    /// A call on the files of an image failed, as a system call would.
    #[error(transparent)]
    File(#[from] drystone_vfs::Error),
    /// The image is still used through handles that keep it open.
    #[error("handles to the image are still in use; it is closed when the last of them is dropped")]
    StillUsed,
    /// Somebody else has it open.
    #[error("in use by another process")]
    InUse,
    /// Another client of its server has it open, and is alive.
    #[error("in use by {0}")]
    InUseBy(String),
    /// The kernel uses it as a disk, and it was to be written.
    #[error("{0}")]
    InUseByKernel(KernelUse),
    /// The host can't open it.
    #[error("{0}")]
    Host(drystone_sync::Arc<std::io::Error>),
    /// It could not be read or written.
    #[error(transparent)]
    Device(DeviceError),
    /// Its name can't be understood, or leads to no partition.
    #[error("{0}")]
    Volume(VolumeError),
    /// It holds no file system that is known.
    #[error(
        "it holds neither ext4 (ext2, ext3) nor NILFS2; if its superblock was lost, 'drystone check' looks for a copy"
    )]
    Unrecognized,
    /// The superblock isn't understood.
    #[error("the superblock can't be used: {0}")]
    Superblock(drystone_ext4_format::FormatError),
    /// It can't be made so.
    #[cfg(feature = "mkfs")]
    #[error(transparent)]
    Make(drystone_mkfs::Error),
    /// It can't be checked.
    #[cfg(feature = "fsck")]
    #[error("{0}")]
    Check(drystone_sync::Arc<drystone_fsck::Error>),
    /// An archive or another source of files can't be read.
    #[cfg(feature = "tar")]
    #[error("{0}")]
    Source(drystone_sync::Arc<drystone_sources::Error>),
    /// An image was to be made where something is already.
    #[error("it isn't empty: ask for it to be overwritten, if it may be")]
    HoldsData,
    /// An image of another size was to be made on a block device, which it has to fill.
    #[error("NILFS2 has to fill the device, which has {bytes} bytes: leave out the size")]
    DeviceSize {
        /// The size of the device.
        bytes: u64,
    },
    /// The policy is for benchmarks only: after a crash space would be lost.
    #[error(
        "policy '{0}' is for benchmarks only: after a crash, deleted files would keep their space"
    )]
    UnsafePolicy(drystone_ext4::Policy),
    /// The engine can't use it.
    #[error(transparent)]
    Engine(#[from] drystone_ext4::Error),
    /// The engine of NILFS2 can't use it, or it can't be made so.
    #[error(transparent)]
    Nilfs2(drystone_nilfs2::Error),
    /// It can't be checked as NILFS2.
    #[cfg(feature = "fsck")]
    #[error("{0}")]
    CheckNilfs2(drystone_sync::Arc<drystone_nilfs2_check::CheckError>),
    /// It can't be changed so.
    #[cfg(feature = "reshape")]
    #[error(transparent)]
    Reshape(drystone_reshape::ReshapeError),
    /// It can't be looked into, or lacks what was asked for.
    #[cfg(feature = "fsck")]
    #[error(transparent)]
    Inspect(drystone_inspect::InspectError),
    /// A change can't be taken back.
    #[error(transparent)]
    Undo(drystone_blockdev::UndoError),
    /// It has errors.
    #[error("it has errors, which have to be repaired first ({errors}; the first: {first})")]
    HasErrors {
        /// How many.
        errors: u64,
        /// The first one.
        first: String,
    },
    /// It was to be larger than the partition or device that it is in.
    #[error(
        "it can't have {wanted} bytes: the partition or device ends after {bytes}; enlarge that first"
    )]
    NoRoom {
        /// Bytes that were wanted.
        wanted: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// The undo log of a change was to be kept where there is a file.
    #[error("{} exists already", .0.display())]
    LogExists(std::path::PathBuf),
    /// The undo log of a change was to be kept where each change has its own while it runs.
    #[error("{} is for the undo log of a running change; keep this one elsewhere", .0.display())]
    LogBeside(std::path::PathBuf),
    /// A change is complete, and its undo log could not be moved to where it was to be kept.
    #[error(
        "the change is complete, but its undo log stays in {}; move it from there before the next change: {source}",
        path.display()
    )]
    LogStays {
        /// Where the log is.
        path: std::path::PathBuf,
        /// What the host says.
        source: drystone_sync::Arc<io::Error>,
    },
    /// A change of the whole image has failed, and could not be rolled back.
    #[error(
        "{change}; it could not be rolled back ({rollback}), and the image is half changed: 'drystone undo' tries \
         again with the log, {}",
        log.display()
    )]
    HalfChanged {
        /// Why the change failed.
        change: Box<crate::Error>,
        /// Why it could not be rolled back.
        rollback: drystone_blockdev::UndoError,
        /// The undo log, without which nothing can roll it back.
        log: std::path::PathBuf,
    },
    /// A change of the whole image was interrupted.
    #[error("a change was interrupted and left it half changed: 'drystone undo' rolls it back")]
    Interrupted,
    /// The caller has cancelled it. What was done of it was taken back.
    #[error("cancelled: nothing has changed")]
    Cancelled,
    /// It holds NILFS2, which can't be repaired or changed as a whole.
    #[error(
        "a NILFS2 volume can't be repaired or changed as a whole; only 'resize' can make it larger"
    )]
    OnlyGrows,
    /// The kind of file system that the image holds doesn't have it.
    #[error("{} has no {what}", match kind {
        FileSystemKind::Ext4 => "ext4",
        FileSystemKind::Nilfs2 => "NILFS2",
    })]
    Lacks {
        /// What the image holds.
        kind: FileSystemKind,
        /// What was asked for.
        what: &'static str,
    },
}

impl ErrorCause {
    /// The number that a system call would give.
    pub fn errno(&self) -> Errno {
        match self {
            ErrorCause::File(error) => error.errno,
            ErrorCause::InUse
            | ErrorCause::InUseBy(_)
            | ErrorCause::InUseByKernel(_)
            | ErrorCause::StillUsed => Errno::EBUSY,
            ErrorCause::HoldsData => Errno::EEXIST,
            ErrorCause::Lacks { .. } | ErrorCause::OnlyGrows => Errno::EOPNOTSUPP,
            ErrorCause::Engine(error) => error.errno(),
            ErrorCause::Nilfs2(error) => error.errno(),
            ErrorCause::Device(DeviceError::NoSpace { .. }) => Errno::ENOSPC,
            ErrorCause::Device(DeviceError::ReadOnly) => Errno::EROFS,
            ErrorCause::Superblock(_) | ErrorCause::Unrecognized => Errno::EUCLEAN,
            ErrorCause::LogExists(_) => Errno::EEXIST,
            ErrorCause::Cancelled => Errno::EINTR,
            ErrorCause::HasErrors { .. } | ErrorCause::Interrupted => Errno::EUCLEAN,
            ErrorCause::NoRoom { .. } => Errno::ENOSPC,
            #[cfg(feature = "mkfs")]
            ErrorCause::Make(error) => match error {
                drystone_mkfs::Error::Cancelled => Errno::EINTR,
                drystone_mkfs::Error::DoesNotFit { .. } | drystone_mkfs::Error::TooSmall { .. } => {
                    Errno::ENOSPC
                }
                drystone_mkfs::Error::Source(_) => Errno::EIO,
                _ => Errno::EINVAL,
            },
            #[cfg(feature = "reshape")]
            ErrorCause::Reshape(_) => Errno::EINVAL,
            #[cfg(feature = "fsck")]
            ErrorCause::Inspect(_) => Errno::EINVAL,
            ErrorCause::LogStays { .. } => Errno::EIO,
            ErrorCause::HalfChanged { change, .. } => change.cause().errno(),
            ErrorCause::Undo(_)
            | ErrorCause::LogBeside(_)
            | ErrorCause::DeviceSize { .. }
            | ErrorCause::UnsafePolicy(_)
            | ErrorCause::Volume(_) => Errno::EINVAL,
            ErrorCause::Host(error) => errno_of(error),
            #[cfg(feature = "tar")]
            ErrorCause::Source(error) => match (&**error, error.io_error()) {
                (_, Some(error)) => errno_of(error),
                (drystone_sources::Error::Cancelled, None) => Errno::EINTR,
                _ => Errno::EINVAL,
            },
            #[cfg(feature = "fsck")]
            ErrorCause::Check(_) | ErrorCause::CheckNilfs2(_) => Errno::EIO,
            ErrorCause::Device(DeviceError::Io { source, .. }) => errno_of(source),
            ErrorCause::Device(_) => Errno::EIO,
        }
    }
}

/// The number that the host gave, or the one for what the standard library says.
fn errno_of(error: &io::Error) -> Errno {
    if let Some(errno) = error.raw_os_error().and_then(Errno::from_code) {
        return errno;
    }
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT,
        io::ErrorKind::PermissionDenied => Errno::EACCES,
        io::ErrorKind::AlreadyExists => Errno::EEXIST,
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::QuotaExceeded => Errno::EDQUOT,
        io::ErrorKind::ReadOnlyFilesystem => Errno::EROFS,
        io::ErrorKind::InvalidFilename => Errno::ENAMETOOLONG,
        io::ErrorKind::IsADirectory => Errno::EISDIR,
        io::ErrorKind::NotADirectory => Errno::ENOTDIR,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Errno::EINVAL,
        io::ErrorKind::Interrupted => Errno::EINTR,
        io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
        _ => Errno::EIO,
    }
}

#[cfg(feature = "tar")]
impl From<drystone_sources::Error> for ErrorCause {
    fn from(error: drystone_sources::Error) -> ErrorCause {
        ErrorCause::Source(drystone_sync::Arc::new(error))
    }
}

#[cfg(feature = "tar")]
impl From<drystone_sources::LineError> for ErrorCause {
    fn from(error: drystone_sources::LineError) -> ErrorCause {
        drystone_sources::Error::from(error).into()
    }
}

impl From<Errno> for ErrorCause {
    fn from(errno: Errno) -> ErrorCause {
        ErrorCause::File(errno.into())
    }
}

impl From<DeviceError> for ErrorCause {
    fn from(error: DeviceError) -> ErrorCause {
        match error {
            DeviceError::InUse { .. } => ErrorCause::InUse,
            DeviceError::Locked { owner, .. } => ErrorCause::InUseBy(owner),
            DeviceError::InUseByKernel { usage, .. } => ErrorCause::InUseByKernel(usage),
            DeviceError::Open { source, .. } => ErrorCause::Host(source),
            other => ErrorCause::Device(other),
        }
    }
}

/// What a crate below says of the device is said as what the device says itself.
macro_rules! from_error_with_device {
    ($($(#[$feature:meta])? $($error:ident)::+, $other:ident => $cause:expr;)*) => {$(
        $(#[$feature])?
        impl From<$($error)::+> for ErrorCause {
            fn from(error: $($error)::+) -> ErrorCause {
                match error {
                    $($error)::+::Device(error) => error.into(),
                    $other => $cause,
                }
            }
        }
    )*};
}

from_error_with_device! {
    VolumeError, other => ErrorCause::Volume(other);
    drystone_blockdev::UndoError, other => ErrorCause::Undo(other);
    drystone_nilfs2::Error, other => ErrorCause::Nilfs2(other);
    #[cfg(feature = "mkfs")]
    drystone_mkfs::Error, other => ErrorCause::Make(other);
    #[cfg(feature = "fsck")]
    drystone_fsck::Error, other => ErrorCause::Check(drystone_sync::Arc::new(other));
    #[cfg(feature = "fsck")]
    drystone_nilfs2_check::CheckError,
        other => ErrorCause::CheckNilfs2(drystone_sync::Arc::new(other));
    #[cfg(feature = "fsck")]
    drystone_inspect::InspectError, other => ErrorCause::Inspect(other);
    #[cfg(feature = "reshape")]
    drystone_reshape::ReshapeError, other => ErrorCause::Reshape(other);
}

impl From<drystone_volumes::NameError> for ErrorCause {
    fn from(error: drystone_volumes::NameError) -> ErrorCause {
        ErrorCause::Volume(error.into())
    }
}
