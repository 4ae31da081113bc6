//! Where images live: files and devices, disk images of virtual machines, servers, and partitions of them, by one name.
//!
//! A [`VolumeName`] says which bytes are meant: `disk.img`, `disk.img#2`, `disk.img#root`,
//! `disk.img@offset=1M`. [`open`] gives them as a [`BlockDevice`], whatever holds them, and locks no
//! more than them. If the name is that of a disk, the one partition with a file system that is known here is
//! taken; [`open_as_named`] takes the disk as it is, to make something new on it.
//!
//! A file in a format of virtual machines ([`ContainerFormat`]) is the disk that it holds.
//!
//! [`PartitionTable`] reads GPT and MBR tables and writes GPTs, and [`VolumeContent`] tells what a partition holds.
//!
//! [`BlockDevice`]: drystone_blockdev::BlockDevice
#![deny(unsafe_code)]

mod choice;
mod container;
mod content;
mod error;
mod kind;
mod member;
mod name;
mod nbd;
mod open;
mod remote;
mod size;
mod snapshot;
mod table;
mod undo;

pub use container::{ContainerError, ContainerFormat, create_qcow2, is_named_qcow2};
pub use content::{FoundPartition, PartitionProblem, VolumeContent};
pub use drystone_rbd::{Freezing, RbdAddress, RbdDevice, SnapshotWatch};
pub use error::{PartitionList, VolumeError};
pub use kind::{FileSystemKind, nilfs2_superblock};
pub use name::{NameError, NamedFormat, PartitionChoice, VolumeName, VolumePart};
pub use nbd::{NbdAddress, NbdDevice};
pub use open::{
    ChangeableVolume, DiskContent, disk_content, kind_of, open, open_as_named, open_unless_raw,
};
pub use size::parse_size;
pub use snapshot::{snapshot, watch_snapshots};
pub use table::{Partition, PartitionTable, PartitionType, TableError, TableKind};
pub use undo::{undo_file, undo_file_as_named};
