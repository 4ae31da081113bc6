//! Locks of exports against other programs on this machine: the protocol has none.
//!
//! An open export holds the lock of a file that is named after it, as large as it and empty. A partition locks the
//! same bytes of this file that it would lock in a disk image. The file stays: two programs could lock different ones
//! if it was removed. For ordinary users the system removes it when they log out (pam_systemd(8)).

use super::NbdDevice;
use drystone_blockdev::{DeviceError, DeviceResult, FileDevice, OpenMode};
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The folder of the files, where only their owner can make any.
const LOCK_FOLDER: &str = "drystone-locks";

impl NbdDevice {
    /// Locks bytes of the export, as it is opened. Where no lock can be had, a warning says so.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InUse`] if another program has opened some of them.
    pub(crate) fn lock(&self, part: Range<u64>) -> DeviceResult {
        let opened = self.lock_file().map_err(|error| error.to_string()).and_then(|path| {
            match FileDevice::open_part(path, self.mode, part) {
                Err(DeviceError::InUse { .. }) => Ok(None),
                opened => opened.map(Some).map_err(|error| error.to_string()),
            }
        });
        match opened {
            Ok(Some(lock)) => *self.lock.lock() = Some(lock),
            Ok(None) => return Err(DeviceError::InUse { path: PathBuf::from(&self.name) }),
            Err(problem) if self.mode == OpenMode::ReadWrite => tracing::warn!(
                "{}: nothing keeps other programs on this machine from writing it: {problem}",
                self.name
            ),
            Err(_) => {}
        }
        Ok(())
    }

    /// The file that is locked, which is made if it isn't there.
    fn lock_file(&self) -> io::Result<PathBuf> {
        let parent = match std::env::var_os("XDG_RUNTIME_DIR") {
            _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
            Some(folder) if !folder.is_empty() => PathBuf::from(folder),
            _ => return Err(io::Error::other("XDG_RUNTIME_DIR names no folder for locks")),
        };
        let folder = parent.join(LOCK_FOLDER);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let path = folder.join(self.address.export_name().replace('/', "%2F"));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        // Another program may have it open: it never shrinks.
        if file.metadata()?.len() < self.export.size_bytes {
            file.set_len(self.export.size_bytes)?;
        }
        Ok(path)
    }
}
