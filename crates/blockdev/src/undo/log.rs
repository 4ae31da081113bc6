//! The bytes of an undo log: a header, then entries, each with a checksum.
//!
//! All numbers are little-endian. The header takes 32 bytes: a magic of 8, the protected size (8), a
//! number that tells this log from an older one in the same file (8), whether it is to be kept when the
//! change is complete (4), and the checksum of the 28 bytes before. Entries follow without gaps: kind (4), count of pieces (4), the log's number (8),
//! checksum of the body (4), checksum of the 20 bytes before (4), then the body. It has 44 bytes for each
//! piece: number (8), how the old bytes are kept (4), and a checksum of the new bytes of each of its eight
//! sectors (32). The old bytes follow.
//!
//! An entry that isn't whole ends the log, as a crash leaves it, unless another one follows: then it is damaged.
//!
//! Zeros after the last entry take the space of the entries that end or undo a change, which must not
//! fail on a full disk.

use crate::{BlockDevice, DeviceError, DeviceOperation, DeviceResult};
use drystone_ondisk::crc32c;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::ops::Range;

/// Unit of what is logged.
pub(super) const PIECE_BYTES: usize = 4096;

/// What a disk writes as a whole, and a crash leaves as it was or as it was to be.
const SECTOR_BYTES: usize = 512;
const SECTORS: usize = PIECE_BYTES / SECTOR_BYTES;

/// A piece that was never written, or was freed.
const ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

const MAGIC: &[u8; 8] = b"drysund2";
const HEADER_BYTES: usize = 32;
const ENTRY_HEADER_BYTES: usize = 24;
const PIECE_HEADER_BYTES: usize = 12 + 4 * SECTORS;
/// A last batch of one piece that was logged before, the end of a change with one piece, the begin of a rollback,
/// and its end.
const SPARE_BYTES: usize = 4 * ENTRY_HEADER_BYTES + 2 * PIECE_HEADER_BYTES;
/// Pieces of an entry; more are damage, and no reason to take memory. Writers hold fewer, and add the first of the
/// image. How many they hold may grow up to this without another version of the format.
const PIECES_MAX: u32 = 4097;
const _: () = assert!(PIECES_MAX as usize > super::HELD_PIECES_MAX);

/// Most bytes from the begin of an entry to the end of the next one's header.
const ENTRY_BYTES_MAX: u64 =
    2 * ENTRY_HEADER_BYTES as u64 + PIECES_MAX as u64 * (PIECE_HEADER_BYTES + PIECE_BYTES) as u64;
/// How much is looked through at once for an entry.
const SEARCH_BYTES: usize = 16 << 10;

const KIND_BATCH: u32 = 1;
const KIND_FINISHED: u32 = 2;
const KIND_ROLLING_BACK: u32 = 3;
const KIND_ROLLED_BACK: u32 = 4;

const OLD_IN_EARLIER_BATCH: u32 = 0;
const OLD_BYTES: u32 = 1;
const OLD_ZEROS: u32 = 2;

/// A checksum of each sector of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectorSums(pub [u32; SECTORS]);

impl SectorSums {
    /// Of a piece, or of the part of it that is protected.
    pub fn of(bytes: &[u8]) -> Self {
        let mut sums = [0; SECTORS];
        for (sum, sector) in sums.iter_mut().zip(bytes.chunks(SECTOR_BYTES)) {
            *sum = crc32c(!0, sector);
        }
        Self(sums)
    }

    /// Whether each sector is as in one of these.
    pub fn is_made_of(&self, others: &[Self]) -> bool {
        (0..SECTORS).all(|index| others.iter().any(|other| other.0[index] == self.0[index]))
    }
}

/// One piece of a batch that is about to be written.
pub(super) struct NewPiece {
    pub number: u64,
    /// Of the new bytes.
    pub sums: SectorSums,
    /// Whether an earlier batch has the old bytes.
    pub is_logged: bool,
}

/// One piece of a batch that was logged.
pub(super) struct PieceChange {
    pub number: u64,
    /// Of the new bytes.
    pub new: SectorSums,
    /// The old bytes, unless an earlier batch has them.
    pub old: Option<Box<[u8; PIECE_BYTES]>>,
}

/// What an entry says.
pub(super) enum Entry {
    /// These pieces are about to be written to the image.
    Batch(Vec<PieceChange>),
    /// The change is complete, and left this piece so, which any later change of the file system changes.
    Finished(Vec<PieceChange>),
    /// A rollback has begun.
    RollingBack,
    /// The image is as it was before.
    RolledBack,
}

/// Appends to a log.
pub(super) struct LogWriter<L> {
    log: L,
    number: u64,
    end: u64,
}

impl<L: BlockDevice> LogWriter<L> {
    pub fn begin(log: L, protected_bytes: u64, is_kept: bool) -> DeviceResult<Self> {
        // Distinguishes logs, so that it need not be unpredictable: the standard library's seed will do.
        let number = RandomState::new().hash_one(protected_bytes);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&protected_bytes.to_le_bytes());
        header[16..24].copy_from_slice(&number.to_le_bytes());
        header[24..28].copy_from_slice(&u32::from(is_kept).to_le_bytes());
        let checksum = crc32c(!0, &header[..28]);
        header[28..].copy_from_slice(&checksum.to_le_bytes());
        log.write_durable_at(0, &header)?;
        Ok(Self { log, number, end: HEADER_BYTES as u64 })
    }

    /// Goes on after the last entry that was read.
    pub fn after(reader: LogReader<L>) -> Self {
        Self { log: reader.log, number: reader.number, end: reader.position }
    }

    /// Appends a batch, whose old bytes `read_old` reads.
    pub fn append_batch(
        &mut self,
        pieces: &[NewPiece],
        read_old: impl FnMut(u64, &mut [u8]) -> DeviceResult,
    ) -> DeviceResult {
        self.append_pieces(KIND_BATCH, pieces, true, read_old)
    }

    /// The batch after which only the end comes: if it is a piece that was logged before, it is in the spare.
    pub fn append_last_batch(
        &mut self,
        pieces: &[NewPiece],
        read_old: impl FnMut(u64, &mut [u8]) -> DeviceResult,
    ) -> DeviceResult {
        let is_in_spare = matches!(pieces, [NewPiece { is_logged: true, .. }]);
        self.append_pieces(KIND_BATCH, pieces, !is_in_spare, read_old)
    }

    pub fn append_finish(&mut self, first: SectorSums) -> DeviceResult {
        let first = NewPiece { number: 0, sums: first, is_logged: true };
        self.append_pieces(KIND_FINISHED, &[first], false, |_, _| Ok(()))
    }

    pub fn append_rolling_back(&mut self) -> DeviceResult {
        self.append_pieces(KIND_ROLLING_BACK, &[], false, |_, _| Ok(()))
    }

    pub fn append_rolled_back(&mut self) -> DeviceResult {
        self.append_pieces(KIND_ROLLED_BACK, &[], false, |_, _| Ok(()))
    }

    fn append_pieces(
        &mut self,
        kind: u32,
        pieces: &[NewPiece],
        has_spare: bool,
        mut read_old: impl FnMut(u64, &mut [u8]) -> DeviceResult,
    ) -> DeviceResult {
        let old_start = ENTRY_HEADER_BYTES + pieces.len() * PIECE_HEADER_BYTES;
        let unlogged = pieces.iter().filter(|piece| !piece.is_logged).count();
        let mut entry = Vec::with_capacity(old_start + unlogged * PIECE_BYTES + SPARE_BYTES);
        entry.resize(old_start, 0);
        for (index, piece) in pieces.iter().enumerate() {
            let mut kept = OLD_IN_EARLIER_BATCH;
            if !piece.is_logged {
                let start = entry.len();
                entry.resize(start + PIECE_BYTES, 0);
                read_old(piece.number, &mut entry[start..])?;
                kept = OLD_BYTES;
                if entry[start..] == ZEROS {
                    entry.truncate(start);
                    kept = OLD_ZEROS;
                }
            }
            let header = &mut entry[ENTRY_HEADER_BYTES + index * PIECE_HEADER_BYTES..];
            header[..8].copy_from_slice(&piece.number.to_le_bytes());
            header[8..12].copy_from_slice(&kept.to_le_bytes());
            for (field, sum) in header[12..PIECE_HEADER_BYTES].chunks_exact_mut(4).zip(piece.sums.0)
            {
                field.copy_from_slice(&sum.to_le_bytes());
            }
        }
        self.append(kind, pieces.len() as u32, entry, has_spare)
    }

    /// Appends an entry, whose body comes after room for its header.
    fn append(
        &mut self,
        kind: u32,
        count: u32,
        mut entry: Vec<u8>,
        has_spare: bool,
    ) -> DeviceResult {
        let (header, body) = entry.split_at_mut(ENTRY_HEADER_BYTES);
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[4..8].copy_from_slice(&count.to_le_bytes());
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        header[16..20].copy_from_slice(&crc32c(!0, body).to_le_bytes());
        let checksum = crc32c(!0, &header[..20]);
        header[20..].copy_from_slice(&checksum.to_le_bytes());
        let length = entry.len() as u64;
        let room = self.log.size_bytes().saturating_sub(self.end);
        if room < length {
            return Err(DeviceError::NoSpace { offset: self.end, length });
        }
        if has_spare {
            entry.resize((length + SPARE_BYTES as u64).min(room) as usize, 0);
        }
        self.log.write_durable_at(self.end, &entry)?;
        self.end += length;
        Ok(())
    }

    /// Bytes of the log so far.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn into_log(self) -> L {
        self.log
    }
}

/// Reads a log from its start.
pub(super) struct LogReader<L> {
    log: L,
    number: u64,
    protected_bytes: u64,
    is_kept: bool,
    position: u64,
    /// Where no further entry follows.
    end: Option<u64>,
}

impl<L: BlockDevice> LogReader<L> {
    /// `None` if there is no whole header: then nothing was changed under this log.
    pub fn open(log: L) -> DeviceResult<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        if log.size_bytes() < HEADER_BYTES as u64 {
            return Ok(None);
        }
        log.read_at(0, &mut header)?;
        if &header[..8] != MAGIC || crc32c(!0, &header[..28]) != u32_at(&header, 28) {
            return Ok(None);
        }
        Ok(Some(Self {
            log,
            number: u64_at(&header, 16),
            protected_bytes: u64_at(&header, 8),
            is_kept: u32_at(&header, 24) != 0,
            position: HEADER_BYTES as u64,
            end: None,
        }))
    }

    /// Whether the log is to be kept when the change is complete.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub fn protected_bytes(&self) -> u64 {
        self.protected_bytes
    }

    /// Back to the first entry.
    pub fn rewind(&mut self) {
        self.position = HEADER_BYTES as u64;
    }

    /// The next entry; `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// An entry is damaged.
    pub fn next(&mut self) -> DeviceResult<Option<Entry>> {
        let entry = self.next_whole()?;
        if entry.is_none() && self.end != Some(self.position) {
            if self.is_followed()? {
                let text = "the undo log is damaged here, and can't take its change back: \
                            move it away, and repair the image";
                let source = std::io::Error::new(ErrorKind::InvalidData, text);
                return Err(DeviceError::io(DeviceOperation::Read, self.position, 0, source));
            }
            self.end = Some(self.position);
        }
        Ok(entry)
    }

    /// Whether there is an entry after this position, where none is whole.
    fn is_followed(&self) -> DeviceResult<bool> {
        let is_header = |bytes: &[u8]| {
            u64_at(bytes, 8) == self.number && crc32c(!0, &bytes[..20]) == u32_at(bytes, 20)
        };
        let end = self.log.size_bytes().min(self.position + ENTRY_BYTES_MAX);
        let mut from = self.position + 1;
        while let Some(start) = self.log.next_data(from)?.filter(|&start| start < end) {
            let mut bytes = [0; SEARCH_BYTES];
            let length = (end - start).min(SEARCH_BYTES as u64) as usize;
            self.log.read_at(start, &mut bytes[..length])?;
            // Mostly the space that follows the last entry.
            if bytes != [0; SEARCH_BYTES] && bytes.windows(ENTRY_HEADER_BYTES).any(is_header) {
                return Ok(true);
            }
            // One may begin in this piece and end in the next.
            from = start + (SEARCH_BYTES - ENTRY_HEADER_BYTES) as u64 + 1;
        }
        Ok(false)
    }

    /// The next entry that was written completely.
    fn next_whole(&mut self) -> DeviceResult<Option<Entry>> {
        let mut header = [0; ENTRY_HEADER_BYTES];
        let Some(body_start) = self.read(self.position, &mut header)? else { return Ok(None) };
        let count = u32_at(&header, 4);
        if crc32c(!0, &header[..20]) != u32_at(&header, 20)
            || u64_at(&header, 8) != self.number
            || count > PIECES_MAX
        {
            return Ok(None);
        }
        let mut body = vec![0; count as usize * PIECE_HEADER_BYTES];
        let Some(old_start) = self.read(body_start, &mut body)? else { return Ok(None) };
        let kept = |index: usize| u32_at(&body, index * PIECE_HEADER_BYTES + 8);
        let stored = (0..count as usize).filter(|&index| kept(index) == OLD_BYTES).count();
        let mut old = vec![0; stored * PIECE_BYTES];
        let Some(end) = self.read(old_start, &mut old)? else { return Ok(None) };
        if crc32c(crc32c(!0, &body), &old) != u32_at(&header, 16) {
            return Ok(None);
        }
        let mut stored = old.as_chunks::<PIECE_BYTES>().0.iter();
        let changes = (0..count as usize).map(|index| {
            let header = &body[index * PIECE_HEADER_BYTES..];
            let old = match kept(index) {
                OLD_BYTES => stored.next().map(|bytes| Box::new(*bytes)),
                OLD_ZEROS => Some(Box::new([0; PIECE_BYTES])),
                _ => None,
            };
            let new = SectorSums(std::array::from_fn(|sector| u32_at(header, 12 + 4 * sector)));
            PieceChange { number: u64_at(header, 0), new, old }
        });
        let entry = match u32_at(&header, 0) {
            KIND_BATCH => Entry::Batch(changes.collect()),
            KIND_FINISHED => Entry::Finished(changes.collect()),
            KIND_ROLLING_BACK => Entry::RollingBack,
            KIND_ROLLED_BACK => Entry::RolledBack,
            _ => return Ok(None),
        };
        self.position = end;
        Ok(Some(entry))
    }

    /// Reads and returns the end of what was read; `None` beyond the end of the log.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult<Option<u64>> {
        let end = offset + buffer.len() as u64;
        if end > self.log.size_bytes() {
            return Ok(None);
        }
        self.log.read_at(offset, buffer)?;
        Ok(Some(end))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Cuts a range at the pieces: piece number, place in the piece, place in the range.
pub(super) fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done as u64;
        let start = (position % PIECE_BYTES as u64) as usize;
        let count = (length - done).min(PIECE_BYTES - start);
        let cut = (position / PIECE_BYTES as u64, start..start + count, done..done + count);
        done += count;
        Some(cut)
    })
}
