//! Converts values of requests and replies between fuser's types and ours.

use crate::operations::{EntryReply, NodeAttributes, RequestCaller, encode_device};
use drystone_vfs::{Errno, FileType, InodeAttributes, SetTime, Timestamp};
use fuser::{FileAttr, Generation, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime};

pub(super) fn request_of(request: &fuser::Request) -> RequestCaller {
    RequestCaller {
        unique: request.unique().0,
        user: request.uid(),
        group: request.gid(),
        process: request.pid(),
    }
}

pub(super) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.code())
}

/// A time for fuser, which turns it into the protocol's form correctly, before 1970 too.
pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The time of a request. fuser makes `-seconds - nanoseconds` of a time before 1970 where
/// `-seconds + nanoseconds` is meant; taking the two apart again undoes that.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Timestamp {
                seconds: 0_i64.saturating_sub_unsigned(before.as_secs()),
                nanoseconds: before.subsec_nanos(),
            }
        }
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

pub(super) fn file_type(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

pub(super) fn file_attributes(attributes: &InodeAttributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode.0),
        size: attributes.size,
        blocks: attributes.sectors,
        atime: system_time(attributes.accessed),
        mtime: system_time(attributes.modified),
        ctime: system_time(attributes.changed),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(attributes.file_type),
        perm: attributes.permissions,
        nlink: attributes.links,
        uid: attributes.user,
        gid: attributes.group,
        rdev: encode_device(attributes.device),
        blksize: attributes.block_size,
        flags: 0,
    }
}

/// Attributes for an entry without any: fuser takes the node from them.
pub(super) fn no_attributes(node: u64, kind: fuser::FileType) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(node),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// An entry for fuser: its attributes, how long they and the name may be cached, and its
/// generation. The node is the number in the attributes.
pub(super) fn entry_parts(entry: &EntryReply) -> (FileAttr, Duration, Duration, Generation) {
    let generation = Generation(entry.generation);
    match &entry.attributes {
        Some(NodeAttributes { attributes, timeout }) => {
            let attributes = FileAttr { ino: INodeNo(entry.node.0), ..file_attributes(attributes) };
            (attributes, *timeout, entry.entry_timeout, generation)
        }
        None => {
            let attributes = no_attributes(0, fuser::FileType::RegularFile);
            (attributes, Duration::ZERO, entry.entry_timeout, generation)
        }
    }
}

/// The same for replies with one time for attributes and name, which is the shorter one.
pub(super) fn common_parts(entry: &EntryReply) -> (Duration, Generation) {
    let (_, attribute_timeout, entry_timeout, generation) = entry_parts(entry);
    (attribute_timeout.min(entry_timeout), generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_to_fuser_and_come_back() {
        for (seconds, nanoseconds) in [(0, 0), (1, 5), (1_700_000_000, 999_999_999), (-1, 0)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }

    #[test]
    fn times_before_1970_are_taken_from_what_fuser_makes_of_them() {
        // fuser computes 1970 - (2 s + 250 ms) from seconds -2 and nanoseconds 250 million.
        let from_fuser = SystemTime::UNIX_EPOCH - Duration::new(2, 250_000_000);
        let meant = Timestamp { seconds: -2, nanoseconds: 250_000_000 };
        assert_eq!(timestamp(from_fuser), meant);
        // Times that go to fuser need no correction.
        let exact = SystemTime::UNIX_EPOCH - Duration::new(1, 750_000_000);
        assert_eq!(system_time(meant), exact);
    }
}
