//! What happens when an operation finds that the image is damaged.

use super::Engine;
use crate::credits;
use crate::error::{Error, Result};
use drystone_ext4_format::superblock::{ErrorPolicy, ErrorRecord, StateFlags};
use drystone_sync::atomic::Ordering;
use drystone_sync::clock;
use drystone_vfs::Errno;

impl Engine {
    /// Turns a result into that of the interface. Damage is noted before the caller gets the error.
    pub(crate) fn done<T>(&self, result: Result<T>) -> drystone_vfs::Result<T> {
        Ok(result.inspect_err(|error| self.note_damage(error))?)
    }

    /// If the error is damage, notes in the superblock that the image was found damaged, so that a
    /// checker looks at it, and follows the image's error policy. Only the first damage of a mount is
    /// noted, and none while the image is frozen: the thread that finds it may be the one to thaw the
    /// image.
    pub(crate) fn note_damage(&self, error: &Error) {
        if !matches!(error, Error::Corrupt(_)) || self.damaged.load(Ordering::Relaxed) {
            return;
        }
        tracing::error!(%error, "the image is damaged");
        if self.volume.read_only.is_some() {
            self.damaged.store(true, Ordering::Relaxed);
            return;
        }
        let noted = self.record_damage();
        match noted {
            // `None` while frozen: then the next damage that is found is noted.
            Ok(None) | Ok(Some(ErrorPolicy::Continue)) => {}
            Ok(Some(ErrorPolicy::ReadOnly | ErrorPolicy::Panic)) => {
                if let Err(error) = self.volume.journal.commit_and_wait() {
                    tracing::error!(%error, "the damage could not be noted in the superblock");
                }
                self.volume.journal.abort("the image is damaged and asks to be read-only then");
            }
            Err(error) => {
                // The journal has stopped: there is nothing more to be done.
                self.damaged.store(true, Ordering::Relaxed);
                tracing::error!(%error, "the damage could not be noted in the superblock");
            }
        }
    }

    /// Records damage in the superblock, unless a thread has. Returns the policy to follow; `None` if
    /// damage is recorded already, or the image is frozen.
    fn record_damage(&self) -> Result<Option<ErrorPolicy>> {
        let record = ErrorRecord {
            time_seconds: u64::try_from(clock::wall().0).unwrap_or(0),
            inode: 0,
            block: 0,
            function: "drystone".to_owned(),
            line: 0,
            code: Errno::EUCLEAN.code() as u8,
        };
        let Some(mut handle) = self.volume.start_unless_frozen(credits::SUPERBLOCK)? else {
            return Ok(None);
        };
        if self.damaged.swap(true, Ordering::Relaxed) {
            handle.stop()?;
            return Ok(None);
        }
        let policy = self.volume.update_superblock(&mut handle, |superblock| {
            superblock.record_error(&record);
            superblock.set_state(superblock.state() | StateFlags::ERRORS);
            self.error_policy.unwrap_or_else(|| superblock.error_policy())
        });
        handle.stop()?;
        policy.map(Some)
    }
}
