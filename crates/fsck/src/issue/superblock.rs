//! What can be wrong with the superblock and its copies.

use drystone_ext4_format::{FormatError, PhysicalBlock};
use thiserror::Error;

/// What is wrong with the superblock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockIssue {
    /// The primary superblock can't be used; the check went on with a backup.
    #[error("unusable ({problem}); the copy at block {backup} is used instead")]
    Unusable {
        /// Why.
        problem: FormatError,
        /// The copy.
        backup: PhysicalBlock,
    },
    /// The primary superblock doesn't lead to the root, and a backup does; the check went on with that.
    #[error("doesn't lead to the root; the copy at block {backup} does, and is used instead")]
    Misleading {
        /// The copy.
        backup: PhysicalBlock,
    },
    /// The superblock can't be used, and no copy was found.
    #[error("unusable ({problem}), and no copy was found; nothing more was checked")]
    Damaged {
        /// Why.
        problem: FormatError,
    },
    /// The device is smaller than the file system.
    #[error("the image is cut off: {blocks} blocks, but the device has only {device_blocks}")]
    DeviceTooSmall {
        /// Blocks of the file system.
        blocks: u64,
        /// Whole blocks of the device.
        device_blocks: u64,
    },
    /// A change of the image as a whole was interrupted, and nothing says what was there before.
    #[error(
        "a change of the image was interrupted, and its undo log isn't found: beside a file, named as the image with .undo \
         behind it; for devices and exports in /var/lib/drystone. If the image was moved or renamed, move the log too, \
         and run 'drystone undo'. If the log is lost: 'drystone check -y --without-undo-log'"
    )]
    HalfChanged,
    /// Two features exclude each other.
    #[error("features {first} and {second} exclude each other")]
    FeatureConflict {
        /// A feature.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A feature needs another one.
    #[error("feature {feature} needs {needed}")]
    FeatureNeeds {
        /// The feature.
        feature: &'static str,
        /// What is missing.
        needed: &'static str,
    },
    /// Features in an image of the revision that has none.
    #[error("features are set, but revision 0 has none")]
    OldRevision,
    /// A field is set that has no meaning without a feature.
    #[error("{field} is {value}, without the feature {feature}")]
    FieldWithoutFeature {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The feature.
        feature: &'static str,
    },
    /// A field has a value that it can't have.
    #[error("{field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A time that hasn't come yet.
    #[error("{field} is {seconds}, in the future")]
    Future {
        /// The field.
        field: &'static str,
        /// Seconds since 1970.
        seconds: u64,
    },
    /// The count of free blocks is wrong.
    #[error("{stored} free blocks, counted {counted}")]
    FreeBlocks {
        /// What is stored.
        stored: u64,
        /// What was counted.
        counted: u64,
    },
    /// The count of free inodes is wrong.
    #[error("{stored} free inodes, counted {counted}")]
    FreeInodes {
        /// What is stored.
        stored: u64,
        /// What was counted.
        counted: u64,
    },
    /// The image remembers errors that somebody met.
    #[error("errors were recorded: {count}")]
    ErrorsRecorded {
        /// How many.
        count: u32,
    },
}

impl SuperblockIssue {
    pub(super) const fn is_warning(&self) -> bool {
        // A mount counts again, and sets the times.
        matches!(
            self,
            Self::ErrorsRecorded { .. }
                | Self::FreeBlocks { .. }
                | Self::FreeInodes { .. }
                | Self::Future { .. }
        )
    }
}

/// What is wrong with a copy of the superblock or of the descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BackupIssue {
    /// The copy of the superblock can't be used.
    #[error("superblock: {0}")]
    Unusable(FormatError),
    /// The copy describes another image.
    #[error("superblock: {field} differs from the primary superblock")]
    Differs {
        /// The field.
        field: &'static str,
    },
    /// The copy has other features, as a mount may leave it.
    #[error("superblock: features are {found}")]
    Features {
        /// The copy's features.
        found: String,
    },
    /// A copied descriptor points elsewhere.
    #[error("descriptor {descriptor} differs from the primary one")]
    Descriptor {
        /// Which group the descriptor is for.
        descriptor: u32,
    },
}
