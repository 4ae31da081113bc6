//! Disk images of virtual machines: files that hold a disk in a format of their own.
//!
//! A file is what its first bytes say, whatever its name. qcow2 is read and written; of VMDK, flat extents are
//! read. The crate `imago` does both, after `Qcow2Header::check` has refused what it can't handle.
//!
//! # Crash
//!
//! The crate writes reference counts before the tables that use them, so the image survives the end of the
//! process. It doesn't wait for the disk in between (`device` says what follows for data). After a power cut a
//! table may thus refer to clusters that are counted as free. An image of version 3 is marked as not closed while
//! it is written, so QEMU corrects the counts before it writes. Opening to write counts the users of each cluster here
//! (`restore_counts`), before anything is allocated. A cluster with compressed data or of a snapshot has several,
//! and none may be missing: the cluster is free when the last one that is counted is gone. Counts that are too
//! high may remain; `qemu-img check -r leaks` lowers them.

#[cfg(feature = "containers")]
mod device;
#[cfg(feature = "containers")]
mod header;
#[cfg(feature = "containers")]
mod image_file;
#[cfg(feature = "containers")]
mod refcounts;
#[cfg(feature = "containers")]
mod users;

use drystone_blockdev::{BlockDevice, DeviceError, FileDevice, OpenMode};
use drystone_sync::Arc;
use std::path::Path;

/// The suffix of files that are made as qcow2.
const QCOW2_SUFFIX: &str = "qcow2";

/// A format of disk images. What is none of them is raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerFormat {
    /// QEMU's, version 2 or 3.
    Qcow2,
    /// VMware's, by its text descriptor.
    Vmdk,
    /// A VMDK whose descriptor and data are in one sparse file.
    SparseVmdk,
    /// Hyper-V's.
    Vhdx,
    /// VirtualBox's.
    Vdi,
    /// QEMU's first.
    Qcow1,
}

/// What files begin with: the offset and the bytes.
const MAGICS: [(ContainerFormat, u64, &[u8]); 7] = [
    (ContainerFormat::Qcow1, 0, b"QFI\xfb\0\0\0\x01"),
    (ContainerFormat::Qcow2, 0, b"QFI\xfb"),
    (ContainerFormat::Vmdk, 0, b"# Disk DescriptorFile"),
    (ContainerFormat::SparseVmdk, 0, b"KDMV"),
    (ContainerFormat::SparseVmdk, 0, b"COWD"),
    (ContainerFormat::Vhdx, 0, b"vhdxfile"),
    (ContainerFormat::Vdi, 64, &0xbeda_107f_u32.to_le_bytes()),
];

impl ContainerFormat {
    /// The format of a file; `None` for a raw image.
    pub(crate) fn of(file: &FileDevice) -> Result<Option<ContainerFormat>, DeviceError> {
        for (format, offset, expected) in MAGICS {
            let mut bytes = vec![0; expected.len()];
            if crate::kind::read_if_there(file, offset, &mut bytes)? && bytes == expected {
                return Ok(Some(format));
            }
        }
        Ok(None)
    }
}

impl std::fmt::Display for ContainerFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
            Self::SparseVmdk => "a VMDK in one sparse file",
            Self::Vhdx => "VHDX",
            Self::Vdi => "VDI",
            Self::Qcow1 => "qcow version 1",
        })
    }
}

/// Which backing files a disk image may have.
///
/// What is written to an image takes the rest of its cluster from there. A guest could write a header into its raw
/// disk that names a file of the host, and then read in its disk what was in that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackingFiles {
    /// Any: somebody has said that it is such an image.
    Any,
    /// Those that are no surprise. An image that is written must be called a qcow2 for it, and they must be in its
    /// directory or below.
    Expected,
}

/// Opens an image file as the disk that it holds.
pub(crate) fn open(
    path: &Path,
    format: ContainerFormat,
    mode: OpenMode,
    backing: BackingFiles,
) -> Result<Arc<dyn BlockDevice>, ContainerError> {
    #[cfg(feature = "containers")]
    return Ok(Arc::new(device::ContainerDevice::open(path, format, mode, backing)?));
    #[cfg(not(feature = "containers"))]
    {
        let _ = (path, mode, backing);
        Err(ContainerError::LeftOut(format))
    }
}

/// Makes a qcow2 of a disk of zeros in an open file, whatever is in the file.
///
/// # Errors
///
/// The file can't be written; this program was compiled without qcow2.
pub fn create_qcow2(
    file: FileDevice,
    size_bytes: u64,
) -> Result<Arc<dyn BlockDevice>, ContainerError> {
    #[cfg(feature = "containers")]
    return Ok(Arc::new(device::ContainerDevice::create_qcow2(file, size_bytes)?));
    #[cfg(not(feature = "containers"))]
    {
        let _ = (file, size_bytes);
        Err(ContainerError::LeftOut(ContainerFormat::Qcow2))
    }
}

/// Whether a new file of this name is made as qcow2.
#[must_use]
pub fn is_named_qcow2(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case(QCOW2_SUFFIX))
}

/// Why a disk image can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The file, or one that it names, can't be opened or read.
    #[error(transparent)]
    Device(DeviceError),
    /// It is in a format that this program was compiled without.
    #[error("{0}, which this program was compiled without")]
    LeftOut(ContainerFormat),
    /// The format isn't known well enough.
    #[error("{0}, which can't be used; 'qemu-img convert -O qcow2' makes a copy that can")]
    Unsupported(ContainerFormat),
    /// The format is only read.
    #[error(
        "{0}, which is only read; 'qemu-img convert -O qcow2' makes a copy that can be written"
    )]
    OnlyRead(ContainerFormat),
    /// A qcow2 has something that isn't supported.
    #[error(
        "a qcow2 with {0}, which can't be used; 'qemu-img convert -O qcow2' makes a copy that can"
    )]
    Feature(&'static str),
    /// The name says that it is a qcow2.
    #[error("not a qcow2, as its name says")]
    NoQcow2,
    /// A qcow2 is damaged.
    #[error("a damaged qcow2: {0}; 'qemu-img check -r all' may repair it")]
    Damaged(String),
    /// A file ends before something that is in it.
    #[error(
        "a qcow2 that is cut off: what begins at byte {used} of the file is missing, since it has {size} bytes; \
         copy it again"
    )]
    CutOff {
        /// The cluster that is missing.
        used: u64,
        /// The size of the file.
        size: u64,
    },
    /// The crate or the host says so.
    #[error("{format}: {source}")]
    Host {
        /// The format.
        format: ContainerFormat,
        /// What it says.
        source: drystone_sync::Arc<std::io::Error>,
    },
}

impl From<DeviceError> for ContainerError {
    fn from(error: DeviceError) -> ContainerError {
        match error {
            DeviceError::OutOfRange { .. } => {
                ContainerError::Damaged("it ends too early".to_owned())
            }
            other => ContainerError::Device(other),
        }
    }
}
