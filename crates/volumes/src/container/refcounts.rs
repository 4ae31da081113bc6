//! Raises reference counts of a qcow2 that are too low, as a power cut may leave them.

use super::ContainerError;
use super::header::{OFFSET_MASK, Qcow2Header, damaged};
use super::users::{CLUSTERS_AT_ONCE, MappingTables};
use drystone_blockdev::BlockDevice;

/// Bytes of reference counts that are read at once: entries may be in any order.
const PIECE_BYTES: u64 = 4096;

/// Raises each count to the number of the cluster's users, and clears the mark of an image that wasn't
/// closed. Counts that are too high stay. No other thread or program may use the file meanwhile.
pub(super) fn restore_counts(
    file: &dyn BlockDevice,
    header: &Qcow2Header,
) -> Result<(), ContainerError> {
    let tables = MappingTables::read(file, header)?;
    let mut counts = Counts::read(file, header)?;
    let mut next = Some(0);
    while let Some(first) = next {
        let users = tables.count(first, CLUSTERS_AT_ONCE)?;
        let end = users.end().saturating_mul(header.cluster_bytes);
        if !header.says_closed() && end > file.size_bytes() && counts.has_count(users.end() - 1) {
            // What was lost is zeros, as QEMU reads it. Once the image is closed, nothing may be missing.
            file.set_size(end)?;
        }
        for used in users.each() {
            let (cluster, users) = used?;
            counts.raise(cluster, users.into())?;
        }
        next = users.first_beyond();
    }
    counts.write_back()?;
    if header.is_dirty() {
        file.flush()?;
        header.mark(file, false)?;
    }
    Ok(())
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
        let table = header.refcount_table(file)?;
        Ok(Counts { file, header, table, piece: None, bytes: Vec::new(), is_changed: false })
    }

    /// Whether a cluster has a count.
    fn has_count(&self, cluster: u64) -> bool {
        self.block_of(cluster).is_some()
    }

    /// Where the block with the count of a cluster is in the file.
    fn block_of(&self, cluster: u64) -> Option<u64> {
        let per_block = (self.header.cluster_bytes * 8) >> self.header.refcount_order;
        let entry = self.table.get(usize::try_from(cluster / per_block).ok()?)?;
        Some(entry & OFFSET_MASK).filter(|offset| *offset != 0)
    }

    /// Raises the count of a cluster to the number of its users.
    fn raise(&mut self, cluster: u64, users: u64) -> Result<(), ContainerError> {
        let bits = 1_u64 << self.header.refcount_order;
        let per_block = self.header.cluster_bytes * 8 / bits;
        let offset = self.block_of(cluster).ok_or_else(|| {
            damaged(format!("cluster {cluster} is used, but has no reference count"))
        })?;
        if bits < 64 && users >> bits != 0 {
            return Err(damaged(format!(
                "cluster {cluster} is used {users} times, more than a count of {bits} bits can say"
            )));
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
        self.is_changed |= match bits {
            8.. => {
                let bytes = &mut self.bytes[first_bit / 8..(first_bit + bits as usize) / 8];
                raise_big_endian(bytes, users)
            }
            _ => raise_bits(&mut self.bytes[first_bit / 8], first_bit % 8, bits, users as u8),
        };
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

/// Raises a number of whole bytes. True if it was lower.
fn raise_big_endian(bytes: &mut [u8], to: u64) -> bool {
    let count = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let length = bytes.len();
    if count < to {
        bytes.copy_from_slice(&to.to_be_bytes()[8 - length..]);
    }
    count < to
}

/// Raises a number that has only some bits of a byte: the first one has the lowest.
fn raise_bits(byte: &mut u8, shift: usize, bits: u64, to: u8) -> bool {
    let mask = (1 << bits) - 1;
    let is_lower = *byte >> shift & mask < to;
    if is_lower {
        *byte = *byte & !(mask << shift) | to << shift;
    }
    is_lower
}
