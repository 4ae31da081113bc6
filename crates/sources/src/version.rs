//! What tells a file from another one, or from itself after a change.

use rustix::fs::Stat;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file as it was once. The time of its last change, which nobody can set, tells of what the other
/// times don't; it also changes when the file gets another name or mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Version {
        Version {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

impl From<&Metadata> for Version {
    fn from(metadata: &Metadata) -> Version {
        Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// One number of a time: it is only compared, so that it may overflow.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}
