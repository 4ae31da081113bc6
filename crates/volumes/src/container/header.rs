//! The header of a qcow2, checked before anything is allocated for what it says.
//!
//! # Reference
//!
//! `docs/interop/qcow2.rst` of QEMU.

use super::ContainerError;
use drystone_blockdev::{BlockDevice, DeviceResult};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes that a table of first-level entries may have, and one of reference counts: QEMU's limits.
pub(super) const L1_BYTES_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
const SNAPSHOTS_MAX: u32 = 65_536;
/// Powers of two that clusters may have as their size.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Host offsets have 56 bits.
pub(super) const OFFSET_MAX: u64 = 1 << 56;
/// Bits of an entry of a table that hold an offset.
pub(super) const OFFSET_MASK: u64 = (OFFSET_MAX - 1) & !511;
/// Where the incompatible features are.
pub(super) const INCOMPATIBLE_OFFSET: u64 = 72;
pub(super) const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawContainerHeader {
    magic: U32,
    version: U32,
    backing_offset: U64,
    backing_bytes: U32,
    cluster_bits: U32,
    size: U64,
    encryption: U32,
    l1_entries: U32,
    l1_offset: U64,
    refcount_table_offset: U64,
    refcount_table_clusters: U32,
    snapshots: U32,
    snapshots_offset: U64,
    incompatible: U64,
    compatible: U64,
    autoclear: U64,
    refcount_order: U32,
    header_bytes: U32,
}

const _: () = assert!(size_of::<RawContainerHeader>() == 104);
const _: () =
    assert!(std::mem::offset_of!(RawContainerHeader, incompatible) == INCOMPATIBLE_OFFSET as usize);

/// Version 2 ends with the offset of the snapshots.
const VERSION_2_BYTES: usize = 72;

/// A header that has been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qcow2Header {
    pub cluster_bytes: u64,
    pub l1_offset: u64,
    pub l1_entries: u64,
    pub refcount_table_offset: u64,
    pub refcount_table_entries: u64,
    /// A count has `1 << refcount_order` bits.
    pub refcount_order: u32,
    pub snapshots: u32,
    pub snapshots_offset: u64,
    version: u32,
    incompatible: u64,
}

impl Qcow2Header {
    /// Reads and checks the header of a file that begins with the magic number.
    pub fn check(file: &dyn BlockDevice) -> Result<Qcow2Header, ContainerError> {
        let mut raw = RawContainerHeader::new_zeroed();
        file.read_at(0, &mut raw.as_mut_bytes()[..VERSION_2_BYTES])?;
        match raw.version.get() {
            2 => raw.refcount_order = U32::new(4),
            3 => file.read_at(0, raw.as_mut_bytes())?,
            version => return Err(damaged(format!("version {version}"))),
        }
        raw.check_features()?;
        let bits = raw.cluster_bits.get();
        if !CLUSTER_BITS.contains(&bits) {
            return Err(damaged(format!("clusters of 2^{bits} bytes")));
        }
        let cluster_bytes = 1_u64 << bits;
        let l1_entries = u64::from(raw.l1_entries.get());
        let file_bytes = file.size_bytes();
        let ends_in_file = |offset: u64, bytes: u64, max: u64| {
            bytes <= max && offset.checked_add(bytes).is_some_and(|end| end <= file_bytes)
        };
        if !ends_in_file(raw.l1_offset.get(), l1_entries * 8, L1_BYTES_MAX) {
            return Err(damaged(format!("a first-level table of {l1_entries} entries")));
        }
        // One table of the second level has a cluster of entries, and each stands for a cluster.
        let covered = u128::from(l1_entries) * u128::from(cluster_bytes / 8 * cluster_bytes);
        if u128::from(raw.size.get()) > covered || raw.size.get() > i64::MAX as u64 {
            return Err(damaged(format!("{} bytes with {l1_entries} tables", raw.size.get())));
        }
        let table_clusters = u64::from(raw.refcount_table_clusters.get());
        let table_bytes = table_clusters * cluster_bytes;
        if table_bytes == 0
            || !ends_in_file(raw.refcount_table_offset.get(), table_bytes, REFCOUNT_TABLE_BYTES_MAX)
        {
            return Err(damaged(format!(
                "a table of reference counts of {table_clusters} clusters"
            )));
        }
        if raw.refcount_order.get() > 6 {
            return Err(damaged(format!("reference counts of 2^{} bits", raw.refcount_order)));
        }
        let is_aligned =
            |offset: U64| offset.get().is_multiple_of(cluster_bytes) && offset.get() > 0;
        if !is_aligned(raw.refcount_table_offset) || l1_entries > 0 && !is_aligned(raw.l1_offset) {
            return Err(damaged("a table that isn't on a cluster boundary".to_owned()));
        }
        let snapshots = raw.snapshots.get();
        if snapshots > SNAPSHOTS_MAX || raw.snapshots_offset.get() > OFFSET_MAX {
            return Err(damaged(format!("{snapshots} snapshots")));
        }
        Ok(Qcow2Header {
            cluster_bytes,
            l1_offset: raw.l1_offset.get(),
            l1_entries,
            refcount_table_offset: raw.refcount_table_offset.get(),
            refcount_table_entries: table_bytes / 8,
            refcount_order: raw.refcount_order.get(),
            snapshots,
            snapshots_offset: raw.snapshots_offset.get(),
            version: raw.version.get(),
            incompatible: raw.incompatible.get(),
        })
    }

    pub fn is_dirty(&self) -> bool {
        self.incompatible & DIRTY != 0
    }

    /// Whether it says that it was closed, which version 2 can't.
    pub fn says_closed(&self) -> bool {
        self.version != 2 && !self.is_dirty()
    }

    /// Bytes of what is there or not, in an image of which nothing is missing: one that wasn't closed may lack
    /// what wasn't synced.
    pub fn unit_bytes(&self) -> Option<u64> {
        self.says_closed().then_some(self.cluster_bytes)
    }

    /// The entries of the table of reference counts.
    pub fn refcount_table(&self, file: &dyn BlockDevice) -> Result<Vec<u64>, ContainerError> {
        read_table(file, self.refcount_table_offset, self.refcount_table_entries)
    }

    /// The blocks of reference counts.
    pub fn refcount_blocks(&self, file: &dyn BlockDevice) -> Result<Vec<u64>, ContainerError> {
        let mut blocks = self.refcount_table(file)?;
        blocks.iter_mut().for_each(|entry| *entry &= OFFSET_MASK);
        blocks.retain(|offset| *offset != 0);
        Ok(blocks)
    }

    /// Has the image in `file` say whether its reference counts may be wrong, durably. Version 2 can't say it.
    pub fn mark(&self, file: &dyn BlockDevice, is_dirty: bool) -> DeviceResult {
        if self.version == 2 {
            return Ok(());
        }
        let features = self.incompatible & !DIRTY | if is_dirty { DIRTY } else { 0 };
        file.write_durable_at(INCOMPATIBLE_OFFSET, &features.to_be_bytes())
    }
}

impl RawContainerHeader {
    fn check_features(&self) -> Result<(), ContainerError> {
        let incompatible = self.incompatible.get();
        if incompatible & CORRUPT != 0 {
            return Err(damaged("it is marked as corrupt".to_owned()));
        }
        let unsupported = [
            (self.encryption.get() != 0, "encryption"),
            (incompatible & 1 << 2 != 0, "an external data file"),
            (incompatible & 1 << 3 != 0, "compression other than deflate"),
            (incompatible & 1 << 4 != 0, "extended entries (subclusters)"),
            (incompatible >> 5 != 0, "features that aren't known"),
        ];
        match unsupported.iter().find(|(has, _)| *has) {
            Some((_, what)) => Err(ContainerError::Feature(what)),
            None => Ok(()),
        }
    }
}

pub(super) fn damaged(what: String) -> ContainerError {
    ContainerError::Damaged(what)
}

/// Reads a table of numbers. After the end of the file are zeros: a table is written after it is allocated.
pub(super) fn read_table(
    file: &dyn BlockDevice,
    offset: u64,
    entries: u64,
) -> Result<Vec<u64>, ContainerError> {
    let mut bytes = vec![0; entries as usize * 8];
    let there = file.size_bytes().saturating_sub(offset).min(bytes.len() as u64);
    if there > 0 {
        file.read_at(offset, &mut bytes[..there as usize])?;
    }
    let numbers = bytes.chunks_exact(8);
    // A chunk has 8 bytes.
    Ok(numbers.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default())).collect())
}
