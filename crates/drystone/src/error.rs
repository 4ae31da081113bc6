//! Why an image could not be used as a whole. What goes wrong with its files is a
//! [`vfs::Error`](crate::vfs::Error).

use crate::{FileSystemKind, VolumeError};
use drystone_blockdev::{DeviceError, KernelUse};

/// Why an image could not be opened, described or closed. Says nothing of its path, which the
/// caller knows.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has it open.
    #[error("in use by another process")]
    InUse,
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
    /// There is no superblock, or one that isn't understood.
    #[error("no ext4 file system: {0}")]
    Superblock(drystone_ext4_format::FormatError),
    /// It can't be made so.
    #[error(transparent)]
    Make(#[from] drystone_mkfs::Error),
    /// It can't be checked.
    #[error("{0}")]
    Check(drystone_sync::Arc<drystone_fsck::Error>),
    /// An image was to be made where something is already.
    #[error("it isn't empty")]
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
    #[error("{0}")]
    CheckNilfs2(drystone_sync::Arc<drystone_nilfs2_check::CheckError>),
    /// It can't be changed so.
    #[error(transparent)]
    Reshape(drystone_reshape::ReshapeError),
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
    #[error("it can't have {wanted} bytes: the partition or device ends after {bytes}")]
    NoRoom {
        /// Bytes that were wanted.
        wanted: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// The undo log of a change was to be kept where there is a file.
    #[error("{} exists already", .0.display())]
    LogExists(std::path::PathBuf),
    /// A change of the whole image was interrupted.
    #[error("a change of it was interrupted: 'drystone undo' rolls it back")]
    Interrupted,
    /// A repair was to end. What it had done was taken back.
    #[error("the repair was cancelled: nothing has changed")]
    RepairCancelled,
    /// The kind of file system that the image holds doesn't have it.
    #[error("{kind} has no {what}")]
    Lacks {
        /// What the image holds.
        kind: FileSystemKind,
        /// What was asked for.
        what: &'static str,
    },
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        match error {
            DeviceError::InUse { .. } => Error::InUse,
            DeviceError::InUseByKernel { usage, .. } => Error::InUseByKernel(usage),
            DeviceError::Open { source, .. } => Error::Host(source),
            other => Error::Device(other),
        }
    }
}

impl From<VolumeError> for Error {
    fn from(error: VolumeError) -> Error {
        match error {
            VolumeError::Device(error) => error.into(),
            other => Error::Volume(other),
        }
    }
}

impl From<drystone_volumes::NameError> for Error {
    fn from(error: drystone_volumes::NameError) -> Error {
        Error::Volume(error.into())
    }
}

impl From<drystone_nilfs2::Error> for Error {
    fn from(error: drystone_nilfs2::Error) -> Error {
        match error {
            drystone_nilfs2::Error::Device(error) => error.into(),
            other => Error::Nilfs2(other),
        }
    }
}

impl From<drystone_nilfs2_check::CheckError> for Error {
    fn from(error: drystone_nilfs2_check::CheckError) -> Error {
        match error {
            drystone_nilfs2_check::CheckError::Device(error) => error.into(),
            other => Error::CheckNilfs2(drystone_sync::Arc::new(other)),
        }
    }
}

impl From<drystone_fsck::Error> for Error {
    fn from(error: drystone_fsck::Error) -> Error {
        match error {
            drystone_fsck::Error::Device(error) => error.into(),
            other => Error::Check(drystone_sync::Arc::new(other)),
        }
    }
}

impl From<drystone_reshape::ReshapeError> for Error {
    fn from(error: drystone_reshape::ReshapeError) -> Error {
        match error {
            drystone_reshape::ReshapeError::Device(error) => error.into(),
            other => Error::Reshape(other),
        }
    }
}

impl From<drystone_blockdev::UndoError> for Error {
    fn from(error: drystone_blockdev::UndoError) -> Error {
        match error {
            drystone_blockdev::UndoError::Device(error) => error.into(),
            other => Error::Undo(other),
        }
    }
}
