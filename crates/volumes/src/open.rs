//! Opens volumes by their names.
//!
//! # Locking
//!
//! The partition table is read under a lock that keeps away only programs that write the whole file. Then
//! the bytes that the name stands for are opened, and locked against other programs
//! ([`FileDevice::open_part`]). A program that changes a partition table writes the whole disk, which isn't
//! possible while a part of it is open. In between nothing is locked: if a new table is written just then, the
//! bytes of the old partition are opened.

use crate::choice::{choose, found_partitions, only_file_system, table_of};
use crate::container::BackingFiles;
use crate::{
    ContainerError, ContainerFormat, FileSystemKind, FoundPartition, NamedFormat, PartitionTable,
    VolumeError, VolumeName, VolumePart, remote,
};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceResult, FileDevice, OpenMode, Region, UndoTarget,
};
use drystone_sync::Arc;
use std::ops::Range;
use std::path::Path;

/// What is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskContent {
    /// Bytes of the disk.
    pub size_bytes: u64,
    /// Its partition table.
    pub table: PartitionTable,
    /// The partitions, by number.
    pub partitions: Vec<FoundPartition>,
}

/// Opens a volume that holds something. Of a disk, the partition with the one file system that is known here
/// is opened.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn open(name: &VolumeName, mode: OpenMode) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open_chosen(name, mode, true)
}

/// Opens a volume as it is named: a disk is the whole disk.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn open_as_named(
    name: &VolumeName,
    mode: OpenMode,
) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open_chosen(name, mode, false)
}

/// What the volume of this name holds; `None` if its superblock is of no kind that is known here.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn kind_of(name: &Path) -> Result<Option<FileSystemKind>, VolumeError> {
    let device = open(&VolumeName::find_whole(name)?, OpenMode::ReadOnly)?;
    Ok(FileSystemKind::of(&*device)?)
}

/// What is on a disk; `None` if the name is that of something else: it has a file system of its own, or no
/// partition table.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn disk_content(name: &VolumeName) -> Result<Option<DiskContent>, VolumeError> {
    let whole = look(name)?.device()?;
    let range = locate(&whole, name.parts())?;
    let disk = part(&whole, &range)?;
    let own = FileSystemKind::of(&disk)?;
    let Some(table) = table_of(&disk, own, is_range(name))? else { return Ok(None) };
    let partitions = found_partitions(&disk, &table);
    Ok(Some(DiskContent { size_bytes: disk.size_bytes(), table, partitions }))
}

/// A volume that is open to be changed as a whole, with an undo log.
#[derive(Debug)]
pub enum ChangeableVolume {
    /// A file or device.
    Whole(FileDevice),
    /// A part of one, or a disk image, whose size doesn't change.
    Fixed(Arc<dyn BlockDevice>),
}

impl ChangeableVolume {
    /// Opens a volume that holds something, as [`open`] does.
    ///
    /// # Errors
    ///
    /// As [`VolumeError`] says.
    pub fn open(name: &VolumeName) -> Result<ChangeableVolume, VolumeError> {
        open_found(name, OpenMode::ReadWrite, true)
    }

    fn into_device(self) -> Arc<dyn BlockDevice> {
        match self {
            Self::Whole(file) => Arc::new(file),
            Self::Fixed(device) => device,
        }
    }
}

impl UndoTarget for ChangeableVolume {
    fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Whole(file) => file,
            Self::Fixed(device) => device,
        }
    }

    fn restore_size(&self, size_bytes: u64) -> DeviceResult {
        match self {
            Self::Whole(file) => file.restore_size(size_bytes),
            Self::Fixed(_) => Ok(()),
        }
    }
}

/// What holds a volume, before the volume is opened.
pub(crate) enum Source<'n> {
    /// A file or block device, open to be looked at.
    Raw(FileDevice),
    /// A disk image.
    Container(&'n Path, ContainerFormat, BackingFiles),
    /// A volume behind a server.
    Remote(&'n str),
}

/// Finds out what holds a volume.
pub(crate) fn look(name: &VolumeName) -> Result<Source<'_>, VolumeError> {
    if let Some(address) = name.address() {
        return Ok(Source::Remote(address));
    }
    let file = FileDevice::open_to_look(name.source())?;
    let found = match name.format() {
        Some(NamedFormat::Raw) => None,
        _ => ContainerFormat::of(&file)?,
    };
    match (name.format(), found) {
        (Some(NamedFormat::Qcow2), Some(ContainerFormat::Qcow2)) => {
            Ok(Source::Container(name.source(), ContainerFormat::Qcow2, BackingFiles::Any))
        }
        (Some(NamedFormat::Qcow2), _) => Err(ContainerError::NoQcow2.into()),
        (_, Some(format)) => Ok(Source::Container(name.source(), format, BackingFiles::Expected)),
        (_, None) => Ok(Source::Raw(file)),
    }
}

impl Source<'_> {
    /// All of it, to be read.
    pub fn device(self) -> Result<Arc<dyn BlockDevice>, VolumeError> {
        Ok(match self {
            Source::Raw(file) => Arc::new(file),
            Source::Container(path, format, backing) => {
                crate::container::open(path, format, OpenMode::ReadOnly, backing)?
            }
            Source::Remote(address) => remote::open_to_look(address)?,
        })
    }
}

/// Opens a disk image or an export of a server as it is named; `None` for a raw file or a device.
///
/// # Errors
///
/// As [`VolumeError`] says.
pub fn open_unless_raw(
    name: &VolumeName,
    mode: OpenMode,
) -> Result<Option<Arc<dyn BlockDevice>>, VolumeError> {
    match look(name)? {
        Source::Raw(_) => Ok(None),
        Source::Container(..) | Source::Remote(_) => open_as_named(name, mode).map(Some),
    }
}

fn open_chosen(
    name: &VolumeName,
    mode: OpenMode,
    is_file_system: bool,
) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open_found(name, mode, is_file_system).map(ChangeableVolume::into_device)
}

fn open_found(
    name: &VolumeName,
    mode: OpenMode,
    is_file_system: bool,
) -> Result<ChangeableVolume, VolumeError> {
    let path = name.source();
    match look(name)? {
        Source::Raw(file) => {
            let whole: Arc<dyn BlockDevice> = Arc::new(file);
            let range = find_range(&whole, name, mode, is_file_system)?;
            // Its lock would keep a writer of the whole out.
            drop(whole);
            Ok(match range {
                None => ChangeableVolume::Whole(FileDevice::open(path, mode)?),
                Some(range) => {
                    ChangeableVolume::Fixed(Arc::new(FileDevice::open_part(path, mode, range)?))
                }
            })
        }
        Source::Container(_, format, backing) => {
            let whole = crate::container::open(path, format, mode, backing)?;
            let range = find_range(&whole, name, mode, is_file_system)?;
            fixed(whole, range)
        }
        Source::Remote(address) => {
            let find = |whole: &_| find_range(whole, name, mode, is_file_system);
            let (whole, range) = remote::open(address, mode, find)?;
            fixed(whole, range)
        }
    }
}

/// A part of a device whose size doesn't change.
fn fixed(
    whole: Arc<dyn BlockDevice>,
    range: Option<Range<u64>>,
) -> Result<ChangeableVolume, VolumeError> {
    Ok(ChangeableVolume::Fixed(match range {
        None => whole,
        Some(range) => Arc::new(part(&whole, &range)?),
    }))
}

/// Which part of its source a volume is; `None` for all of it.
pub(crate) fn find_range(
    whole: &Arc<dyn BlockDevice>,
    name: &VolumeName,
    mode: OpenMode,
    is_file_system: bool,
) -> Result<Option<Range<u64>>, VolumeError> {
    let mut range = locate(whole, name.parts())?;
    if is_file_system
        && let Some(found) = only_file_system(&part(whole, &range)?, mode, is_range(name))?
    {
        range = within(&range, &found)?;
    }
    let is_whole = range == (0..whole.size_bytes());
    Ok((!is_whole).then_some(range))
}

/// Where the parts that a name goes through lead.
fn locate(whole: &Arc<dyn BlockDevice>, parts: &[VolumePart]) -> Result<Range<u64>, VolumeError> {
    let mut range = 0..whole.size_bytes();
    for named in parts {
        let inner = match named {
            VolumePart::Range { offset, length } => {
                let size = range.end - range.start;
                let rest = size.saturating_sub(*offset);
                *offset..offset.saturating_add(length.unwrap_or(rest))
            }
            VolumePart::Partition(choice) => {
                let disk = part(whole, &range)?;
                let Some(table) = PartitionTable::read(&disk)? else {
                    return Err(VolumeError::NotPartitioned(choice.clone()));
                };
                let chosen = choose(choice, &disk, &table)?;
                // Linux doesn't let anybody write over the logical partitions either.
                if chosen.kind.is_extended() {
                    return Err(VolumeError::ExtendedPartition(choice.clone()));
                }
                chosen.range()
            }
        };
        range = within(&range, &inner)?;
    }
    Ok(range)
}

/// A part of a part, in bytes of the whole.
fn within(outer: &Range<u64>, inner: &Range<u64>) -> Result<Range<u64>, VolumeError> {
    let size = outer.end - outer.start;
    // A part without any bytes holds nothing, and couldn't be locked.
    if inner.end > size || inner.start >= inner.end {
        let (offset, length) = (inner.start, inner.end.saturating_sub(inner.start));
        return Err(VolumeError::BeyondEnd { offset, length, size });
    }
    Ok(outer.start + inner.start..outer.start + inner.end)
}

fn part(
    whole: &Arc<dyn BlockDevice>,
    range: &Range<u64>,
) -> Result<Region<Arc<dyn BlockDevice>>, DeviceError> {
    Region::new(Arc::clone(whole), range.start, range.end - range.start)
}

/// Whether a name says where the volume begins, so that it begins there and nowhere else if it can.
fn is_range(name: &VolumeName) -> bool {
    matches!(name.parts().last(), Some(VolumePart::Range { .. }))
}
