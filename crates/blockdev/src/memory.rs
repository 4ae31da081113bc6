//! A device in memory.
//!
//! # State
//!
//! Chunks of 64 KiB, in regions of 1024 chunks. Neither takes memory until something other than
//! zeros is written, so a device may be as large as any disk. A snapshot shares the chunks with its
//! origin until one of the two writes to them.
//!
//! # Locking
//!
//! One reader-writer lock per chunk. Reads and writes take them one at a time: an operation
//! over several chunks is not atomic, as on a disk. There is no lock of the whole device;
//! [`MemoryDevice::snapshot`] takes all locks, in the order of the chunks.

use crate::lock_classes::MEMORY_CHUNK;
use crate::{BlockDevice, DeviceResult, check_range};
use drystone_sync::{Arc, OnceLock, RwLock};
use std::fmt;
use std::ops::Range;

/// Small enough to keep sparse images sparse, large enough that the locks cost little.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks of a region. 16 TiB of regions that were never written take 6 MiB.
const REGION_CHUNKS: usize = 1024;

const REGION_BYTES: u64 = (REGION_CHUNKS * CHUNK_BYTES) as u64;

type Chunk = Option<Arc<[u8; CHUNK_BYTES]>>;

/// The chunks up to the device's end, made as a whole at the first write.
type Region = OnceLock<Box<[RwLock<Chunk>]>>;

/// A device in memory. Reads as zeros where it was not written. A clone is a copy.
pub struct MemoryDevice {
    size_bytes: u64,
    regions: Box<[Region]>,
}

impl MemoryDevice {
    /// A device full of zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        let regions = (0..size_bytes.div_ceil(REGION_BYTES)).map(|_| Region::new()).collect();
        Self { size_bytes, regions }
    }

    /// A device that holds a copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (piece, place) in bytes.chunks(CHUNK_BYTES).zip(device.places(0, bytes.len() as u64)) {
            device.write_place(&place, piece);
        }
        device
    }

    /// A copy of the whole content. Concurrent writes are in it, in part, or not.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes as usize];
        for (piece, place) in bytes.chunks_mut(CHUNK_BYTES).zip(self.places(0, self.size_bytes)) {
            self.read_place(&place, piece);
        }
        bytes
    }

    /// The device as it is at one moment, sparse where this one is: what a crash would leave. It
    /// may have some of the chunks of a concurrent write.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        loop {
            let made: Vec<bool> = self.made_regions().collect();
            let chunks = self.regions.iter().zip(&made).filter(|&(_, made)| *made);
            let chunks = chunks.filter_map(|(region, _)| region.get()).flatten();
            // Trying first avoids most checks of the lock order, each of which looks at all held
            // locks.
            let held: Vec<_> =
                chunks.map(|chunk| chunk.try_read().unwrap_or_else(|| chunk.read())).collect();
            // A region made since then has writes that came before others in `held`.
            if !self.made_regions().eq(made.iter().copied()) {
                continue;
            }
            let mut chunks =
                held.iter().map(|chunk| RwLock::new(&MEMORY_CHUNK, Chunk::clone(chunk)));
            let regions = made.iter().enumerate().map(|(index, made)| match made {
                true => {
                    let count = self.chunks_of(index);
                    Region::from(chunks.by_ref().take(count).collect::<Box<[_]>>())
                }
                false => Region::new(),
            });
            let regions = regions.collect();
            // In reverse order, because the lock taken last is found first among the held locks.
            held.into_iter().rev().for_each(drop);
            return Self { size_bytes: self.size_bytes, regions };
        }
    }

    /// How many chunks a region has.
    fn chunks_of(&self, region: usize) -> usize {
        let end = self.size_bytes - region as u64 * REGION_BYTES;
        end.min(REGION_BYTES).div_ceil(CHUNK_BYTES as u64) as usize
    }

    /// Which regions have chunks.
    fn made_regions(&self) -> impl Iterator<Item = bool> {
        self.regions.iter().map(|region| region.get().is_some())
    }

    /// Bytes of memory that the content takes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let chunks = self.regions.iter().filter_map(Region::get).flatten();
        (chunks.filter(|chunk| chunk.read().is_some()).count() * CHUNK_BYTES) as u64
    }

    /// Cuts a range, which the caller has checked, at the chunks.
    fn places(&self, offset: u64, length: u64) -> impl Iterator<Item = ChunkRange> + use<> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let position = offset + done;
            let start = (position % CHUNK_BYTES as u64) as usize;
            let piece = (length - done).min((CHUNK_BYTES - start) as u64) as usize;
            let place = ChunkRange {
                region: (position / REGION_BYTES) as usize,
                chunk: (position / CHUNK_BYTES as u64) as usize % REGION_CHUNKS,
                bytes: start..start + piece,
                done: done as usize,
            };
            done += piece as u64;
            Some(place)
        })
    }

    fn read_place(&self, place: &ChunkRange, target: &mut [u8]) {
        let chunk = self.regions[place.region].get().map(|region| region[place.chunk].read());
        match chunk.as_deref() {
            Some(Some(bytes)) => target.copy_from_slice(&bytes[place.bytes.clone()]),
            Some(None) | None => target.fill(0),
        }
    }

    fn write_place(&self, place: &ChunkRange, source: &[u8]) {
        let is_zero = source.iter().all(|&byte| byte == 0);
        let region = &self.regions[place.region];
        if is_zero && region.get().is_none() {
            return;
        }
        let make = || (0..self.chunks_of(place.region)).map(|_| RwLock::new(&MEMORY_CHUNK, None));
        let chunks = region.get_or_init(|| make().collect());
        let mut chunk = chunks[place.chunk].write();
        if is_zero && chunk.is_none() {
            return;
        }
        let bytes = chunk.get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
        Arc::make_mut(bytes)[place.bytes.clone()].copy_from_slice(source);
    }
}

/// The part of a range that is in one chunk.
struct ChunkRange {
    region: usize,
    chunk: usize,
    /// Where in the chunk.
    bytes: Range<usize>,
    /// Where in the range.
    done: usize,
}

impl ChunkRange {
    /// Where in the range's buffer.
    fn buffer(&self) -> Range<usize> {
        self.done..self.done + self.bytes.len()
    }
}

impl BlockDevice for MemoryDevice {
    fn is_private(&self) -> bool {
        true
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> DeviceResult<Option<u64>> {
        let mut at = offset;
        while at < self.size_bytes {
            let Some(chunks) = self.regions[(at / REGION_BYTES) as usize].get() else {
                at = (at / REGION_BYTES + 1) * REGION_BYTES;
                continue;
            };
            let chunk = at / CHUNK_BYTES as u64;
            if chunks[chunk as usize % REGION_CHUNKS].read().is_some() {
                return Ok(Some(at));
            }
            at = (chunk + 1) * CHUNK_BYTES as u64;
        }
        Ok(None)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        check_range(self.size_bytes, offset, buffer.len() as u64)?;
        for place in self.places(offset, buffer.len() as u64) {
            self.read_place(&place, &mut buffer[place.buffer()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        check_range(self.size_bytes, offset, data.len() as u64)?;
        for place in self.places(offset, data.len() as u64) {
            self.write_place(&place, &data[place.buffer()]);
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> DeviceResult {
        self.zero_range(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> DeviceResult {
        check_range(self.size_bytes, offset, length)?;
        for place in self.places(offset, length) {
            let Some(region) = self.regions[place.region].get() else { continue };
            let mut chunk = region[place.chunk].write();
            if place.bytes.len() == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = chunk.as_mut() {
                Arc::make_mut(bytes)[place.bytes].fill(0);
            }
        }
        Ok(())
    }
}

impl Clone for MemoryDevice {
    fn clone(&self) -> Self {
        self.snapshot()
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryDevice")
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}
