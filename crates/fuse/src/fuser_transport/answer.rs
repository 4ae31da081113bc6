//! Answers requests with what operations returned.

use super::convert::{common_parts, entry_parts, errno, file_attributes};
use crate::operations::{Created, EntryReply, IoctlReply, NodeAttributes, Reply};
use drystone_vfs::{Errno, FileSystemStatistics};
use fuser::{FileHandle, FopenFlags};

/// Nothing else changes a file, so what the kernel has cached of it stays valid.
const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;

/// A file or directory that was opened.
pub(super) enum Opened {
    File(u64),
    Directory(u64),
}

/// A reply of fuser that carries a `T` or an error.
pub(super) trait FuserReply<T>: Sized {
    fn succeed(self, value: T);
    fn fail(self, error: Errno);

    fn answer(self, result: Reply<T>) {
        match result {
            Ok(value) => self.succeed(value),
            Err(error) => self.fail(error),
        }
    }
}

macro_rules! answers {
    ($($reply:ident, $value:ty: |$this:ident, $got:pat_param| $send:expr;)*) => {$(
        impl FuserReply<$value> for fuser::$reply {
            fn succeed(self, value: $value) {
                let ($this, $got) = (self, value);
                $send;
            }

            fn fail(self, error: Errno) {
                self.error(errno(error));
            }
        }
    )*};
}

answers! {
    ReplyEmpty, (): |reply, ()| reply.ok();
    ReplyDirectory, (): |reply, ()| reply.ok();
    ReplyDirectoryPlus, (): |reply, ()| reply.ok();
    ReplyData, Vec<u8>: |reply, bytes| reply.data(&bytes);
    ReplyEntry, EntryReply: |reply, entry| {
        let (attributes, attribute_timeout, entry_timeout, generation) = entry_parts(&entry);
        reply.entry_with_ttls(&attribute_timeout, &entry_timeout, &attributes, generation)
    };
    ReplyAttr, NodeAttributes: |reply, node| {
        reply.attr(&node.timeout, &file_attributes(&node.attributes))
    };
    ReplyOpen, Opened: |reply, opened| match opened {
        Opened::File(handle) => reply.opened(FileHandle(handle), OPENED),
        Opened::Directory(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
    };
    ReplyCreate, Created: |reply, created| {
        let (attributes, ..) = entry_parts(&created.entry);
        let (timeout, generation) = common_parts(&created.entry);
        reply.created(&timeout, &attributes, generation, FileHandle(created.handle), OPENED)
    };
    // One request writes or copies less than 2^32 bytes.
    ReplyWrite, u64: |reply, bytes| reply.written(bytes as u32);
    // The longest file is far shorter than 2^63.
    ReplyLseek, u64: |reply, offset| reply.offset(offset as i64);
    ReplyIoctl, IoctlReply: |reply, done| reply.ioctl(0, done.data());
    ReplyStatfs, FileSystemStatistics: |reply, space| reply.statfs(
        space.blocks,
        space.blocks_free,
        space.blocks_available,
        space.inodes,
        space.inodes_free,
        space.block_size,
        space.name_length_max,
        space.block_size,
    );
}

/// Answers a request for a value of unknown length: a size of 0 asks how long it is.
pub(super) fn answer_sized(reply: fuser::ReplyXattr, result: Reply<Vec<u8>>, size: u32) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::ERANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}
