//! The metadata of an inode.

use crate::{Error, Result};
use drystone_vfs::{Errno, FileType, InodeAttributes, SetAttributes, SetTime, Timestamp};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The metadata of an inode: [`std::fs::Metadata`], with the names of
/// [`MetadataExt`](std::os::unix::fs::MetadataExt) for what only Unix has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    attributes: InodeAttributes,
}

impl Metadata {
    pub(super) fn new(attributes: InodeAttributes) -> Metadata {
        Metadata { attributes }
    }

    /// Everything, in the words of the inode level: also flags, project and generation.
    pub fn attributes(&self) -> &InodeAttributes {
        &self.attributes
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        self.attributes.file_type
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// True for a symbolic link, which only
    /// [`symlink_metadata`](super::Fs::symlink_metadata) returns.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Bytes of the content.
    #[expect(clippy::len_without_is_empty, reason = "as in the standard library")]
    pub fn len(&self) -> u64 {
        self.attributes.size
    }

    /// The permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    /// When the content changed last.
    ///
    /// # Errors
    ///
    /// The time is none that the system can represent.
    pub fn modified(&self) -> Result<SystemTime> {
        system_time(self.attributes.modified)
    }

    /// When it was last read, as far as that is recorded.
    ///
    /// # Errors
    ///
    /// The time is none that the system can represent.
    pub fn accessed(&self) -> Result<SystemTime> {
        system_time(self.attributes.accessed)
    }

    /// When it was made.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](std::io::ErrorKind::Unsupported) if that isn't recorded.
    pub fn created(&self) -> Result<SystemTime> {
        system_time(self.attributes.created.ok_or(Errno::EOPNOTSUPP)?)
    }

    /// Type and permissions: `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.attributes.mode())
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.attributes.user
    }

    /// The owning group.
    pub fn gid(&self) -> u32 {
        self.attributes.group
    }

    /// The number of the inode.
    pub fn ino(&self) -> u64 {
        self.attributes.inode.0
    }

    /// How many names it has.
    pub fn nlink(&self) -> u64 {
        u64::from(self.attributes.links)
    }

    /// Space used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.attributes.sectors
    }
}

/// Times to set: [`std::fs::FileTimes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// Sets none yet.
    #[must_use]
    pub const fn new() -> FileTimes {
        FileTimes { accessed: None, modified: None }
    }

    /// Sets when it was last read.
    #[must_use]
    pub const fn set_accessed(self, time: SystemTime) -> FileTimes {
        FileTimes { accessed: Some(time), ..self }
    }

    /// Sets when the content changed last.
    #[must_use]
    pub const fn set_modified(self, time: SystemTime) -> FileTimes {
        FileTimes { modified: Some(time), ..self }
    }

    pub(super) fn changes(self) -> SetAttributes {
        let at = |time: SystemTime| SetTime::At(timestamp(time));
        let (accessed, modified) = (self.accessed.map(at), self.modified.map(at));
        SetAttributes { accessed, modified, ..SetAttributes::default() }
    }
}

fn system_time(time: Timestamp) -> Result<SystemTime> {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds {
        0.. => UNIX_EPOCH.checked_add(seconds),
        _ => UNIX_EPOCH.checked_sub(seconds),
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .ok_or_else(|| Error::from(Errno::EOVERFLOW))
}

fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: seconds(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { seconds: -seconds(before), nanoseconds: 0 },
                nanos => {
                    Timestamp { seconds: -seconds(before) - 1, nanoseconds: 1_000_000_000 - nanos }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive() {
        for (seconds, nanoseconds) in [(0, 0), (-1, 0), (-1, 1), (-2, 999_999_999), (7, 5)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(timestamp(system_time(time).unwrap()), time);
        }
    }
}
