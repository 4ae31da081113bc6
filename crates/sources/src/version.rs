//! The identity of a file's state, to detect replaced and changed files.

use rustix::fs::Stat;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The state of a file at some time. No program can set the time of the last status change, so it shows
/// changes that the other times don't; a new name or mode changes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl From<&Stat> for FileVersion {
    fn from(stat: &Stat) -> FileVersion {
        FileVersion {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

impl From<&Metadata> for FileVersion {
    fn from(metadata: &Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A time as one number. It is only compared, so it may overflow.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}
