//! What can be wrong with an image: kinds and places.
//!
//! [`Corrupt`] names a structure that contradicts the format or itself; [`Unsupported`] names
//! something valid that this code does not do. Both are values to compare and to print, and hold
//! no more than numbers. A `…Problem` says what is wrong with one kind of structure. They stand
//! here, below the structures, because the checks of the structures return them.

mod attribute;
mod corrupt;
mod directory;
mod geometry;
mod group;
mod inode;
mod special;

pub use attribute::{AclProblem, AttributeProblem};
pub use corrupt::Corrupt;
pub use directory::{DirectoryProblem, IndexProblem};
pub use geometry::GeometryProblem;
pub use group::{BlockProblem, GroupCounter, GroupPart};
pub use inode::{
    ExtentEntryProblem, ExtentHeaderProblem, InlineProblem, InodeProblem, MappedBlockProblem,
};
pub use special::{FastCommitProblem, MmpProblem, OrphanFileProblem, QuotaProblem};

use thiserror::Error;

/// Why bytes of an image could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes contradict the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use something that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Something valid that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The device holds no files but the journal of other images (`journal_dev`).
    #[error("it holds only the journal of an image that is on another device")]
    JournalDevice,
    /// Incompatible features, by name: the image can't be used.
    #[error("unsupported incompatible features: {features}")]
    IncompatFeatures {
        /// Their names, separated by commas.
        features: String,
    },
    /// Read-only compatible features, by name: the image can't be written.
    #[error("unsupported features, the image can only be read: {features}")]
    ReadOnlyCompatFeatures {
        /// Their names, separated by commas.
        features: String,
    },
    /// A revision of the format that is not known.
    #[error("unsupported revision {revision}")]
    Revision {
        /// The revision.
        revision: u32,
    },
    /// A checksum type that is not known.
    #[error("unsupported checksum type {kind}")]
    ChecksumType {
        /// The number of the type.
        kind: u8,
    },
}

impl Corrupt {
    /// Whether what contradicts is a checksum, and not something that a structure says.
    #[must_use]
    pub const fn is_checksum(&self) -> bool {
        matches!(
            self,
            Self::SuperblockChecksum { .. }
                | Self::GroupChecksum { .. }
                | Self::BitmapChecksum { .. }
                | Self::InodeChecksum { .. }
                | Self::ExtentChecksum { .. }
                | Self::DirectoryChecksum { .. }
                | Self::AttributeChecksum { .. }
                | Self::OrphanFile { problem: OrphanFileProblem::Checksum { .. }, .. }
                | Self::Mmp { problem: MmpProblem::Checksum { .. }, .. }
        )
    }
}
