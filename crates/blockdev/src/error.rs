//! What can go wrong on a block device.

use crate::KernelUse;
use drystone_sync::Arc;
use std::fmt;
use std::path::PathBuf;

/// Result of a device operation.
pub type DeviceResult<T = ()> = Result<T, DeviceError>;

/// A failed device operation. Clones share the system's error, so that one failure can be
/// told to every waiter of a commit.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range reaches beyond the device's end. The caller's bug, or a number from a
    /// corrupt image that was not checked.
    #[error("range at byte {offset} of {length} bytes is outside the device of {size} bytes")]
    OutOfRange {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
        /// Size of the device in bytes.
        size: u64,
    },

    /// A write to a read-only device.
    #[error("device is read-only")]
    ReadOnly,

    /// The device can't have another size.
    #[error("the device has {size} bytes and can't change its size")]
    FixedSize {
        /// Size of the device in bytes.
        size: u64,
    },

    /// The medium behind the device is full.
    #[error("no space is left where the image lies: {length} bytes were needed at byte {offset}")]
    NoSpace {
        /// First byte of the range that could not be written.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
    },

    /// The system reported an error. After a failed write the range may hold old bytes,
    /// new bytes or both; after a failed flush nothing since the last good one is durable.
    #[error("{operation} of {length} bytes at byte {offset} failed: {source}")]
    Io {
        /// What was asked.
        operation: DeviceOperation,
        /// First byte of the range; 0 for a flush.
        offset: u64,
        /// Length of the range in bytes; 0 for a flush.
        length: u64,
        /// What the system said.
        source: Arc<std::io::Error>,
    },

    /// An earlier flush failed. The system reports that once and may have dropped what was written
    /// before, so nothing more is written until the device is opened again.
    #[error("nothing more is written after a flush that failed: {source}")]
    FlushFailed {
        /// What the system said then.
        source: Arc<std::io::Error>,
    },

    /// The work on the device was cancelled.
    #[error("cancelled")]
    Cancelled,

    /// Another process, or another part of this one, has the device open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file or device.
        path: PathBuf,
    },

    /// Another client of the server has the device open, and is alive.
    #[error("{} is in use by {owner}", path.display())]
    Locked {
        /// The name of the volume.
        path: PathBuf,
        /// What the server calls that client, and what to do.
        owner: String,
    },

    /// The kernel uses the file as a disk: writing it would damage both.
    #[error("{} is {usage}", path.display())]
    InUseByKernel {
        /// The file.
        path: PathBuf,
        /// How.
        usage: KernelUse,
    },

    /// A file could not be opened, created, measured or resized.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file or device.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
}

impl DeviceError {
    /// The error for what the system reported about a range.
    #[must_use]
    pub fn io(
        operation: DeviceOperation,
        offset: u64,
        length: u64,
        source: std::io::Error,
    ) -> Self {
        match source.kind() {
            // A flush that finds no space has lost data whose writes were reported as done.
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                if operation != DeviceOperation::Flush =>
            {
                Self::NoSpace { offset, length }
            }
            _ => Self::Io { operation, offset, length, source: Arc::new(source) },
        }
    }
}

/// Kinds of device operations, in errors, fault rules and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceOperation {
    /// A read.
    Read,
    /// A write, plain or durable.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A write of zeros.
    Zero,
}

impl DeviceOperation {
    /// All kinds, in the order of their numbers (`kind as usize`).
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::Zero];
}

impl fmt::Display for DeviceOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Zero => "zeroing",
        })
    }
}
