//! Counts how often each cluster of a qcow2 is used: by the disk and by each snapshot.
//!
//! # Reference
//!
//! `docs/interop/qcow2.rst` of QEMU: "Cluster mapping", "Snapshots".

use super::ContainerError;
use super::header::{L1_BYTES_MAX, OFFSET_MASK, OFFSET_MAX, Qcow2Header, damaged, read_table};
use drystone_blockdev::BlockDevice;
use std::collections::BTreeMap;
use std::ops::Range;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Clusters whose users are counted at once, so that a file of any size takes little memory.
pub(super) const CLUSTERS_AT_ONCE: usize = 1 << 24;
/// The bit that marks a compressed cluster, and the one which says that only this entry uses the cluster.
const COMPRESSED: u64 = 1 << 62;
const OWNED: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawContainerSnapshot {
    l1_offset: U64,
    l1_entries: U32,
    id_bytes: U16,
    name_bytes: U16,
    date: [u8; 8],
    clock: U64,
    state_bytes: U32,
    extra_bytes: U32,
}

const _: () = assert!(size_of::<RawContainerSnapshot>() == 40);

/// All tables of a qcow2 that say where something is.
pub(super) struct MappingTables<'f> {
    file: &'f dyn BlockDevice,
    header: &'f Qcow2Header,
    /// The first-level tables of the snapshots, and the table that lists these.
    of_snapshots: Vec<Range<u64>>,
    /// Those of the second level, by their offsets.
    second_level: BTreeMap<u64, TableUsers>,
}

/// What uses a table of the second level.
#[derive(Default)]
struct TableUsers {
    first_level_tables: u32,
    /// Whether the disk itself uses it, and says that no snapshot does.
    is_of_disk: bool,
    is_owned: bool,
}

impl<'f> MappingTables<'f> {
    pub fn read(
        file: &'f dyn BlockDevice,
        header: &'f Qcow2Header,
    ) -> Result<MappingTables<'f>, ContainerError> {
        let of_snapshots = snapshot_tables(file, header)?;
        let mut tables =
            MappingTables { file, header, of_snapshots, second_level: BTreeMap::new() };
        let of_disk = header.l1_offset..header.l1_offset + header.l1_entries * 8;
        let mut first_level = tables.of_snapshots.clone();
        first_level.push(of_disk.clone());
        // Each table has its own clusters. More of them would take long to read.
        first_level.sort_by_key(|table| table.start);
        if let Some(twice) = first_level.windows(2).find(|pair| pair[0].end > pair[1].start) {
            let offset = twice[1].start;
            return Err(damaged(format!("the first-level table at byte {offset} is used twice")));
        }
        tables.read_first_level(&of_disk, true)?;
        for table in tables.of_snapshots.clone().iter().skip(1) {
            tables.read_first_level(table, false)?;
        }
        let offsets = || tables.second_level.keys();
        expect_apart(offsets().zip(offsets().skip(1)), header)?;
        if tables.second_level.len() as u64 > file.size_bytes().div_ceil(header.cluster_bytes) {
            return Err(damaged("mapping tables beyond its end".to_owned()));
        }
        Ok(tables)
    }

    fn read_first_level(
        &mut self,
        table: &Range<u64>,
        is_of_disk: bool,
    ) -> Result<(), ContainerError> {
        let mut entries = read_table(self.file, table.start, (table.end - table.start) / 8)?;
        entries.retain(|entry| entry & OFFSET_MASK != 0);
        entries.sort_unstable_by_key(|entry| entry & OFFSET_MASK);
        let offsets: Vec<u64> = entries.iter().map(|entry| entry & OFFSET_MASK).collect();
        expect_apart(offsets.iter().zip(offsets.iter().skip(1)), self.header)?;
        for entry in entries {
            let users = self.second_level.entry(entry & OFFSET_MASK).or_default();
            users.first_level_tables += 1;
            users.is_of_disk |= is_of_disk;
            users.is_owned |= is_of_disk && entry & OWNED != 0;
        }
        Ok(())
    }

    /// Counts the users of the clusters from `first` on, of as many as are counted at once.
    pub fn count(&self, first: u64, at_once: usize) -> Result<ClusterUsers, ContainerError> {
        let header = self.header;
        let cluster_bytes = header.cluster_bytes;
        let mut users = ClusterUsers::new(first, at_once);
        let table_at = |offset: u64, bytes: u64| UsedBytes { offset, bytes, is_table: true };
        self.add(&mut users, &table_at(0, 1), 1, false)?;
        let counts = table_at(header.refcount_table_offset, header.refcount_table_entries * 8);
        self.add(&mut users, &counts, 1, false)?;
        self.add(&mut users, &table_at(header.l1_offset, header.l1_entries * 8), 1, false)?;
        for table in &self.of_snapshots {
            self.add(&mut users, &table_at(table.start, table.end - table.start), 1, false)?;
        }
        for block in header.refcount_blocks(self.file)? {
            self.add(&mut users, &table_at(block, cluster_bytes), 1, false)?;
        }
        for (offset, table) in &self.second_level {
            let times = table.first_level_tables;
            self.add(&mut users, &table_at(*offset, cluster_bytes), times, table.is_owned)?;
            for entry in read_table(self.file, *offset, cluster_bytes / 8)? {
                let (place, is_owned) = match entry & COMPRESSED != 0 {
                    true => (compressed_place(entry, cluster_bytes), false),
                    false => {
                        let offset = entry & OFFSET_MASK;
                        let bytes = u64::from(offset != 0);
                        let is_owned = table.is_of_disk && entry & OWNED != 0;
                        (UsedBytes { offset, bytes, is_table: false }, is_owned)
                    }
                };
                self.add(&mut users, &place, times, is_owned)?;
            }
        }
        Ok(users)
    }

    fn add(
        &self,
        users: &mut ClusterUsers,
        place: &UsedBytes,
        times: u32,
        is_owned: bool,
    ) -> Result<(), ContainerError> {
        if place.bytes == 0 {
            return Ok(());
        }
        let end = place.offset.saturating_add(place.bytes);
        if end > OFFSET_MAX {
            return Err(damaged(format!("offset {}", place.offset)));
        }
        let cluster_bytes = self.header.cluster_bytes;
        let clusters = place.offset / cluster_bytes..end.div_ceil(cluster_bytes);
        // The last cluster of a file may be there in part.
        let last = (clusters.end - 1) * cluster_bytes;
        let may_be_missing = match place.is_table {
            true => !self.header.says_closed(),
            false => self.header.is_dirty(),
        };
        if last >= self.file.size_bytes() && !may_be_missing {
            return Err(ContainerError::CutOff { used: last, size: self.file.size_bytes() });
        }
        users.add(clusters, times, is_owned);
        Ok(())
    }
}

/// Bytes of the file that something is in.
struct UsedBytes {
    offset: u64,
    bytes: u64,
    /// After a power cut it may be missing: the entry that leads to it can be durable before it is.
    is_table: bool,
}

/// How often clusters are used.
pub(super) struct ClusterUsers {
    first: u64,
    at_once: usize,
    /// From `first` to the last one that is used. The highest bit is set if an entry says that it is the only one.
    counts: Vec<u32>,
    /// The first cluster in use behind those that are counted at once.
    first_beyond: Option<u64>,
    /// Behind the last cluster in use, wherever that is.
    end: u64,
}

const IS_OWNED: u32 = 1 << 31;

impl ClusterUsers {
    fn new(first: u64, at_once: usize) -> ClusterUsers {
        ClusterUsers { first, at_once, counts: Vec::new(), first_beyond: None, end: 0 }
    }

    fn add(&mut self, clusters: Range<u64>, times: u32, is_owned: bool) {
        self.end = self.end.max(clusters.end);
        for cluster in clusters {
            let Some(index) = cluster.checked_sub(self.first) else { continue };
            if index >= self.at_once as u64 {
                self.first_beyond = Some(self.first_beyond.map_or(cluster, |old| old.min(cluster)));
                break;
            }
            let index = index as usize;
            if index >= self.counts.len() {
                self.counts.resize(index + 1, 0);
            }
            let count = &mut self.counts[index];
            let owned = *count & IS_OWNED | if is_owned { IS_OWNED } else { 0 };
            *count = (*count & !IS_OWNED).saturating_add(times).min(!IS_OWNED) | owned;
        }
    }

    /// The clusters that are used, and how often.
    ///
    /// # Errors
    ///
    /// [`ContainerError::Damaged`] for one that has several users, of which one would write it in place.
    pub fn each(&self) -> impl Iterator<Item = Result<(u64, u32), ContainerError>> {
        let used = (self.first..).zip(&self.counts).filter(|(_, count)| **count != 0);
        used.map(|(cluster, count)| match count & !IS_OWNED {
            2.. if count & IS_OWNED != 0 => Err(damaged(format!(
                "cluster {cluster} is used several times, once as if it weren't"
            ))),
            users => Ok((cluster, users)),
        })
    }

    pub fn first_beyond(&self) -> Option<u64> {
        self.first_beyond
    }

    /// Behind the last cluster of the file that is used.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// The table of the snapshots, and then their first-level tables.
fn snapshot_tables(
    file: &dyn BlockDevice,
    header: &Qcow2Header,
) -> Result<Vec<Range<u64>>, ContainerError> {
    if header.snapshots == 0 {
        return Ok(Vec::new());
    }
    let mut at = header.snapshots_offset;
    let mut tables = Vec::new();
    for _ in 0..header.snapshots {
        let mut raw = RawContainerSnapshot::new_zeroed();
        file.read_at(at, raw.as_mut_bytes())?;
        let start = raw.l1_offset.get();
        let bytes = u64::from(raw.l1_entries.get()) * 8;
        let end = start.saturating_add(bytes);
        if bytes > L1_BYTES_MAX || end > file.size_bytes() {
            return Err(damaged("the first-level table of a snapshot".to_owned()));
        }
        if bytes > 0 {
            tables.push(start..end);
        }
        let names = u64::from(raw.id_bytes.get()) + u64::from(raw.name_bytes.get());
        let own_bytes = size_of::<RawContainerSnapshot>() as u64;
        at = (at + own_bytes + u64::from(raw.extra_bytes.get()) + names).next_multiple_of(8);
    }
    tables.insert(0, header.snapshots_offset..at);
    Ok(tables)
}

/// Checks that tables of the second level, in the order of their offsets, don't overlap.
fn expect_apart<'o>(
    mut pairs: impl Iterator<Item = (&'o u64, &'o u64)>,
    header: &Qcow2Header,
) -> Result<(), ContainerError> {
    match pairs.find(|(first, second)| *second - *first < header.cluster_bytes) {
        Some((_, twice)) => {
            Err(damaged(format!("the mapping table at byte {twice} is used twice")))
        }
        None => Ok(()),
    }
}

/// Where the data of a compressed cluster is: an offset, and a number of further sectors above it.
fn compressed_place(entry: u64, cluster_bytes: u64) -> UsedBytes {
    let offset_bits = 62 - (cluster_bytes.trailing_zeros() - 8);
    let offset = entry & ((1 << offset_bits) - 1);
    let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
    UsedBytes { offset, bytes: (sectors + 1) * 512 - offset % 512, is_table: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_counted_some_at_a_time() {
        let mut all = Vec::new();
        let mut next = Some(0);
        let mut rounds = 0;
        while let Some(first) = next {
            let mut users = ClusterUsers::new(first, 4);
            for (clusters, times) in [(2..6, 1), (900..901, 7), (0..1, 1), (5..6, 2)] {
                users.add(clusters, times, false);
            }
            all.extend(users.each().map(Result::ok));
            assert_eq!(users.end(), 901);
            next = users.first_beyond();
            rounds += 1;
        }
        let expected = [(0, 1), (2, 1), (3, 1), (4, 1), (5, 3), (900, 7)];
        assert_eq!(all, expected.map(Some));
        assert_eq!(rounds, 3);
    }
}
