//! A user-space ext4 engine: journaled, crash-safe, many threads at once.
#![forbid(unsafe_code)]

mod build_nilfs2;
mod change;
mod check;
pub mod compare;
mod disk;
mod error;
mod image;
mod information;
mod make;
mod replace;
mod settled;
pub mod transfer;
mod way;

pub use build_nilfs2::{Nilfs2BuildOptions, Nilfs2Builder};
pub use change::{ChangeOptions, resize_image, tune_image, undo};
pub use check::{check_image, check_nilfs2, plan_repair, repair_image};
/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
/// The example in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guide/library.md")]
struct Guide;

pub use disk::{DiskInformation, PartitionInformation};
pub use drystone_blockdev::DeviceError;
pub use drystone_ext4::{AccessTimes, MemoryUse, Policy, QuotaLimits, QuotaReport, UnknownPolicy};
pub use drystone_ext4_format::features::Features;
pub use drystone_ext4_format::hash::HashVersion;
pub use drystone_ext4_format::quota::{QuotaEntry, QuotaInfo, QuotaKind, SPACE_LIMIT_UNIT};
pub use drystone_ext4_format::superblock::ErrorPolicy;
pub use drystone_fsck as fsck;
pub use drystone_mkfs as mkfs;
pub use drystone_nilfs2::CheckpointSummary;
pub use drystone_nilfs2::mkfs::MakeOptions as Nilfs2MakeOptions;
pub use drystone_nilfs2_check as nilfs2_check;
pub use drystone_reshape as reshape;
pub use drystone_sources::{Exclude, glob};
pub use drystone_vfs as vfs;
pub use drystone_volumes::{
    FileSystemKind, TableKind, VolumeError, VolumeName, kind_of, open_as_named, parse_size,
};
pub use error::Error;
pub use image::{Image, OpenOptions};
pub use information::{Ext4Information, Information, Nilfs2Information};
pub use make::{make_image, make_nilfs2, size_of};
pub use replace::replace;
pub use way::Way;
