//! What happens when an operation finds that the image is damaged.

use super::Engine;
use crate::credits;
use crate::error::{Error, Result};
use drystone_ext4_format::superblock::{ErrorPolicy, ErrorRecord, StateFlags};
use drystone_sync::atomic::Ordering;
use drystone_sync::clock;
use drystone_vfs::Errno;

impl Engine {
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
            time_seconds: u64::try_from(clock::wall().0).unwrap_or(0),
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
