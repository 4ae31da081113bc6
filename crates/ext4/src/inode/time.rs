//! Conversion of times and file types between the format and the interface.

use drystone_ext4_format::inode::{InodeTimestamp as StoredTime, ModeFileType as StoredType};
use drystone_vfs::{FileType, Timestamp};

/// A stored time as callers see it.
pub(crate) fn shown(time: StoredTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// A caller's time as it is stored; encoding clamps it to what the inode can hold.
pub(crate) fn stored(time: Timestamp) -> StoredTime {
    StoredTime { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// A stored type as callers see it.
pub(crate) fn file_type(stored: StoredType) -> FileType {
    match stored {
        StoredType::Fifo => FileType::Fifo,
        StoredType::CharacterDevice => FileType::CharacterDevice,
        StoredType::Directory => FileType::Directory,
        StoredType::BlockDevice => FileType::BlockDevice,
        StoredType::Regular => FileType::Regular,
        StoredType::Symlink => FileType::Symlink,
        StoredType::Socket => FileType::Socket,
    }
}
