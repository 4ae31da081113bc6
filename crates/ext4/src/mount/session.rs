//! The superblock's record of being mounted, and the end of a mount.

use crate::credits;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file;
use crate::mount::MountOptions;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::superblock::{
    ErrorPolicy, ErrorRecord, SUPERBLOCK_OFFSET_BYTES, StateFlags, Superblock,
};
use drystone_sync::atomic::Ordering;
use drystone_sync::clock;
use drystone_vfs::Errno;

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

pub(super) fn write(device: &dyn BlockDevice, superblock: &mut Superblock) -> Result<()> {
    superblock.set_write_time_seconds(now_seconds());
    device.write_durable_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
    Ok(())
}

impl Engine {
    /// Ends the mount: everything is made durable and written home, and the superblock says that
    /// the image is complete. No call may be under way; references of callers end here.
    /// Closing twice does nothing.
    pub(super) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if self.volume.read_only.is_some() {
            self.volume.journal.close()?;
            return Ok(());
        }
        let finished = self.finish();
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.stop(finished.is_ok())?;
        }
        finished
    }

    fn finish(&self) -> Result<()> {
        for inode in self.inodes.take_unlinked() {
            self.delete_if_unused(&inode)?;
        }
        self.inodes.forget_names();
        self.allocator.discard_windows();
        let written = file::write_back_all(self);
        if written.is_err() {
            // The image is sound without it, and the caller is told.
            file::discard_all(self);
        }
        self.volume.journal.close()?;
        self.mark_clean()?;
        written
    }

    /// Says in the superblock that the image is complete without its journal.
    pub(super) fn mark_clean(&self) -> Result<()> {
        let has_orphans = self.orphans.is_any();
        let mut superblock = self.volume.with_superblock(Clone::clone);
        self.allocator.store_counts(&mut superblock);
        superblock.set_needs_recovery(false);
        superblock.set_state(superblock.state() | StateFlags::CLEAN);
        superblock.set_orphan_present(has_orphans);
        write(&*self.volume.device, &mut superblock)
    }

    /// What a caller gets: damage that is found is noted before it is told.
    pub(crate) fn done<T>(&self, result: Result<T>) -> drystone_vfs::Result<T> {
        if let Err(error @ Error::Corrupt(_)) = &result {
            self.note_damage(error);
        }
        Ok(result?)
    }

    /// Notes in the superblock that the image was found damaged, so that a checker looks at it, and
    /// does what the image asks for in that case. Once a mount: the first damage is what counts.
    fn note_damage(&self, error: &Error) {
        if self.damaged.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::error!(%error, "the image is damaged");
        if self.volume.read_only.is_some() {
            return;
        }
        let record = ErrorRecord {
            time_seconds: now_seconds(),
            inode: 0,
            block: 0,
            function: "drystone".to_owned(),
            line: 0,
            code: Errno::EUCLEAN.code() as u8,
        };
        let noted = self.volume.start(credits::SUPERBLOCK).and_then(|mut handle| {
            let policy = self.volume.update_superblock(&mut handle, |superblock| {
                superblock.record_error(&record);
                superblock.set_state(superblock.state() | StateFlags::ERRORS);
                self.error_policy.unwrap_or_else(|| superblock.error_policy())
            });
            handle.stop()?;
            policy
        });
        match noted {
            Ok(ErrorPolicy::Continue) => {}
            Ok(ErrorPolicy::ReadOnly | ErrorPolicy::Panic) => {
                if let Err(error) = self.volume.journal.commit_and_wait() {
                    tracing::error!(%error, "the damage could not be noted in the superblock");
                }
                self.volume.journal.abort("the image is damaged and asks to be read-only then");
            }
            Err(error) => {
                tracing::error!(%error, "the damage could not be noted in the superblock");
            }
        }
    }
}
