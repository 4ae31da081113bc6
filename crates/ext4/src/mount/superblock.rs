//! The superblock outside of transactions: read and checked, marked as mounted, written at the end.

use crate::error::{Error, Result};
use crate::mount::MountOptions;
use crate::operations::Engine;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::{Compat, Incompat, ReadOnlyCompat};
use drystone_ext4_format::superblock::{
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_sync::clock;

/// Marks the image as mounted, before anything else is written.
pub(super) fn begin(
    device: &dyn BlockDevice,
    superblock: &mut Superblock,
    options: &MountOptions,
    has_journal: bool,
) -> Result<()> {
    if has_journal {
        superblock.set_needs_recovery(true);
    } else {
        superblock.set_state(superblock.state() - StateFlags::CLEAN);
    }
    if superblock.features().compat.contains(Compat::ORPHAN_FILE) {
        superblock.set_orphan_present(true);
    }
    superblock.set_mount_count(superblock.mount_count().wrapping_add(1));
    superblock.set_mount_time_seconds(now_seconds());
    if !options.last_mounted.is_empty() {
        superblock.set_last_mounted(&options.last_mounted);
    }
    write(device, superblock)
}

fn now_seconds() -> u64 {
    u64::try_from(clock::wall().0).unwrap_or(0)
}

/// Writes the superblock, with the current time.
pub(super) fn write(device: &dyn BlockDevice, superblock: &mut Superblock) -> Result<()> {
    superblock.set_write_time_seconds(now_seconds());
    device.write_durable_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
    Ok(())
}

/// Reads and checks the superblock.
pub(super) fn read(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Err(Error::Mount(format!(
            "not an ext2, ext3 or ext4 image: {} bytes are too few for a superblock",
            device.size_bytes()
        )));
    }
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let superblock = Superblock::check(&bytes)?;
    let layout = superblock.layout();
    let size = layout.blocks_count() * layout.block_size() as u64;
    if size > device.size_bytes() {
        return Err(Error::Mount(format!(
            "the image is cut off: the file system has {size} bytes, the device {}",
            device.size_bytes()
        )));
    }
    Ok(superblock)
}

/// The superblock of the image as it will be when it is closed.
pub(super) fn closed(fs: &Engine, has_orphans: bool) -> Superblock {
    let mut superblock = fs.volume.with_superblock(Clone::clone);
    fs.allocator.groups.store_counts(&mut superblock);
    superblock.set_needs_recovery(false);
    superblock.set_state(superblock.state() | StateFlags::CLEAN);
    superblock.set_orphan_present(has_orphans);
    superblock
}

/// Marks a superblock as that of a mounted image, as another one is.
pub(super) fn marked_as(mut superblock: Superblock, mounted: &Superblock) -> Superblock {
    let features = mounted.features();
    superblock.set_needs_recovery(features.incompat.contains(Incompat::RECOVER));
    superblock.set_state(mounted.state());
    let has_orphans = features.read_only_compat.contains(ReadOnlyCompat::ORPHAN_PRESENT);
    superblock.set_orphan_present(has_orphans);
    superblock
}

/// Says in the superblock that the image is complete without its journal.
pub(super) fn mark_clean(fs: &Engine) -> Result<()> {
    write(&*fs.volume.device, &mut closed(fs, fs.orphans.is_any()))
}
