//! A device whose changes can be undone: old bytes go to a log before the image is changed.
//!
//! Offline changes (repair, resize, tune) write through an [`UndoDevice`]. After a crash,
//! [`roll_back`] restores the image from the log. [`UndoFile`] is a log in a file, by default beside the
//! image.
//!
//! # State
//!
//! Changes are held in memory, in pieces of 4 KiB, until a flush or until they take 2 MiB. Then they are written as
//! one *batch*; with its log entry it takes twice as much. The entry holds checksums of each
//! piece's new bytes, and the old bytes of each piece that no earlier batch has logged. Which those are takes a bit for
//! each piece.
//!
//! Other programs know nothing of the log. A device with a *mark* ([`UndoDevice::marked_by`]) writes the mark to the
//! first piece before anything else, so that they refuse the image while it is half changed. The final content of the
//! first piece stays in memory and is written last. A rollback restores that piece last, too.
//!
//! A rollback first checks that the image is what the change left. It isn't enough to compare the blocks that the log
//! covers: a later change of other blocks may rely on them. So the log of a complete change also has checksums of the
//! first 4 KiB, where file systems have the superblock. Any program that changes a file system must change its
//! superblock, too, before it overwrites what an undo log may need.
//!
//! # Locking
//!
//! One lock, held over the I/O of the devices below: readers share it, and so do writes of free blocks of which
//! no piece is logged or held; any other change takes it exclusively.
//!
//! # Crash
//!
//! A batch is appended to the log and the log is flushed; the batch is written to the image and the
//! image is flushed. So the log always has the old bytes of what differs in the image, and only pieces
//! of the last batch can be torn. An error in between stops the device: it takes no more changes.

mod file;
mod log;
mod piece_set;
mod roll_back;

pub use file::{UndoFile, UndoTarget};
pub use roll_back::{UndoError, roll_back};

use crate::lock_classes::UNDO;
use crate::{BlockDevice, DeviceError, DeviceResult, check_range};
use drystone_sync::RwLock;
use drystone_sync::atomic::{AtomicBool, Ordering};
use log::{LogWriter, NewPiece, PIECE_BYTES, SectorSums, pieces};
use piece_set::PieceSet;
use std::collections::BTreeMap;
use std::fmt;

/// Pieces that are held in memory before they are written.
const HELD_PIECES_MAX: usize = 512;

/// Bytes that are written to the image at once.
const RUN_BYTES_MAX: usize = 256 << 10;

/// New bytes of a piece; `None` is all zeros.
type NewBytes = Option<Box<[u8; PIECE_BYTES]>>;

/// Makes the first piece of an image one that no program takes for a whole image.
pub type UndoMark = fn(&mut [u8]);

/// A device that logs the old bytes of what it changes.
///
/// It must end with [`finish`](Self::finish). If it is dropped instead, or after an error, the image
/// has to be rolled back.
pub struct UndoDevice<D, L> {
    image: D,
    protected_bytes: u64,
    mark: Option<UndoMark>,
    state: RwLock<UndoState<L>>,
}

struct UndoState<L> {
    log: LogWriter<L>,
    held: BTreeMap<u64, NewBytes>,
    /// Pieces whose old bytes the log has.
    saved: PieceSet,
    /// Whether unlogged writes may not be durable yet. Set by holders of the shared lock.
    has_unlogged: AtomicBool,
    /// What failed first. All that comes later fails for its sake, and says so.
    failure: Option<DeviceError>,
}

impl<D: BlockDevice, L: BlockDevice> UndoDevice<D, L> {
    /// Starts a log of the changes of `image`.
    ///
    /// `protected_bytes` is the size to which a rollback cuts the image: what lies beyond is new, isn't
    /// logged, and is written at once.
    ///
    /// # Errors
    ///
    /// `log` can't be written.
    pub fn begin(image: D, log: L, protected_bytes: u64) -> DeviceResult<Self> {
        let log = LogWriter::begin(log, protected_bytes, false)?;
        Ok(Self::with_log(image, log, protected_bytes))
    }

    fn with_log(image: D, log: LogWriter<L>, protected_bytes: u64) -> Self {
        let state = UndoState {
            log,
            held: BTreeMap::new(),
            saved: PieceSet::default(),
            has_unlogged: AtomicBool::new(false),
            failure: None,
        };
        Self { image, protected_bytes, mark: None, state: RwLock::new(&UNDO, state) }
    }

    /// This device, before its first change, with a mark for the image while it is half changed.
    #[must_use]
    pub fn marked_by(mut self, mark: UndoMark) -> Self {
        self.mark = Some(mark);
        self
    }

    /// The device below, without the changes that are held in memory.
    pub fn image(&self) -> &D {
        &self.image
    }

    /// Writes where the old bytes aren't needed, such as free blocks. They aren't logged, and the write
    /// isn't held in memory. After a rollback the range has old or new bytes.
    ///
    /// # Errors
    ///
    /// As for [`write_at`](BlockDevice::write_at).
    pub fn write_unlogged_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        check_range(self.size_bytes(), offset, data.len() as u64)?;
        if let Some(written) = self.try_write_shared(offset, data) {
            // Only a failure has to be noted.
            return written.or_else(|error| self.state.write().heed(Err(error)));
        }
        let mut state = self.state.write();
        state.check()?;
        // What a rollback is to keep in the first piece comes before the mark.
        if offset >= PIECE_BYTES as u64 {
            self.mark_image(&mut state)?;
        }
        let mut run = 0..0;
        for (number, _, range) in pieces(offset, data.len()) {
            // A piece that is logged in part is logged as a whole.
            if state.saved.contains(number) || state.held.contains_key(&number) {
                self.write_through(&mut state, offset, data, &run)?;
                self.hold(&mut state, offset + range.start as u64, &data[range.clone()])?;
                run = range.end..range.end;
            } else {
                run.end = range.end;
            }
        }
        self.write_through(&mut state, offset, data, &run)
    }

    /// Writes beside other threads, if no piece is logged or held and the mark, if there is one, is written.
    fn try_write_shared(&self, offset: u64, data: &[u8]) -> Option<DeviceResult> {
        let state = self.state.read();
        let is_marked = self.mark.is_none() || state.saved.contains(0);
        let is_free =
            |number: u64| !state.saved.contains(number) && !state.held.contains_key(&number);
        let are_free = || pieces(offset, data.len()).all(|(number, _, _)| is_free(number));
        if state.failure.is_some() || !is_marked || !are_free() {
            return None;
        }
        // The lock orders it before a batch looks.
        state.has_unlogged.store(true, Ordering::Relaxed);
        Some(self.image.write_at(offset, data))
    }

    /// Makes everything durable and notes in the log that the change is complete. Returns both devices.
    ///
    /// # Errors
    ///
    /// A write failed: the image has to be rolled back.
    pub fn finish(self) -> DeviceResult<(D, L)> {
        let (image, log) = self.finish_log()?;
        Ok((image, log.into_log()))
    }

    fn finish_log(self) -> DeviceResult<(D, LogWriter<L>)> {
        self.flush()?;
        {
            let mut state = self.state.write();
            // The first piece, in place of the mark, after all others.
            let written = self.write_pieces(&mut state, true);
            state.heed(written)?;
        }
        let first = self.read_piece(0)?;
        let sums = SectorSums::of(&first[..self.protected_length(0)]);
        let mut log = self.state.into_inner().log;
        log.append_finish(sums)?;
        Ok((self.image, log))
    }

    /// Gives up and drops what is held. [`roll_back`] restores the image if anything was written.
    pub fn into_parts(self) -> (D, L) {
        (self.image, self.state.into_inner().log.into_log())
    }

    /// Part of a piece that is protected.
    fn protected_length(&self, number: u64) -> usize {
        let start = number * PIECE_BYTES as u64;
        self.protected_bytes.saturating_sub(start).min(PIECE_BYTES as u64) as usize
    }

    fn read_piece(&self, number: u64) -> DeviceResult<Box<[u8; PIECE_BYTES]>> {
        let mut bytes = Box::new([0; PIECE_BYTES]);
        self.read_piece_into(number, &mut bytes[..])?;
        Ok(bytes)
    }

    /// Reads a piece; what lies beyond the end of the image stays as it is in `bytes`.
    fn read_piece_into(&self, number: u64, bytes: &mut [u8]) -> DeviceResult {
        let start = number * PIECE_BYTES as u64;
        let length = (self.size_bytes() - start).min(PIECE_BYTES as u64) as usize;
        self.image.read_at(start, &mut bytes[..length])
    }

    /// Holds new bytes in their pieces.
    fn hold(&self, state: &mut UndoState<L>, offset: u64, data: &[u8]) -> DeviceResult {
        for (number, place, range) in pieces(offset, data.len()) {
            let fresh = if state.held.contains_key(&number) || place.len() == PIECE_BYTES {
                None
            } else {
                Some(self.read_piece(number)?)
            };
            let piece = state.held.entry(number).or_insert(fresh);
            let piece = piece.get_or_insert_with(|| Box::new([0; PIECE_BYTES]));
            piece[place].copy_from_slice(&data[range]);
            self.write_if_many(state)?;
        }
        Ok(())
    }

    fn write_if_many(&self, state: &mut UndoState<L>) -> DeviceResult {
        if state.held.len() >= HELD_PIECES_MAX { self.write_batch(state) } else { Ok(()) }
    }

    /// Writes part of `data`, which starts at `offset`, to the image.
    fn write_through(
        &self,
        state: &mut UndoState<L>,
        offset: u64,
        data: &[u8],
        range: &std::ops::Range<usize>,
    ) -> DeviceResult {
        if range.is_empty() {
            return Ok(());
        }
        state.has_unlogged.store(true, Ordering::Relaxed);
        let written = self.image.write_at(offset + range.start as u64, &data[range.clone()]);
        state.heed(written)
    }

    fn write_batch(&self, state: &mut UndoState<L>) -> DeviceResult {
        let written = self.try_write_batch(state);
        state.heed(written)
    }

    /// Writes the mark, if it isn't there yet: before anything else is changed.
    fn mark_image(&self, state: &mut UndoState<L>) -> DeviceResult {
        let Some(mark) = self.mark.filter(|_| self.protected_bytes > 0) else { return Ok(()) };
        if state.saved.contains(0) {
            return Ok(());
        }
        let old = self.read_piece(0)?;
        let mut marked = old.clone();
        mark(&mut marked[..]);
        let mut others = std::mem::replace(&mut state.held, [(0, Some(marked))].into());
        let written = self.write_pieces(state, false);
        others.entry(0).or_insert(Some(old));
        state.held = others;
        state.heed(written)
    }

    fn try_write_batch(&self, state: &mut UndoState<L>) -> DeviceResult {
        if self.mark.is_none() {
            return self.write_pieces(state, false);
        }
        if state.held.keys().any(|&number| number != 0) {
            self.mark_image(state)?;
            // In place of the mark only at the end.
            let first = state.held.remove(&0);
            self.write_pieces(state, false)?;
            state.held.extend(first.map(|first| (0, first)));
        }
        Ok(())
    }

    /// Writes what is held as one batch.
    fn write_pieces(&self, state: &mut UndoState<L>, is_last: bool) -> DeviceResult {
        if state.held.is_empty() {
            return Ok(());
        }
        // What is logged as old is what a crash leaves.
        if state.has_unlogged.swap(false, Ordering::Relaxed) {
            self.image.flush()?;
        }
        // Shows whether anybody else has changed the file system after an interruption.
        if state.saved.is_empty() && !state.held.contains_key(&0) {
            state.held.insert(0, Some(self.read_piece(0)?));
        }
        let zeros = [0; PIECE_BYTES];
        let UndoState { log, held, saved, .. } = &mut *state;
        let pieces = held.iter().map(|(&number, new)| {
            let new = new.as_deref().unwrap_or(&zeros);
            let sums = SectorSums::of(&new[..self.protected_length(number)]);
            NewPiece { number, sums, is_logged: saved.contains(number) }
        });
        let pieces: Vec<NewPiece> = pieces.collect();
        let read_old = |number: u64, bytes: &mut [u8]| self.read_piece_into(number, bytes);
        match is_last {
            true => log.append_last_batch(&pieces, read_old)?,
            false => log.append_batch(&pieces, read_old)?,
        }
        pieces.iter().for_each(|piece| saved.insert(piece.number));
        let held = std::mem::take(&mut state.held);
        let mut run: Vec<u8> = Vec::new();
        let mut run_start = 0;
        for (number, new) in held {
            let start = number * PIECE_BYTES as u64;
            let length = (self.size_bytes() - start).min(PIECE_BYTES as u64);
            let goes_on = run_start + run.len() as u64 == start && run.len() < RUN_BYTES_MAX;
            if !goes_on || new.is_none() {
                if !run.is_empty() {
                    self.image.write_at(run_start, &run)?;
                }
                run.clear();
                run_start = start;
            }
            match new {
                Some(bytes) => run.extend_from_slice(&bytes[..length as usize]),
                None => {
                    self.image.zero_range(start, length)?;
                    run_start = start + length;
                }
            }
        }
        if !run.is_empty() {
            self.image.write_at(run_start, &run)?;
        }
        self.image.flush()
    }
}

impl<L> UndoState<L> {
    fn check(&self) -> DeviceResult {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Remembers a failure.
    fn heed(&mut self, result: DeviceResult) -> DeviceResult {
        result.inspect_err(|error| {
            self.failure.get_or_insert_with(|| error.clone());
        })
    }
}

impl<D: BlockDevice, L: BlockDevice> BlockDevice for UndoDevice<D, L> {
    fn size_bytes(&self) -> u64 {
        self.image.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let state = self.state.read();
        self.image.read_at(offset, buffer)?;
        if buffer.is_empty() || state.held.is_empty() {
            return Ok(());
        }
        let first = offset / PIECE_BYTES as u64;
        let last = (offset + buffer.len() as u64 - 1) / PIECE_BYTES as u64;
        for (&number, new) in state.held.range(first..=last) {
            let start = number * PIECE_BYTES as u64;
            let from = start.max(offset);
            let to = (start + PIECE_BYTES as u64).min(offset + buffer.len() as u64);
            let target = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            match new {
                Some(bytes) => {
                    target.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
                }
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        check_range(self.size_bytes(), offset, data.len() as u64)?;
        let mut state = self.state.write();
        state.check()?;
        // A piece that is protected in part is protected as a whole.
        let end = self.protected_bytes.next_multiple_of(PIECE_BYTES as u64);
        let logged = end.saturating_sub(offset).min(data.len() as u64) as usize;
        if logged < data.len() {
            self.mark_image(&mut state)?;
        }
        self.hold(&mut state, offset, &data[..logged])?;
        self.write_through(&mut state, offset, data, &(logged..data.len()))
    }

    fn flush(&self) -> DeviceResult {
        let mut state = self.state.write();
        state.check()?;
        self.write_batch(&mut state)?;
        let flushed = self.image.flush();
        state.heed(flushed)
    }

    /// Does nothing: discarded bytes could not be restored.
    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.size_bytes(), offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.size_bytes(), offset, length)?;
        let mut state = self.state.write();
        state.check()?;
        let end = self.protected_bytes.next_multiple_of(PIECE_BYTES as u64);
        let logged = end.saturating_sub(offset).min(length);
        let mut done = 0;
        while done < logged {
            let position = offset + done;
            let start = (position % PIECE_BYTES as u64) as usize;
            let count = (logged - done).min((PIECE_BYTES - start) as u64);
            if count == PIECE_BYTES as u64 {
                state.held.insert(position / PIECE_BYTES as u64, None);
                self.write_if_many(&mut state)?;
            } else {
                self.hold(&mut state, position, &[0; PIECE_BYTES][..count as usize])?;
            }
            done += count;
        }
        if logged == length {
            return Ok(());
        }
        self.mark_image(&mut state)?;
        let zeroed = self.image.zero_range(offset + logged, length - logged);
        state.heed(zeroed)
    }

    fn refresh(&self, offset: u64, length: u64) {
        self.image.refresh(offset, length);
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        let state = self.state.read();
        let below = self.image.next_data(offset)?;
        let held = state.held.range(offset / PIECE_BYTES as u64..).next();
        let held = held.map(|(number, _)| (number * PIECE_BYTES as u64).max(offset));
        Ok(below.into_iter().chain(held).min().filter(|&next| next < self.size_bytes()))
    }

    fn is_read_only(&self) -> bool {
        self.image.is_read_only()
    }

    fn is_private(&self) -> bool {
        self.image.is_private()
    }
}

impl<D: fmt::Debug, L> fmt::Debug for UndoDevice<D, L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UndoDevice").field("image", &self.image).finish_non_exhaustive()
    }
}
