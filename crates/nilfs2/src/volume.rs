//! The device and its geometry: how blocks are read.
//!
//! # Locking
//! A thread that translates a virtual block and reads what it leads to holds its core's part of the
//! readers' gate. [`Volume::wait_for_readers`] passes all parts, so that a segment that has been
//! cleaned is written only after every reader that may have found its blocks is done.
//!
//! A reader may also find the new place of a block that the cleaner moves before the log that has it is
//! written. Until then such blocks are kept in memory, by their new places.

use crate::error::Result;
use crate::lock_classes::{MOVING, READERS};
use drystone_blockdev::{BlockDevice, DeviceError, DeviceResult};
use drystone_nilfs2_format::error::DatProblem;
use drystone_nilfs2_format::{Corrupt, Geometry, PhysicalBlock, VirtualBlock};
use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_sync::{Arc, PerCore, RwLock, RwLockReadGuard, clock, thread};
use drystone_vfs::Timestamp;
use std::collections::HashMap;
use std::io::IoSlice;
use std::time::Duration;

/// The bytes of a block. The log writer keeps a clone of what it writes; the next change copies.
pub(crate) type BlockBytes = Arc<[u8]>;

/// Where the nodes of a map, and the blocks that it leads to, are read.
pub(crate) trait BlockSource {
    /// Reads the block that a pointer of the map leads to.
    fn read(&self, pointer: u64) -> Result<BlockBytes>;
}

/// How often a write to a full medium is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How a mount treats its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeOptions {
    /// Stamps everything with this time, in seconds since 1970, instead of the clock's.
    pub(crate) fixed_time_s: Option<u64>,
    /// How long the log waits for room on the medium of the device.
    pub(crate) full_medium_wait: Duration,
}

/// What a volume is, without what changes.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u32,
    options: VolumeOptions,
    readers: PerCore<RwLock<()>>,
    /// Blocks that are being moved, by the places where they aren't yet.
    moving: RwLock<HashMap<PhysicalBlock, BlockBytes>>,
    has_moving: AtomicBool,
    /// Content that was read or logged since clean blocks were last dropped for it.
    pub(crate) content_added_bytes: AtomicUsize,
}

impl Volume {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        geometry: Geometry,
        seed: u32,
        options: VolumeOptions,
    ) -> Self {
        let readers = PerCore::new(|_| RwLock::new(&READERS, ()));
        let moving = RwLock::new(&MOVING, HashMap::new());
        let has_moving = AtomicBool::new(false);
        let content_added_bytes = AtomicUsize::new(0);
        Self { device, geometry, seed, options, readers, moving, has_moving, content_added_bytes }
    }

    /// Whether logs are written only when a caller asks for them, so that the same calls give the same bytes.
    pub(crate) fn is_reproducible(&self) -> bool {
        self.options.fixed_time_s.is_some()
    }

    /// Seconds since 1970.
    pub(crate) fn wall_s(&self) -> u64 {
        self.options.fixed_time_s.unwrap_or_else(|| clock::wall().0.max(0).cast_unsigned())
    }

    /// The time that changes are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        match self.options.fixed_time_s {
            Some(seconds) => Timestamp { seconds: seconds.cast_signed(), nanoseconds: 0 },
            None => {
                let (seconds, nanoseconds) = clock::wall_coarse();
                Timestamp { seconds, nanoseconds }
            }
        }
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_bytes()
    }

    /// Blocks that a number of bytes needs.
    pub(crate) fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_bytes() as u64)
    }

    /// Keeps cleaned segments from being written while the guard lives.
    pub(crate) fn enter_reader(&self) -> RwLockReadGuard<'_, ()> {
        self.readers.current().read()
    }

    /// Returns when every reader that is inside now has left.
    pub(crate) fn wait_for_readers(&self) {
        for part in self.readers.iter() {
            drop(part.write());
        }
    }

    /// Notes blocks that are about to get new places, before anybody can find these; none when they are
    /// there.
    pub(crate) fn set_moving(&self, blocks: HashMap<PhysicalBlock, BlockBytes>) {
        let has_some = !blocks.is_empty();
        let old = std::mem::replace(&mut *self.moving.write(), blocks);
        self.has_moving.store(has_some, Ordering::Release);
        drop(old);
    }

    /// Writes from a block on.
    pub(crate) fn write_blocks(&self, start: PhysicalBlock, slices: &[IoSlice<'_>]) -> Result<()> {
        let offset = self.geometry.offset_of(start);
        self.wait_for_room(|| self.device.write_vectored_at(offset, slices))
    }

    /// Writes bytes so that they are durable on return.
    pub(crate) fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // A device that is full as it makes something durable isn't asked again: other writes may be lost.
        self.wait_for_room(|| self.device.write_at(offset, bytes))?;
        Ok(self.device.flush()?)
    }

    /// Writes zeros to a block.
    pub(crate) fn zero_block(&self, block: PhysicalBlock) -> Result<()> {
        let (offset, length) = (self.geometry.offset_of(block), self.block_bytes() as u64);
        self.wait_for_room(|| self.device.zero_range(offset, length))
    }

    /// Writes. On a full medium it waits for room and writes again: what was changed is only in memory, and
    /// would be lost if the log stopped.
    fn wait_for_room(&self, write: impl Fn() -> DeviceResult) -> Result<()> {
        let begun = clock::now();
        let mut has_warned = false;
        loop {
            match write() {
                Err(DeviceError::NoSpace { .. })
                    if begun.elapsed() < self.options.full_medium_wait =>
                {
                    if !std::mem::replace(&mut has_warned, true) {
                        tracing::warn!("the medium of the device is full; the log waits for room");
                    }
                    thread::sleep(RETRY_INTERVAL);
                }
                written => return Ok(written?),
            }
        }
    }

    /// Reads consecutive blocks.
    pub(crate) fn read_blocks(&self, start: PhysicalBlock, buffer: &mut [u8]) -> Result<()> {
        let last = start.0.saturating_add((buffer.len() / self.block_bytes()) as u64 - 1);
        for block in [start, PhysicalBlock(last)] {
            if self.geometry.segment_of(block).is_none() {
                let problem = DatProblem::Block { block };
                return Err(Corrupt::Dat { block: VirtualBlock(0), problem }.into());
            }
        }
        // Looked up before the device is read: what has gone from here by then is on the device.
        let moving = self.moving_among(start, last - start.0 + 1);
        self.device.read_at(self.geometry.offset_of(start), buffer)?;
        let block_bytes = self.block_bytes();
        for (index, bytes) in moving {
            buffer[index * block_bytes..][..block_bytes].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Blocks that are being moved among `count` places, by their index.
    fn moving_among(&self, start: PhysicalBlock, count: u64) -> Vec<(usize, BlockBytes)> {
        if !self.has_moving.load(Ordering::Acquire) {
            return Vec::new();
        }
        let moving = self.moving.read();
        (0..count)
            .filter_map(|index| {
                let bytes = moving.get(&PhysicalBlock(start.0 + index))?;
                Some((index as usize, Arc::clone(bytes)))
            })
            .collect()
    }

    /// Reads one block.
    pub(crate) fn read_block(&self, block: PhysicalBlock) -> Result<BlockBytes> {
        let mut bytes = vec![0; self.block_bytes()];
        self.read_blocks(block, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Pointers of the DAT's map are physical blocks.
impl BlockSource for Volume {
    fn read(&self, pointer: u64) -> Result<BlockBytes> {
        self.read_block(PhysicalBlock(pointer))
    }
}
