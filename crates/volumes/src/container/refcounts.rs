//! Finds clusters of a qcow2 that are used but counted as free, as a power cut may leave them, and counts
//! them.

use super::ContainerError;
use super::header::{OFFSET_MAX, Qcow2Header, damaged};
use drystone_blockdev::BlockDevice;

/// Bytes of reference counts that are read at once: entries may be in any order.
const PIECE_BYTES: u64 = 4096;
/// Bits of an entry that hold an offset, and the bit that marks compressed clusters.
const OFFSET_MASK: u64 = (OFFSET_MAX - 1) & !511;
const COMPRESSED: u64 = 1 << 62;

/// Counts clusters that the tables use and that are counted as free, and clears the mark of an image that
/// wasn't closed. No other thread or program may use the file meanwhile.
///
/// Snapshots aren't looked at: their clusters have been counted before.
pub(super) fn restore_counts(
    file: &dyn BlockDevice,
    header: &Qcow2Header,
) -> Result<(), ContainerError> {
    let mut counts = Counts::read(file, header)?;
    let cluster_bytes = header.cluster_bytes;
    counts.restore(0, 1)?;
    counts.restore(header.refcount_table_offset, header.refcount_table_entries * 8)?;
    counts.restore(header.l1_offset, header.l1_entries * 8)?;
    for block in counts.table.clone() {
        if block & OFFSET_MASK != 0 {
            counts.restore(block & OFFSET_MASK, cluster_bytes)?;
        }
    }
    let first_level = read_table(file, header.l1_offset, header.l1_entries)?;
    let mut tables: Vec<u64> =
        first_level.iter().map(|entry| entry & OFFSET_MASK).filter(|offset| *offset != 0).collect();
    // Each table has its own cluster. More of them would take long to read.
    tables.sort_unstable();
    if let Some(twice) = tables.windows(2).find(|pair| pair[1] - pair[0] < cluster_bytes) {
        return Err(damaged(format!("the mapping table at byte {} is used twice", twice[1])));
    }
    if tables.len() as u64 > file.size_bytes().div_ceil(cluster_bytes) {
        return Err(damaged("mapping tables beyond its end".to_owned()));
    }
    for table in tables {
        counts.restore(table, cluster_bytes)?;
        for entry in read_table(file, table, cluster_bytes / 8)? {
            if entry & COMPRESSED != 0 {
                let (offset, bytes) = compressed_extent(entry, cluster_bytes);
                counts.restore(offset, bytes)?;
            } else if entry & OFFSET_MASK != 0 {
                counts.restore(entry & OFFSET_MASK, 1)?;
            }
        }
    }
    counts.write_back()?;
    if header.is_dirty() {
        file.flush()?;
        header.mark(file, false)?;
    }
    Ok(())
}

/// Where the data of a compressed cluster is: an offset, and a number of further sectors above it.
fn compressed_extent(entry: u64, cluster_bytes: u64) -> (u64, u64) {
    let offset_bits = 62 - (cluster_bytes.trailing_zeros() - 8);
    let offset = entry & ((1 << offset_bits) - 1);
    let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
    (offset, (sectors + 1) * 512 - offset % 512)
}

/// Reads a table of numbers. After the end of the file are zeros: a table is written after it is allocated.
fn read_table(
    file: &dyn BlockDevice,
    offset: u64,
    entries: u64,
) -> Result<Vec<u64>, ContainerError> {
    let mut bytes = vec![0; entries as usize * 8];
    let there = file.size_bytes().saturating_sub(offset).min(bytes.len() as u64);
    file.read_at(offset, &mut bytes[..there as usize])?;
    let numbers = bytes.chunks_exact(8);
    // A chunk has 8 bytes.
    Ok(numbers.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default())).collect())
}

/// The reference counts of a file, one piece of a block of them at a time.
struct Counts<'f> {
    file: &'f dyn BlockDevice,
    header: &'f Qcow2Header,
    table: Vec<u64>,
    /// Where the piece in memory is in the file.
    piece: Option<u64>,
    bytes: Vec<u8>,
    is_changed: bool,
}

impl<'f> Counts<'f> {
    fn read(
        file: &'f dyn BlockDevice,
        header: &'f Qcow2Header,
    ) -> Result<Counts<'f>, ContainerError> {
        let table = read_table(file, header.refcount_table_offset, header.refcount_table_entries)?;
        Ok(Counts { file, header, table, piece: None, bytes: Vec::new(), is_changed: false })
    }

    /// Counts all clusters of a range that aren't counted.
    fn restore(&mut self, offset: u64, bytes: u64) -> Result<(), ContainerError> {
        let end = offset.saturating_add(bytes);
        if end > OFFSET_MAX {
            return Err(damaged(format!("offset {offset}")));
        }
        for cluster in offset / self.header.cluster_bytes..end.div_ceil(self.header.cluster_bytes) {
            self.restore_cluster(cluster)?;
        }
        Ok(())
    }

    fn restore_cluster(&mut self, cluster: u64) -> Result<(), ContainerError> {
        let bits = 1_u64 << self.header.refcount_order;
        let per_block = self.header.cluster_bytes * 8 / bits;
        let uncounted =
            || damaged(format!("cluster {cluster} is used, but has no reference count"));
        let block = usize::try_from(cluster / per_block).map_err(|_| uncounted())?;
        let offset = self.table.get(block).map_or(0, |entry| entry & OFFSET_MASK);
        if offset == 0 {
            return Err(uncounted());
        }
        let piece_bytes = PIECE_BYTES.min(self.header.cluster_bytes);
        let counts_in_piece = piece_bytes * 8 / bits;
        let piece = offset + cluster % per_block / counts_in_piece * piece_bytes;
        if self.piece != Some(piece) {
            self.write_back()?;
            // Until it is read, there is none.
            self.piece = None;
            self.bytes.resize(piece_bytes as usize, 0);
            self.file.read_at(piece, &mut self.bytes)?;
            self.piece = Some(piece);
        }
        let first_bit = (cluster % counts_in_piece * bits) as usize;
        // Counts of less than a byte begin at its low bits, larger ones are big-endian.
        let (last, one) = match bits {
            8.. => (first_bit / 8 + bits as usize / 8 - 1, 1),
            _ => (first_bit / 8, 1 << (first_bit % 8)),
        };
        let is_counted = match bits {
            8.. => self.bytes[first_bit / 8..=last].iter().any(|byte| *byte != 0),
            _ => self.bytes[last] >> (first_bit % 8) & ((1 << bits) - 1) as u8 != 0,
        };
        if !is_counted {
            self.bytes[last] |= one;
            self.is_changed = true;
        }
        Ok(())
    }

    /// Writes the piece in memory, if it has changed.
    fn write_back(&mut self) -> Result<(), ContainerError> {
        if std::mem::take(&mut self.is_changed)
            && let Some(piece) = self.piece
        {
            self.file.write_at(piece, &self.bytes)?;
        }
        Ok(())
    }
}
