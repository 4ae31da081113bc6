//! A writable view of a device that is never written.
//!
//! An image with a dirty journal is read through one: the journal is replayed into memory. Crash
//! images that share one base are overlays too.
//!
//! # State
//!
//! Pieces of 4 KiB by number, spread over shards. A piece is made from the base's bytes at
//! the first write that touches it, and from then on hides them.
//!
//! # Locking
//!
//! One lock per shard, held only to look at or change pieces; the base is read without.

use crate::lock_classes::OVERLAY_SHARD;
use crate::{BlockDevice, DeviceResult, check_range};
use drystone_sync::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

const PIECE_BYTES: usize = 4096;

const SHARDS: usize = 64;

/// `None` is a piece of zeros.
type Piece = Option<Box<[u8; PIECE_BYTES]>>;

/// A device in memory that starts as a copy of another and takes memory only for changes.
pub struct Overlay<D> {
    base: D,
    shards: Box<[RwLock<HashMap<u64, Piece>>]>,
}

impl<D: BlockDevice> Overlay<D> {
    /// A view of `base` without changes.
    pub fn new(base: D) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&OVERLAY_SHARD, HashMap::new())).collect();
        Self { base, shards }
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// Gives the device below back; the changes are gone.
    pub fn into_base(self) -> D {
        self.base
    }

    /// Bytes that hide the base's, in whole pieces.
    #[must_use]
    pub fn changed_bytes(&self) -> u64 {
        let pieces: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        (pieces * PIECE_BYTES) as u64
    }

    /// The ranges of bytes that may differ from the base's, in order, in whole pieces.
    #[must_use]
    pub fn changed_ranges(&self) -> Vec<Range<u64>> {
        let mut numbers: Vec<u64> = Vec::new();
        for shard in &self.shards {
            numbers.extend(shard.read().keys());
        }
        numbers.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in numbers {
            let start = number * PIECE_BYTES as u64;
            let end = (start + PIECE_BYTES as u64).min(self.size_bytes());
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    fn shard(&self, piece: u64) -> &RwLock<HashMap<u64, Piece>> {
        &self.shards[(piece % SHARDS as u64) as usize]
    }

    /// Changes part of one piece. `change` sees the piece's bytes at `place`.
    fn change(
        &self,
        number: u64,
        place: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> DeviceResult {
        let shard = self.shard(number);
        let is_whole = place.len() == PIECE_BYTES;
        let fresh = if is_whole || shard.read().contains_key(&number) {
            None
        } else {
            // The base never changes, so any thread may copy a piece first.
            Some(self.base_piece(number)?)
        };
        let mut shard = shard.write();
        let piece = shard.entry(number).or_insert(fresh);
        change(&mut piece.get_or_insert_with(|| Box::new([0; PIECE_BYTES]))[place]);
        Ok(())
    }

    fn base_piece(&self, number: u64) -> DeviceResult<Box<[u8; PIECE_BYTES]>> {
        let offset = number * PIECE_BYTES as u64;
        // The last piece may reach beyond the end of the device; those bytes are never read.
        let length = (self.base.size_bytes() - offset).min(PIECE_BYTES as u64) as usize;
        let mut piece = Box::new([0; PIECE_BYTES]);
        self.base.read_at(offset, &mut piece[..length])?;
        Ok(piece)
    }
}

/// Cuts a range at the pieces: piece number, place in the piece, place in the range.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, Range<usize>, u64)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done;
        let start = (position % PIECE_BYTES as u64) as usize;
        let count = (length - done).min((PIECE_BYTES - start) as u64) as usize;
        let cut = (position / PIECE_BYTES as u64, start..start + count, done);
        done += count as u64;
        Some(cut)
    })
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn is_private(&self) -> bool {
        // Writes stay in memory, so a read-only base is fine.
        true
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.base.read_at(offset, buffer)?;
        for (number, place, done) in pieces(offset, buffer.len() as u64) {
            let target = &mut buffer[done as usize..][..place.len()];
            match self.shard(number).read().get(&number) {
                Some(Some(piece)) => target.copy_from_slice(&piece[place]),
                Some(None) => target.fill(0),
                None => {}
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        check_range(self.size_bytes(), offset, data.len() as u64)?;
        for (number, place, done) in pieces(offset, data.len() as u64) {
            let source = &data[done as usize..][..place.len()];
            self.change(number, place, |bytes| bytes.copy_from_slice(source))?;
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        let below = self.base.next_data(offset)?;
        if below == Some(offset) {
            return Ok(below);
        }
        let first = offset / PIECE_BYTES as u64;
        let changed = self.shards.iter().filter_map(|shard| {
            let shard = shard.read();
            shard.keys().copied().filter(|&number| number >= first).min()
        });
        let changed = changed.min().map(|number| (number * PIECE_BYTES as u64).max(offset));
        Ok(below.into_iter().chain(changed).min().filter(|&next| next < self.size_bytes()))
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.size_bytes(), offset, length)?;
        for (number, place, _) in pieces(offset, length) {
            if place.len() == PIECE_BYTES {
                self.shard(number).write().insert(number, None);
            } else {
                self.change(number, place, |bytes| bytes.fill(0))?;
            }
        }
        Ok(())
    }
}

impl<D: fmt::Debug> fmt::Debug for Overlay<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Overlay").field("base", &self.base).finish_non_exhaustive()
    }
}
