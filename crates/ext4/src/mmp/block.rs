//! The block: claiming it, renewing the claim, and waiting for others.
//!
//! # Reference
//! "Multiple Mount Protection" in the kernel's ext4 documentation.

use crate::error::{Error, Result};
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::mmp::{
    CHECK_INTERVAL_SECONDS_MAX, CHECK_INTERVAL_SECONDS_MIN, Mmp, MmpState, SEQUENCE_MAX,
};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{ChecksumSeed, PhysicalBlock};
use drystone_sync::{Arc, clock, thread};
use std::time::Duration;

/// The block and how to write it.
#[derive(Debug)]
pub(super) struct MmpBlock<D = Arc<dyn BlockDevice>> {
    pub device: D,
    pub block: PhysicalBlock,
    pub block_size: usize,
    pub seed: Option<ChecksumSeed>,
}

/// The block of an image, and the interval in which it is written. Nothing if the image has no such protection, or
/// its superblock is damaged.
pub(super) fn find(device: &dyn BlockDevice) -> Result<Option<(MmpBlock<&dyn BlockDevice>, u16)>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Ok(None);
    }
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let Ok(superblock) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
    let layout = superblock.layout();
    let has_mmp = superblock.features().incompat.contains(Incompat::MMP);
    let block_size = layout.block_size();
    let blocks = device.size_bytes() / block_size as u64;
    let is_on_device = |&block: &PhysicalBlock| block.get() < blocks;
    let block = superblock.mmp_block().filter(|_| has_mmp).filter(is_on_device);
    let seed = layout.checksum_seed();
    let place = block.map(|block| MmpBlock { device, block, block_size, seed });
    Ok(place.map(|place| (place, interval_seconds(&superblock))))
}

/// How to wait for other machines. None can reach a device of this process alone.
pub(super) fn pause_on(device: &dyn BlockDevice) -> impl FnMut(Duration) + use<> {
    let is_private = device.is_private();
    move |wait| {
        if !is_private {
            thread::sleep(wait);
        }
    }
}

pub(super) fn interval_seconds(superblock: &Superblock) -> u16 {
    let seconds = superblock.mmp_interval_seconds();
    seconds.clamp(CHECK_INTERVAL_SECONDS_MIN, CHECK_INTERVAL_SECONDS_MAX)
}

impl<D: BlockDevice> MmpBlock<D> {
    /// Claims the block; `pause` waits. Returns the number that was written.
    pub fn claim(&self, interval_seconds: u16, mut pause: impl FnMut(Duration)) -> Result<u32> {
        let wait = self.wait_for_others(interval_seconds, &mut pause)?;
        let (seconds, nanoseconds) = clock::wall();
        let sequence = (nanoseconds ^ seconds as u32) % SEQUENCE_MAX + 1;
        self.write(MmpState::Mounted(sequence), interval_seconds)?;
        // Two mounts may have found the block unclaimed: the one that wrote last has it.
        pause(wait);
        if self.read()?.state != MmpState::Mounted(sequence) {
            return Err(Error::Mount("the image was mounted elsewhere meanwhile".into()));
        }
        Ok(sequence)
    }

    /// Checks that nothing uses the image; `pause` waits if it was left claimed. Returns for how long another
    /// holder may not show itself.
    pub fn wait_for_others(
        &self,
        interval_seconds: u16,
        mut pause: impl FnMut(Duration),
    ) -> Result<Duration> {
        let found = self.read()?;
        let interval_max = found.check_interval_seconds.min(CHECK_INTERVAL_SECONDS_MAX);
        let expected_seconds = u64::from(interval_seconds.max(interval_max));
        let wait = Duration::from_secs((2 * expected_seconds + 1).min(expected_seconds + 60));
        match found.state {
            MmpState::Clean => {}
            MmpState::Checking => {
                return Err(Error::Mount(
                    "the image is being checked (multi-mount protection); if no checker runs, \
                     clear this with tune2fs -f -E clear_mmp"
                        .into(),
                ));
            }
            state @ MmpState::Mounted(_) => {
                pause(wait);
                if self.read()?.state != state {
                    return Err(Error::Mount(format!(
                        "the image is in use on {} (multi-mount protection)",
                        String::from_utf8_lossy(&found.node_name)
                    )));
                }
            }
        }
        Ok(wait)
    }

    /// Writes the next number if the block still has the last. False if another mount has written there.
    pub fn renew(&self, interval_seconds: u16, sequence: &mut u32) -> Result<bool> {
        let next = *sequence % SEQUENCE_MAX + 1;
        let found = self.read()?.state;
        // A write that failed may have got through.
        if ![*sequence, next].map(MmpState::Mounted).contains(&found) {
            return Ok(false);
        }
        self.write(MmpState::Mounted(next), interval_seconds)?;
        *sequence = next;
        Ok(true)
    }

    pub fn read(&self) -> Result<Mmp> {
        let mut bytes = vec![0; self.block_size];
        // What another machine writes changes no cache of this one.
        self.device.refresh(self.offset(), self.block_size as u64);
        self.device.read_at(self.offset(), &mut bytes)?;
        Ok(Mmp::check(&bytes, self.seed, self.block)?)
    }

    pub fn write(&self, state: MmpState, interval_seconds: u16) -> Result<()> {
        let mut bytes = vec![0; self.block_size];
        let mmp = Mmp {
            state,
            time_seconds: u64::try_from(clock::wall().0).unwrap_or(0),
            node_name: node_name(),
            device_name: b"drystone".to_vec(),
            check_interval_seconds: interval_seconds.max(CHECK_INTERVAL_SECONDS_MIN),
        };
        mmp.encode(&mut bytes, self.seed);
        self.device.write_durable_at(self.offset(), &bytes)?;
        Ok(())
    }

    pub fn offset(&self) -> u64 {
        self.block.get() * self.block_size as u64
    }
}

/// This host's name, for the error that another host shows.
fn node_name() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/hostname")
        .map(|name| name.trim_ascii_end().to_vec())
        .unwrap_or_else(|_| b"localhost".to_vec())
}
