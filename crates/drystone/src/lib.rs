//! ext4 and NILFS2 images in user space: journaled, crash-safe, many threads at once, without root and without
//! mounts.
//!
//! An [`Image`] is opened, and its [`Fs`] has the functions of [`std::fs`]. Five tasks, on an image in memory:
//!
//! # Read a file
//!
//! ```
//! # use drystone::{CreateOptions, Image};
//! # fn main() -> drystone::Result<()> {
//! # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
//! # image.fs().create_dir("/etc")?;
//! # image.fs().write("/etc/hostname", "wall\n")?;
//! // For a file: Image::options().read_only(true).open("disk.img")?
//! let fs = image.fs();
//! assert_eq!(fs.read_to_string("/etc/hostname")?, "wall\n");
//! # Ok(())
//! # }
//! ```
//!
//! # Write one
//!
//! ```
//! # use drystone::{CreateOptions, Image};
//! use std::io::{Seek, SeekFrom, Write};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
//! let fs = image.fs();
//! fs.create_dir_all("/var/log")?;
//! fs.write("/var/log/first", "at once")?;
//! let mut file = fs.create("/var/log/second")?;
//! write!(file, "line {}\nline {}\n", 1, 2)?;
//! file.seek(SeekFrom::Start(5))?;
//! file.write_all(b"0")?;
//! // Durable when it returns.
//! file.sync_all()?;
//! # drop(file);
//! # assert_eq!(fs.read("/var/log/second")?, b"line 0\nline 2\n");
//! // Errors that dropping the image would only log.
//! image.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Walk a tree
//!
//! ```
//! # use drystone::{CreateOptions, Image};
//! # fn main() -> drystone::Result<()> {
//! # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
//! # let fs = image.fs();
//! # fs.create_dir_all("/srv/www")?;
//! # fs.write("/srv/www/index.html", "<p>")?;
//! let mut bytes = 0;
//! for entry in fs.walk("/srv") {
//!     let entry = entry?;
//!     if entry.file_type().is_file() {
//!         println!("{}", entry.path().display());
//!         bytes += entry.metadata().len();
//!     }
//! }
//! assert_eq!(bytes, 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Set an attribute
//!
//! ```
//! # use drystone::{CreateOptions, Image};
//! use std::fs::Permissions;
//! use std::os::unix::fs::PermissionsExt;
//!
//! # fn main() -> drystone::Result<()> {
//! # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
//! # let fs = image.fs();
//! # fs.write("/tool", "")?;
//! fs.set_permissions("/tool", Permissions::from_mode(0o755))?;
//! fs.chown("/tool", Some(1000), Some(1000))?;
//! fs.set_xattr("/tool", "user.origin", b"built here")?;
//! assert_eq!(fs.metadata("/tool")?.uid(), 1000);
//! assert_eq!(fs.xattr("/tool", "user.origin")?.as_deref(), Some(&b"built here"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Copy a directory
//!
//! ```
//! # use drystone::{CreateOptions, Image};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let tree = scratch.path().join("tree");
//! # std::fs::create_dir(&tree)?;
//! # std::fs::write(tree.join("file"), "x")?;
//! # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
//! # let fs = image.fs();
//! // Into the image, and out of it again; owners, times, links, holes and attributes are kept.
//! fs.copy_in(&tree, "/tree")?;
//! fs.copy_out("/tree", scratch.path().join("back"))?;
//! # assert_eq!(std::fs::read(scratch.path().join("back/file"))?, b"x");
//! # Ok(())
//! # }
//! ```
//!
//! # Further
//!
//! - [`Fs::as_user`]: the files as an ordinary user may use them.
//! - [`Image::create`], [`Image::in_memory`], [`Image::open_device`]: images that are new, in memory, or on a device of your own.
//! - [`transfer`], [`compare`], [`check_image`]: copies with options and progress, comparisons, checks.
//! - [`Image::file_system`]: the inode level, for servers.
//!
//! Reading changes no access times.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "fsck")]
mod change;
#[cfg(feature = "fsck")]
mod check;
pub mod compare;
mod disk;
mod engine;
mod error;
mod foreign;
pub mod fs;
#[cfg(feature = "reshape")]
mod grow_nilfs2;
mod image;
mod information;
#[cfg(feature = "fsck")]
mod inspect;
#[cfg(feature = "tar")]
mod layer;
#[cfg(feature = "mkfs")]
mod make;
mod replace;
#[cfg(feature = "reshape")]
mod reshaping;
mod settled;
mod snapshot;
pub mod transfer;
#[cfg(feature = "fsck")]
mod undelete;
mod way;

#[cfg(feature = "build")]
pub use build::{BuildOptions, BuildSummary, Nilfs2BuildOptions, Nilfs2Builder, build_image};
#[cfg(feature = "fsck")]
pub use change::{ChangeOptions, undo};
#[cfg(feature = "fsck")]
pub use check::{check_image, check_nilfs2, plan_repair, repair_image};
/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
/// The example in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guide/library.md")]
struct Guide;

pub use disk::size_of;
pub use disk::{DiskInformation, PartitionInformation};
pub use drystone_blockdev::{BlockDevice, DeviceError, MemoryDevice, Region};
pub use drystone_ext4::{
    AccessTimes, JournalStatistics, MemoryUse, Policy, QuotaLimits, QuotaReport, UnknownPolicy,
};
pub use drystone_ext4_format::acl;
pub use drystone_ext4_format::features::{FeatureChange, Features};
pub use drystone_ext4_format::hash::HashVersion;
pub use drystone_ext4_format::quota::{QuotaEntry, QuotaInfo, QuotaKind, SPACE_LIMIT_UNIT};
pub use drystone_ext4_format::superblock::ErrorPolicy;
#[cfg(feature = "fsck")]
pub use drystone_fsck as fsck;
#[cfg(feature = "fuse")]
pub use drystone_fuse as fuse;
#[cfg(feature = "fsck")]
pub use drystone_inspect as inspection;
#[cfg(feature = "mkfs")]
pub use drystone_mkfs as mkfs;
pub use drystone_nilfs2::CheckpointSummary;
#[cfg(feature = "mkfs")]
pub use drystone_nilfs2::mkfs::MakeOptions as Nilfs2MakeOptions;
#[cfg(feature = "fsck")]
pub use drystone_nilfs2_check as nilfs2_check;
#[cfg(feature = "reshape")]
pub use drystone_reshape as reshape;
#[cfg(feature = "tar")]
pub use drystone_sources as sources;
pub use drystone_vfs as vfs;
pub use drystone_vfs::{Exclude, glob};
pub use drystone_volumes::{
    FileSystemKind, Partition, PartitionTable, PartitionType, SnapshotWatch, TableKind,
    VolumeError, VolumeName, create_qcow2, is_named_qcow2, kind_of, open_as_named, open_unless_raw,
    parse_size,
};
pub use error::{Error, ErrorCause, Result};
pub use fs::{File, Fs, OpenOptions};
#[cfg(feature = "reshape")]
pub use grow_nilfs2::grow_nilfs2;
#[cfg(feature = "mkfs")]
pub use image::CreateOptions;
#[cfg(feature = "reshape")]
pub use image::ImageShape;
pub use image::{Image, ImageOptions};
pub use information::{Ext4Information, Information, Nilfs2Information};
#[cfg(feature = "fsck")]
pub use inspect::{
    deleted_files, fragmentation, inspect_image, save_metadata, set_fields, which_inode, which_name,
};
#[cfg(feature = "tar")]
pub use layer::Layer;
#[cfg(feature = "mkfs")]
pub use make::{make_image, make_nilfs2};
pub use replace::replace;
#[cfg(feature = "reshape")]
pub use reshaping::{clear_free_space, defragment_image, resize_image, tune_image};
pub use snapshot::{freeze_for_snapshots, snapshot};
#[cfg(feature = "fsck")]
pub use undelete::{UndeleteOptions, Undeleted, undelete};
pub use way::EntryPath;
