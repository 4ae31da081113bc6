//! What happens when an operation finds that the image is damaged.

use super::Engine;
use crate::credits;
use crate::error::{Error, Result};
use crate::found_damage::{STOPS_FOR_DAMAGE, turns_read_only};
use drystone_jbd2::Handle;
use drystone_vfs::Errno;

impl Engine {
    /// Turns a result into that of the interface. Damage is noted before the caller gets the error.
    pub(crate) fn done<T>(&self, result: Result<T>) -> drystone_vfs::Result<T> {
        Ok(result.inspect_err(|error| self.note_damage(error))?)
    }

    /// If the error is damage, notes in the superblock that the image was found damaged, so that a
    /// checker looks at it, and follows the image's error policy. Only the first damage of a mount is
    /// noted, and none while the image is frozen: the thread that finds it may be the one to thaw the
    /// image. Called without locks.
    pub(crate) fn note_damage(&self, error: &Error) {
        let (damage, journal) = (&self.volume.damage, &self.volume.journal);
        let is_damage = matches!(error, Error::Corrupt(_));
        if !is_damage && !damage.is_waiting() || damage.is_noted() && !journal.is_aborted() {
            return;
        }
        if self.volume.read_only.is_some() && is_damage {
            tracing::error!(%error, "the image is damaged");
            damage.note_nothing();
        } else if journal.is_aborted() {
            // The superblock can't be changed any more.
            self.note_in_journal(error);
        } else if is_damage {
            tracing::error!(%error, "the image is damaged");
            let handle = self.volume.start_unless_frozen(credits::SUPERBLOCK);
            // `None` while frozen: then the next damage that is found is noted.
            let noted = handle
                .and_then(|handle| handle.map_or(Ok(()), |handle| self.note_in_superblock(handle)));
            if let Err(error) = noted {
                self.note_in_journal(&error);
            }
        }
    }

    /// Notes damage that waits for a commit, if nothing else may be committed any more.
    pub(crate) fn note_waiting_damage(&self) {
        if !self.volume.damage.is_waiting() {
            return;
        }
        let handle = self.volume.start(credits::SUPERBLOCK);
        if let Err(error) = handle.and_then(|handle| self.note_in_superblock(handle)) {
            self.note_in_journal(&error);
        }
    }

    fn note_in_superblock(&self, mut handle: Handle<'_>) -> Result<()> {
        let noted = self.volume.note_damage(&mut handle);
        handle.stop()?;
        if noted?.is_some_and(turns_read_only) {
            self.volume.journal.commit_and_wait()?;
            self.volume.journal.abort(STOPS_FOR_DAMAGE);
        }
        Ok(())
    }

    /// Notes once in the journal's superblock that damage has stopped the journal, or has come together with
    /// that.
    fn note_in_journal(&self, error: &Error) {
        if !self.volume.damage.begin_note_in_journal() {
            return;
        }
        tracing::error!(%error, "the image is damaged, and the journal has stopped");
        // An image that another machine has mounted is that machine's.
        let is_held = self.mmp.as_ref().map_or(Ok(()), |mmp| mmp.check_held());
        let number = -Errno::EUCLEAN.code();
        let noted = is_held.and_then(|()| Ok(self.volume.journal.record_error_number(number)?));
        if let Err(error) = noted {
            tracing::error!(%error, "the damage could not be noted: the image needs a check");
        }
    }
}
