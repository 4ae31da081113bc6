//! An undo log in a file: by default beside the image while it is changed.
//!
//! # Crash
//!
//! The log of an interrupted change stays. The next change of the image finds it: see
//! [`UndoFile::settle`].

use super::log::{LogReader, LogWriter};
use super::roll_back::{ChangeState, Trust, begin_roll_back, change_state, roll_back_as_change};
use super::{UndoDevice, UndoError};
use crate::{BlockDevice, DeviceError, DeviceResult, Existing, FileDevice, OpenMode};
use drystone_sync::Arc;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A log may take this much and twice the image, up to `LOG_BYTES_MAX`. The file is sparse.
const LOG_BYTES_MIN: u64 = 64 << 20;
const LOG_BYTES_MAX: u64 = 8 << 40;

/// An image that an undo log in a file can restore.
pub trait UndoTarget {
    /// What holds its bytes.
    fn device(&self) -> &dyn BlockDevice;

    /// Gives the image its size from before the change, if its size can change.
    ///
    /// # Errors
    ///
    /// The system refuses.
    fn restore_size(&self, size_bytes: u64) -> DeviceResult;
}

impl UndoTarget for FileDevice {
    fn device(&self) -> &dyn BlockDevice {
        self
    }

    fn restore_size(&self, size_bytes: u64) -> DeviceResult {
        if self.is_block_device() || self.size_bytes() == size_bytes {
            return Ok(());
        }
        self.resize(size_bytes)?;
        self.flush()
    }
}

/// Where the undo log of an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoFile {
    path: PathBuf,
    is_kept: bool,
    /// The image that it is beside, if it was looked for there.
    image: Option<PathBuf>,
}

impl UndoFile {
    /// `IMAGE.undo` beside the image; it is removed when the change is complete. The folder is made if it is
    /// missing.
    #[must_use]
    pub fn beside(image: &Path) -> Self {
        let mut path = image.as_os_str().to_owned();
        path.push(".undo");
        Self { path: path.into(), is_kept: false, image: Some(image.to_owned()) }
    }

    /// The same for the part of a disk image that begins at a byte.
    #[must_use]
    pub fn beside_part(image: &Path, start: u64) -> Self {
        let mut part = image.as_os_str().to_owned();
        part.push(format!("@{start}"));
        Self { image: Some(image.to_owned()), ..Self::beside(Path::new(&part)) }
    }

    /// This file, which is kept when the change is complete, so that the change can be undone
    /// later.
    #[must_use]
    pub fn kept(path: PathBuf) -> Self {
        Self { path, is_kept: true, image: None }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file holds an interrupted change. False if there is no file.
    ///
    /// # Errors
    ///
    /// The file can't be read, or a change is going on.
    pub fn is_incomplete(&self) -> DeviceResult<bool> {
        if !self.is_there()? {
            return Ok(false);
        }
        let log = self.open(OpenMode::ReadOnly)?;
        Ok(change_state(log)? == Some(ChangeState::Incomplete))
    }

    /// Undoes an interrupted change, if the file holds one, and removes a file that is no longer needed.
    /// True if the image was changed.
    ///
    /// # Errors
    ///
    /// Those of [`roll_back`](super::roll_back); a file that is to be kept, or isn't a log, is
    /// [`DeviceError::Open`].
    pub fn settle(&self, image: &impl UndoTarget) -> Result<bool, UndoError> {
        if !self.is_there()? {
            return Ok(false);
        }
        let log = self.open(OpenMode::ReadOnly)?;
        match change_state(&log)? {
            Some(ChangeState::Incomplete) => {
                drop(log);
                self.take_back(image)?;
                return Ok(true);
            }
            // Its change ended before it could be moved to where it was to be kept.
            Some(ChangeState::Finished { is_kept: true }) => {
                let text = "a complete change left its undo log here: move it to where it is to be kept, \
                            or remove it";
                let error = std::io::Error::new(ErrorKind::AlreadyExists, text);
                return Err(self.failed(error).into());
            }
            Some(ChangeState::NotBegun | ChangeState::Finished { is_kept: false }) => {}
            // A kill while the log was being made leaves zeros. Any other content isn't ours to
            // remove.
            None if holds_zeros(&log)? => {}
            None => return Err(self.exists().into()),
        }
        self.remove()?;
        Ok(false)
    }

    /// Undoes the change, complete or not, restores the image's size and removes the file.
    ///
    /// # Errors
    ///
    /// Those of [`roll_back`](super::roll_back).
    pub fn take_back(&self, image: &impl UndoTarget) -> Result<(), UndoError> {
        self.restore_as_found(image)?;
        Ok(self.remove()?)
    }

    /// Ends a change that has failed: undoes it, as [`take_back`](Self::take_back) does. `image` is what
    /// `device` is on. Returns why the log could not be removed then; the next change removes it.
    ///
    /// # Errors
    ///
    /// A write failed. The log stays and the image has to be rolled back.
    pub fn give_up<D: BlockDevice>(
        &self,
        device: UndoDevice<D, FileDevice>,
        image: &impl UndoTarget,
    ) -> Result<Option<DeviceError>, UndoError> {
        self.restore(image, device.into_parts().1, Trust::Image)?;
        Ok(self.remove().err())
    }

    /// As [`give_up`](Self::give_up), after [`finish`](Self::finish) has failed.
    ///
    /// # Errors
    ///
    /// As for [`take_back`](Self::take_back). The log stays and the image has to be rolled back.
    pub fn give_up_finish(
        &self,
        image: &impl UndoTarget,
    ) -> Result<Option<DeviceError>, UndoError> {
        self.restore_as_found(image)?;
        Ok(self.remove().err())
    }

    fn restore_as_found(&self, image: &impl UndoTarget) -> Result<(), UndoError> {
        let log = self.open(OpenMode::ReadWrite)?;
        self.restore(image, log, Trust::Nothing)
    }

    fn restore(
        &self,
        image: &impl UndoTarget,
        log: FileDevice,
        trust: Trust,
    ) -> Result<(), UndoError> {
        // A kept log was cut at its end; the rollback appends to it.
        log.resize(log.size_bytes() + LOG_BYTES_MIN)?;
        let (size_bytes, mut log) = begin_roll_back(image.device(), log, trust)?;
        image.restore_size(size_bytes)?;
        Ok(log.append_rolled_back()?)
    }

    /// Checks that the file holds a complete change. A copy that was cut short doesn't.
    ///
    /// # Errors
    ///
    /// [`UndoError::NotComplete`] if it doesn't.
    pub fn check_complete(&self) -> Result<(), UndoError> {
        match change_state(self.open(OpenMode::ReadOnly)?)? {
            Some(ChangeState::Finished { .. }) => Ok(()),
            Some(ChangeState::NotBegun | ChangeState::Incomplete) => Err(UndoError::NotComplete),
            None => Err(UndoError::NoLog),
        }
    }

    /// Undoes the change, complete or not, as another change: `image` has an undo log of its own. The file
    /// stays as it is. Returns the size that the image had.
    ///
    /// # Errors
    ///
    /// Those of [`roll_back`](super::roll_back).
    pub fn take_back_as_change(&self, image: &impl BlockDevice) -> Result<u64, UndoError> {
        roll_back_as_change(image, self.open(OpenMode::ReadOnly)?)
    }

    /// Starts a log for changes of `image`, of which the first `protected_bytes` can be restored.
    ///
    /// # Errors
    ///
    /// The file exists or can't be made.
    pub fn begin<D: BlockDevice>(
        &self,
        image: D,
        protected_bytes: u64,
    ) -> DeviceResult<UndoDevice<D, FileDevice>> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            // Logs of block devices and exports have one of their own.
            std::fs::create_dir_all(folder).map_err(|error| self.failed(error))?;
        }
        let size = (protected_bytes.saturating_mul(2) + LOG_BYTES_MIN).min(LOG_BYTES_MAX);
        let log = FileDevice::create(&self.path, size, Existing::Refuse)?;
        // It gets bytes of an image that not everybody may read.
        let permissions = std::fs::Permissions::from_mode(0o600);
        let protected = std::fs::set_permissions(&self.path, permissions);
        let begun = protected
            .map_err(|error| self.failed(error))
            .and_then(|()| LogWriter::begin(log, protected_bytes, self.is_kept))
            .map(|log| UndoDevice::with_log(image, log, protected_bytes));
        if begun.is_err() {
            // Nothing has changed yet, and the host may be full.
            self.remove()?;
        }
        begun
    }

    /// Ends a change: everything is durable and the log is gone, unless it is kept. Returns why a log that is no
    /// longer needed could not be removed, which the next change removes, or why one that is kept could not be cut at
    /// its end.
    ///
    /// # Errors
    ///
    /// A write failed. The log stays and the image has to be rolled back: see
    /// [`give_up_finish`](Self::give_up_finish).
    pub fn finish<D: BlockDevice>(
        &self,
        device: UndoDevice<D, FileDevice>,
    ) -> DeviceResult<Option<DeviceError>> {
        let (_, log) = device.finish_log()?;
        if self.is_kept {
            // What follows is a hole, and the log is whole with it.
            let end = log.end();
            return Ok(log.into_log().resize(end).err());
        }
        drop(log);
        Ok(self.remove().err())
    }

    /// Removes the file if it holds a change of what was here before: the image was replaced since.
    ///
    /// # Errors
    ///
    /// The file can't be read or removed.
    pub fn forget(&self) -> DeviceResult {
        if !self.is_there()? {
            return Ok(());
        }
        let log = self.open(OpenMode::ReadOnly)?;
        match LogReader::open(&log)? {
            Some(_) => self.remove(),
            // Not ours.
            None => Ok(()),
        }
    }

    /// Removes the file.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] with what the system said.
    pub fn remove(&self) -> DeviceResult {
        std::fs::remove_file(&self.path).map_err(|error| self.failed(error))
    }

    /// Opens the file. Whoever may make files beside an image could write anything into it by a log that is obeyed
    /// when it is found there: if it is a log, it must be ours, root's, or the image's owner's.
    fn open(&self, mode: OpenMode) -> DeviceResult<FileDevice> {
        let Some(image) = &self.image else { return FileDevice::open(&self.path, mode) };
        let failed = |error| self.failed(error);
        let flags = OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(mode == OpenMode::ReadWrite).custom_flags(flags.bits() as i32);
        let file = options.open(&self.path).map_err(failed)?;
        let owner = file.metadata().map_err(failed)?.uid();
        let log = FileDevice::from_file(file, &self.path, mode)?;
        let is_ours = [0, geteuid().as_raw()].contains(&owner)
            || image.metadata().is_ok_and(|image| image.uid() == owner);
        if !is_ours && LogReader::open(&log)?.is_some() {
            let text = format!(
                "an undo log of user {owner}, to whom the image doesn't belong, isn't obeyed: remove it, or give \
                 it to the image's owner if it belongs to a change that was interrupted"
            );
            return Err(failed(std::io::Error::new(ErrorKind::PermissionDenied, text)));
        }
        Ok(log)
    }

    /// An error is no sign that there is no file.
    fn is_there(&self) -> DeviceResult<bool> {
        match self.path.try_exists() {
            // The address of an export may be longer than a name of a file.
            Err(error) if error.kind() == ErrorKind::InvalidFilename => Ok(false),
            there => there.map_err(|error| self.failed(error)),
        }
    }

    fn exists(&self) -> DeviceError {
        self.failed(ErrorKind::AlreadyExists.into())
    }

    fn failed(&self, error: std::io::Error) -> DeviceError {
        DeviceError::Open { path: self.path.clone(), source: Arc::new(error) }
    }
}

fn holds_zeros(log: &FileDevice) -> DeviceResult<bool> {
    let mut bytes = vec![0; 1 << 20];
    let mut from = 0;
    while let Some(start) = log.next_data(from)? {
        let length = (log.size_bytes() - start).min(bytes.len() as u64) as usize;
        log.read_at(start, &mut bytes[..length])?;
        if bytes[..length].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        from = start + length as u64;
    }
    Ok(true)
}
