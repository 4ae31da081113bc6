//! An image grows while it is mounted.
//!
//! A planner from above says what to write ([`GrowthPlanner`]); the engine doesn't know how an image of some size
//! is laid out. The image grows by steps. In each it is frozen, the planner looks at it, and what it plans
//! becomes one transaction. Between the steps other threads go on.
//!
//! # Locking
//! One thread grows the image at a time. Operations that change the image wait for the end of a step.
//!
//! # Crash
//! The planner writes beyond the old end, and returns what changes inside it. What it wrote is durable before the
//! transaction begins, which makes the image larger as a whole. Copies of the superblock and the descriptors
//! follow in other transactions: a crash before these leaves older copies, which describe the smaller image.
//! Without a journal the superblock is written last.
//!
//! A file that was lengthened is cut again if the step fails before its transaction. After that its end may
//! belong to the image.

use super::options::{GrowthPlanner, PlannedGrowth};
use super::{Ext4, superblock};
use crate::error::{Error, Result};
use crate::volume::Volume;
use drystone_blockdev::{BlockDevice, DeviceError};
use drystone_cache::Buffer;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, thread};
use drystone_vfs::Errno;
use std::io::ErrorKind;
use std::time::Duration;

/// What a step zeroes of inode tables, at most: other threads wait meanwhile.
const STEP_TABLE_BYTES: u64 = 256 << 20;

/// How long other threads go on between two steps.
const STEP_PAUSE: Duration = Duration::from_millis(2);

/// Blocks of a transaction that only writes copies.
const COPIES_MAX: usize = 64;

/// How a step ended.
enum StepOutcome {
    Grown,
    /// The image can't use more.
    Full,
    /// It takes more blocks than a transaction of this journal has.
    TooLarge,
}

/// A refusal that says why.
fn refused(errno: Errno, reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::Growth(drystone_vfs::Error::with_detail(errno, reason))
}

impl Ext4 {
    /// Gives the image as much of this size as it can use, while other threads go on. The device gets the size
    /// first, if it hasn't and can have it.
    ///
    /// # Errors
    /// The image is read-only, frozen, damaged or larger; the device can't get that size; something can't be
    /// read or written. The image then has its old size, or a part of the growth.
    pub fn grow(&self, size_bytes: u64) -> Result<()> {
        let Some(planner) = self.growth_planner else { return Err(Errno::EOPNOTSUPP.into()) };
        let _growing = self.growing.lock();
        self.volume.check_writable()?;
        self.volume.check_running()?;
        let log_block_size = self.volume.layout().log_block_size();
        let before = self.volume.layout().blocks_count();
        if size_bytes >> log_block_size < before {
            let reason = "it can't become smaller while it is in use; unmount it first";
            return Err(refused(Errno::EINVAL, reason));
        }
        let superblock = self.volume.with_superblock(Clone::clone);
        let blocks = (planner.usable_blocks)(&superblock, size_bytes).map_err(Error::Growth)?;
        if blocks <= before {
            return Ok(());
        }
        let device = &self.volume.device;
        let (size_bytes, room) = (blocks << log_block_size, device.size_bytes());
        if size_bytes > room {
            device.set_size(size_bytes).map_err(|error| {
                refused(no_room(&error), format!("it can't have {size_bytes} bytes: {error}"))
            })?;
        }
        let grown = self.grow_to(blocks, planner);
        let end = self.volume.layout().blocks_count() << log_block_size;
        if room < size_bytes && end < size_bytes && self.volume.check_running().is_ok() {
            // A file is as long as before, or as the image. If it can't be cut, its end isn't used.
            if let Err(error) = device.set_size(end.max(room)) {
                tracing::warn!(%error, "a file that was lengthened in vain can't be cut");
            }
        }
        grown
    }

    fn grow_to(&self, blocks: u64, planner: GrowthPlanner) -> Result<()> {
        let table_bytes = {
            let layout = self.volume.layout();
            u64::from(layout.inode_table_blocks()) << layout.log_block_size()
        };
        // Bounded by the number of bytes, which fits.
        let mut groups = (STEP_TABLE_BYTES / table_bytes).max(1) as u32;
        let mut has_grown = false;
        while self.volume.layout().blocks_count() < blocks {
            let end = step_end(self.volume.layout(), groups).min(blocks);
            match self.grow_by_step(end, planner) {
                Ok(StepOutcome::Grown) => {
                    has_grown = true;
                    // Threads that wait would otherwise find the image frozen again before they have run.
                    thread::sleep(STEP_PAUSE);
                }
                // Somebody has frozen it between two steps.
                Err(error) if has_grown && error.errno() == Errno::EBUSY => {
                    self.volume.freeze.wait_thawed();
                }
                Err(error) => return Err(error),
                Ok(StepOutcome::Full) => break,
                Ok(StepOutcome::TooLarge) if groups > 1 => groups /= 2,
                Ok(StepOutcome::TooLarge) => {
                    let reason = "its journal is too small for it to grow in use; unmount it first";
                    return Err(refused(Errno::ENOSPC, reason));
                }
            }
        }
        Ok(())
    }

    fn grow_by_step(&self, blocks: u64, planner: GrowthPlanner) -> Result<StepOutcome> {
        let _held = self.hold_still()?;
        let closed = superblock::closed(self, false);
        let size_bytes = blocks << self.volume.layout().log_block_size();
        let planned = (planner.plan)(&self.volume.device, &closed, size_bytes);
        let planned = planned.map_err(Error::Growth)?;
        let Some(planned) = planned else { return Ok(StepOutcome::Full) };
        // One more for the superblock.
        if planned.blocks.len() >= self.volume.journal.max_credits_alone() as usize {
            return Ok(StepOutcome::TooLarge);
        }
        self.apply(planned)?;
        Ok(StepOutcome::Grown)
    }

    /// Makes a planned growth of the frozen image durable, and uses it from then on.
    fn apply(&self, planned: PlannedGrowth) -> Result<()> {
        let volume = &self.volume;
        let PlannedGrowth { superblock, blocks, copies } = planned;
        let superblock =
            volume.with_superblock(|mounted| superblock::marked_as(superblock, mounted));
        let layout = *superblock.layout();
        // In between, the image is not what the mount takes it for.
        let _stop = volume.stop_on_panic();
        // A map that is read again would take blocks of windows for free.
        self.allocator.blocks.discard_windows();
        volume.flush_writes(volume.device.mark())?;
        let blocks = BlockReplacement::read(volume, blocks)?;
        let changed = changed_groups(volume.layout(), &blocks);
        if !self.allocator.are_sound(&changed)? {
            let reason =
                "a group that it needs is damaged; unmount it and run 'drystone check --repair'";
            return Err(refused(Errno::EUCLEAN, reason));
        }

        // Nothing else starts one while the image is frozen.
        let mut handle = volume.journal.start_alone(blocks.len() as u32 + 1)?;
        let mut written = BlockReplacement::write(&mut handle, &blocks);
        if written.is_ok() && !volume.journal.is_logged() {
            handle.stop()?;
            volume.journal.commit_and_wait()?;
            handle = volume.journal.start(1)?;
        }
        if written.is_ok() {
            written = volume.update_superblock(&mut handle, |mounted| *mounted = superblock);
        }
        volume.settle(handle, written)?;
        volume.journal.commit_and_wait()?;
        // The device, too, shows the new image: other programs look there how large it is.
        volume.journal.checkpoint_all()?;

        if let Err(error) = self.allocator.grow(&layout, &changed) {
            volume.journal.abort("what the image has grown by could not be read");
            return Err(error);
        }
        volume.publish_layout(layout);
        write_copies(volume, copies)
    }
}

fn write_copies(volume: &Volume, copies: Vec<(PhysicalBlock, Vec<u8>)>) -> Result<()> {
    let copies = BlockReplacement::read(volume, copies)?;
    let most = COPIES_MAX.min(volume.journal.max_credits() as usize);
    for copies in copies.chunks(most) {
        let mut handle = volume.journal.start(copies.len() as u32)?;
        let written = BlockReplacement::write(&mut handle, copies);
        volume.settle(handle, written)?;
    }
    volume.journal.commit_and_wait()?;
    Ok(())
}

/// The new content of a block.
struct BlockReplacement {
    buffer: Arc<Buffer>,
    bytes: Vec<u8>,
}

impl BlockReplacement {
    /// Reads the blocks, so that nothing but the journal can fail once the first is changed.
    fn read(
        volume: &Volume,
        blocks: Vec<(PhysicalBlock, Vec<u8>)>,
    ) -> Result<Vec<BlockReplacement>> {
        let read = |(block, bytes)| Ok(BlockReplacement { buffer: volume.read(block)?, bytes });
        blocks.into_iter().map(read).collect()
    }

    fn write(handle: &mut Handle<'_>, blocks: &[BlockReplacement]) -> Result<()> {
        for BlockReplacement { buffer, bytes } in blocks {
            handle.write(buffer, None)?.copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// Where a step of so many groups ends. Flexible groups are made whole, so that their metadata lie together.
fn step_end(layout: &Layout, groups: u32) -> u64 {
    let mut count = layout.group_count().saturating_add(groups);
    let together = layout.groups_per_flex();
    if (2..=groups).contains(&together) {
        count = count / together * together;
    }
    layout.group_first_block(GroupNumber::new(count)).get()
}

/// The groups whose descriptors will change. The blocks still have their old content.
fn changed_groups(layout: &Layout, blocks: &[BlockReplacement]) -> Vec<GroupNumber> {
    let mut changed = Vec::new();
    for index in 0..layout.descriptor_blocks() {
        let Some(block) = layout.descriptor_block(index) else { break };
        let Ok(place) = blocks.binary_search_by_key(&block.get(), |it| it.buffer.number()) else {
            continue;
        };
        let BlockReplacement { buffer, bytes } = &blocks[place];
        let before = buffer.read();
        let size = layout.descriptor_size();
        let pairs = before.chunks_exact(size).zip(bytes.chunks_exact(size));
        let first = index * layout.descriptors_per_block();
        let groups = (first..layout.group_count()).map(GroupNumber::new).zip(pairs);
        changed.extend(groups.filter(|(_, (old, new))| old != new).map(|(group, _)| group));
    }
    changed
}

/// The number for a device that can't be as large.
fn no_room(error: &DeviceError) -> Errno {
    match error {
        DeviceError::FixedSize { .. } => Errno::ENOSPC,
        // What the system says to a file of that size.
        DeviceError::Open { source, .. } => match source.kind() {
            ErrorKind::FileTooLarge | ErrorKind::InvalidInput => Errno::EFBIG,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Errno::ENOSPC,
            _ => Errno::EIO,
        },
        error => Error::Device(error.clone()).errno(),
    }
}
