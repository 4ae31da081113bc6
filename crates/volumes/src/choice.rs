//! Which partition of a disk is meant.

use crate::member::member_of;
use crate::{
    FileSystemKind, FoundPartition, Partition, PartitionChoice, PartitionList, PartitionProblem,
    PartitionTable, PartitionType, TableKind, VolumeContent, VolumeError,
};
use drystone_blockdev::{BlockDevice, OpenMode, Region};
use drystone_sync::Arc;
use std::ops::Range;

/// A disk, or a part of one that has a partition table of its own.
type Disk = Region<Arc<dyn BlockDevice>>;

/// Finds out what the partitions hold. If one partition can't be read, or is cut off, the others can still be opened
/// by number, UUID or name.
pub(crate) fn found_partitions(disk: &Disk, table: &PartitionTable) -> Vec<FoundPartition> {
    let look = |partition: &Partition| {
        let content = match Region::new(disk, partition.offset, partition.length) {
            Ok(region) => VolumeContent::of(&region)
                .map_err(|error| PartitionProblem::Unreadable(error.to_string())),
            Err(_) => Err(PartitionProblem::CutOff { disk_bytes: disk.size_bytes() }),
        };
        let (content, problem) = match content {
            Ok(content) => (content, None),
            Err(problem) => (None, Some(problem)),
        };
        FoundPartition { partition: partition.clone(), content, problem }
    };
    table.partitions.iter().map(look).collect()
}

/// The partition table of a disk. Beside a file system of the whole disk it counts only if a partition lies
/// inside the disk, and the name doesn't say that the file system begins there: an image that is a table and a
/// file system at once, as those of CDs are, has a partition that begins with the disk.
pub(crate) fn table_of(
    disk: &Disk,
    own: Option<FileSystemKind>,
    is_range: bool,
) -> Result<Option<PartitionTable>, VolumeError> {
    if own.is_some() && is_range {
        return Ok(None);
    }
    let is_inside =
        |partition: &Partition| partition.offset > 0 && partition.range().end <= disk.size_bytes();
    let counts = |table: &PartitionTable| own.is_none() || table.partitions.iter().any(is_inside);
    Ok(PartitionTable::read(disk)?.filter(counts))
}

/// Where the file system of a disk is, unless it has one as a whole, or no partitions. A disk that has both
/// was partitioned by a program that left the superblock of an old file system: writing that would destroy
/// the partitions.
pub(crate) fn only_file_system(
    disk: &Disk,
    mode: OpenMode,
    is_range: bool,
) -> Result<Option<Range<u64>>, VolumeError> {
    let member = match (member_of(disk), mode) {
        (Err(error), OpenMode::ReadOnly) => {
            tracing::warn!("whether this is a part of something larger can't be read: {error}");
            None
        }
        (member, _) => member?,
    };
    if let Some(name) = member.filter(|_| !is_range) {
        match mode {
            OpenMode::ReadWrite => return Err(VolumeError::Member { name }),
            OpenMode::ReadOnly => tracing::warn!("this is a part of something larger: {name}"),
        }
    }
    let own = FileSystemKind::of(disk)?;
    let Some(table) = table_of(disk, own, is_range)? else { return Ok(None) };
    let all = found_partitions(disk, &table);
    if let Some(kind) = own {
        return Err(VolumeError::FileSystemAndPartitions { kind, partitions: PartitionList(all) });
    }
    let is_known = |found: &&FoundPartition| {
        let content = found.content.as_ref();
        content.is_some_and(|content| content.kind.is_some()) && found.partition.kind.is_for_files()
    };
    let known: Vec<FoundPartition> = all.iter().filter(is_known).cloned().collect();
    match known.as_slice() {
        [] | [_] if all.iter().any(|found| found.problem.is_some()) => {
            Err(VolumeError::UnreadablePartitions { partitions: PartitionList(all) })
        }
        [] => Err(VolumeError::NoFileSystem { partitions: PartitionList(all) }),
        [one] => Ok(Some(one.partition.range())),
        _ => Err(VolumeError::SeveralFileSystems { partitions: PartitionList(known) }),
    }
}

/// The partition that is meant. Of the ways to call one, the first that fits any is taken.
pub(crate) fn choose(
    choice: &PartitionChoice,
    disk: &Disk,
    table: &PartitionTable,
) -> Result<Partition, VolumeError> {
    let is_called = |partition: &&Partition| match choice {
        PartitionChoice::Number(number) => partition.number == *number,
        PartitionChoice::Uuid(uuid) => partition.uuid == Some(*uuid),
        PartitionChoice::Name(name) => {
            !name.is_empty() && partition.name == *name || is_mbr_identity(table, partition, name)
        }
    };
    let called: Vec<&Partition> = table.partitions.iter().filter(is_called).collect();
    // What the table itself says comes first. If that is enough, no partition is read.
    if let [one] = called.as_slice() {
        return Ok((*one).clone());
    }
    let all = found_partitions(disk, table);
    type Fits<'f> = Box<dyn Fn(&FoundPartition) -> bool + 'f>;
    let label = |found: &FoundPartition| {
        found.content.as_ref().map_or(String::new(), |content| content.label.clone())
    };
    let ways: Vec<Fits<'_>> = match choice {
        PartitionChoice::Number(_) => vec![Box::new(|found| is_called(&&found.partition))],
        PartitionChoice::Uuid(uuid) => vec![
            Box::new(|found| is_called(&&found.partition)),
            Box::new(move |found| {
                found.content.as_ref().is_some_and(|content| content.uuid == Some(*uuid))
            }),
            Box::new(move |found| found.partition.kind == PartitionType::Gpt(*uuid)),
        ],
        PartitionChoice::Name(name) => vec![
            Box::new(|found| is_called(&&found.partition)),
            Box::new(move |found| !name.is_empty() && label(found) == *name),
            Box::new(move |found| is_type(&found.partition.kind, name)),
        ],
    };
    for fits in ways {
        let chosen: Vec<&FoundPartition> = all.iter().filter(|found| fits(found)).collect();
        match chosen.as_slice() {
            [] => {}
            [one] => return Ok(one.partition.clone()),
            several => {
                let partitions = several.iter().map(|found| (*found).clone()).collect();
                let partitions = PartitionList(partitions);
                return Err(VolumeError::Ambiguous { choice: choice.clone(), partitions });
            }
        }
    }
    Err(VolumeError::NoPartition { choice: choice.clone(), partitions: PartitionList(all) })
}

/// Whether a partition of an MBR is called so by blkid(8): the identity of the disk, and the number in two
/// hexadecimal digits.
fn is_mbr_identity(table: &PartitionTable, partition: &Partition, name: &str) -> bool {
    table.kind == TableKind::Mbr
        && name.eq_ignore_ascii_case(&format!("{}-{:02x}", table.identity, partition.number))
}

/// Whether a type is called so. `root` and `usr` stand for those of all machines.
fn is_type(kind: &PartitionType, name: &str) -> bool {
    let Some(own) = kind.name() else { return false };
    let is_family = ["root", "usr"].contains(&name);
    let is_of_family = own.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    own == name || is_family && is_of_family && !own.ends_with("-verity")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drystone_blockdev::{DeviceOperation, Effect, Fault, Faulty, MemoryDevice};
    use uuid::Uuid;

    const PART_BYTES: u64 = 4 << 20;

    /// A disk with two partitions, called `one` and `two`.
    fn disk() -> MemoryDevice {
        let disk = MemoryDevice::new(4 * PART_BYTES);
        let partition = |number: u32, name: &str| Partition {
            number,
            offset: u64::from(number) * PART_BYTES,
            length: PART_BYTES,
            kind: PartitionType::in_gpt("home").unwrap(),
            uuid: Some(Uuid::from_u128(number.into())),
            name: name.to_owned(),
        };
        let table = PartitionTable {
            kind: TableKind::Gpt,
            identity: Uuid::from_u128(7).to_string(),
            sector_bytes: 512,
            partitions: vec![partition(1, "one"), partition(2, "two")],
        };
        table.write_gpt(&disk).unwrap();
        disk
    }

    fn format(disk: &MemoryDevice, number: u64, label: &str) {
        let region = Region::new(disk, number * PART_BYTES, PART_BYTES).unwrap();
        let mut options =
            drystone_mkfs::MkfsOptions::new(PART_BYTES, [9; 16], [2; 4], 1_000_000_000);
        options.label = label.as_bytes().to_vec();
        drystone_mkfs::make(&region, &options, true).unwrap();
    }

    /// Someone wants to save the other.
    #[test]
    fn a_partition_that_can_not_be_read_keeps_nobody_from_the_others() {
        let memory = disk();
        format(&memory, 1, "precious");
        let faulty = Faulty::new(memory);
        let bad = 2 * PART_BYTES..3 * PART_BYTES;
        faulty.inject(Fault::of(DeviceOperation::Read, Effect::InputOutputError).in_range(bad));
        let device: Arc<dyn BlockDevice> = Arc::new(faulty);
        let size = device.size_bytes();
        let disk = Region::new(device, 0, size).unwrap();
        let table = PartitionTable::read(&disk).unwrap().unwrap();
        for (choice, number) in [
            (PartitionChoice::Number(1), 1),
            (PartitionChoice::Number(2), 2),
            (PartitionChoice::Name("two".to_owned()), 2),
            (PartitionChoice::Name("precious".to_owned()), 1),
            (PartitionChoice::Uuid(Uuid::from_bytes([9; 16])), 1),
        ] {
            assert_eq!(choose(&choice, &disk, &table).unwrap().number, number, "{choice}");
        }
        let missing = choose(&PartitionChoice::Name("data".to_owned()), &disk, &table);
        let message = missing.unwrap_err().to_string();
        assert!(message.contains("#2 (unreadable, 'two')"), "{message}");
        // The other may hold one too.
        let guessed = only_file_system(&disk, OpenMode::ReadOnly, false).unwrap_err();
        assert!(matches!(guessed, VolumeError::UnreadablePartitions { .. }), "{guessed}");
    }
}
