//! Requests in the protocol's own layouts, answered by [`Operations`].
//!
//! Reads go directly into the answer's buffer, writes come directly from the request's buffer, and
//! nothing is allocated on the way.

mod convert;

use crate::operations::{
    COPY_CHUNK_BYTES, EntryReply, LONG_RANGE_BYTES, NodeId, Operations, Reply, RequestCaller,
    WriteFlags, ioctl_grows, ioctl_sets_flags, outdated_by_refusal, truncates,
};
use crate::service::{Answer, Service};
use crate::wire::{
    self, CopyFileRangeIn, EntryHeader, FallocateIn, GetXattrOut, IoControlIn, IoControlOut,
    ListingWriter, Message, OpenIn, OpenOut, ReadIn, RequestHeader, SeekOut, SetAttributesIn,
    StatisticsOut, WriteIn, WriteOut, set_valid, write_flags,
};
use convert::{attributes_out, changes, entry_out, open_out, statx_out, type_number};
use drystone_vfs::Errno;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The own flag of `Open` and `Create`: set-id bits are to be cleared with a cut.
const OPEN_CLEARS_SET_ID: u32 = 1;

/// The flag of `GetAttributes`: the question is one about an open file.
const GET_ATTRIBUTES_BY_HANDLE: u32 = 1;

/// The own flag of `SetXattr`: set-group-id is to be cleared.
const XATTR_CLEARS_SET_GROUP_ID: u32 = 1;

impl Service for Operations {
    fn serve(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        payload: &mut [u8],
        used: usize,
    ) -> Answer {
        match answer(self, header, fixed, payload, used) {
            Ok(length) => Answer::Payload(length),
            Err(errno) => Answer::Error(errno.code()),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        Operations::forget(self, NodeId(node), count);
    }

    fn needs_write_back(&self, header: &RequestHeader, fixed: &[u8], payload: &[u8]) -> bool {
        let node = NodeId(header.node);
        match wire::Opcode::from_code(header.operation) {
            Some(wire::Opcode::Seek) => self.may_be_unwritten(node),
            Some(wire::Opcode::IoControl) => IoControlIn::read_from_bytes(fixed)
                .is_ok_and(|how| self.ioctl_needs_write_back(node, how.command, payload)),
            _ => false,
        }
    }

    fn waits_for_thaw(&self, header: &RequestHeader, fixed: &[u8]) -> bool {
        self.is_frozen() && is_change(header, fixed)
    }

    /// Small changes are not taken for long, since the change of a thread would cost more.
    fn takes_long(&self, header: &RequestHeader, fixed: &[u8]) -> bool {
        use wire::Opcode as Op;
        let node = NodeId(header.node);
        match Op::from_code(header.operation) {
            Some(Op::SetAttributes) => SetAttributesIn::read_from_bytes(fixed).is_ok_and(|asked| {
                asked.valid & set_valid::SIZE != 0 && self.cuts_much(node, asked.size)
            }),
            Some(Op::Open) => OpenIn::read_from_bytes(fixed)
                .is_ok_and(|how| truncates(how.flags) && self.cuts_much(node, 0)),
            Some(Op::Fallocate) => {
                FallocateIn::read_from_bytes(fixed).is_ok_and(|how| how.length > LONG_RANGE_BYTES)
            }
            Some(Op::CopyFileRange) => CopyFileRangeIn::read_from_bytes(fixed)
                .is_ok_and(|how| how.length > COPY_CHUNK_BYTES as u64),
            Some(Op::IoControl) => {
                IoControlIn::read_from_bytes(fixed).is_ok_and(|how| ioctl_grows(how.command))
            }
            _ => false,
        }
    }

    fn wait_thawed(&self) {
        Operations::wait_thawed(self);
    }

    fn outdated(&self, header: &RequestHeader, fixed: &[u8]) -> Option<Range<u64>> {
        let (how, bytes) = write_of(header, fixed)?;
        self.outdated_by_write(NodeId(header.node), bytes, flags_of_write(&how), how.flags)
    }

    fn outdated_by_refusal(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        errno: i32,
    ) -> Option<Range<u64>> {
        let (how, bytes) = write_of(header, fixed)?;
        let error = Errno::from_code(errno)?;
        outdated_by_refusal(bytes, flags_of_write(&how), error)
    }
}

/// Whether a request changes the image. Not one for which the file system decides whether it waits: to grow.
fn is_change(header: &RequestHeader, fixed: &[u8]) -> bool {
    use wire::Opcode as Op;
    match Op::from_code(header.operation) {
        Some(
            Op::SetAttributes
            | Op::Symlink
            | Op::MakeNode
            | Op::MakeDirectory
            | Op::Unlink
            | Op::RemoveDirectory
            | Op::Rename
            | Op::Rename2
            | Op::Link
            | Op::Write
            | Op::SetXattr
            | Op::RemoveXattr
            | Op::Create
            | Op::Temporary
            | Op::Fallocate
            | Op::CopyFileRange,
        ) => true,
        Some(Op::Open) => OpenIn::read_from_bytes(fixed).is_ok_and(|how| truncates(how.flags)),
        Some(Op::IoControl) => {
            IoControlIn::read_from_bytes(fixed).is_ok_and(|how| ioctl_sets_flags(how.command))
        }
        _ => false,
    }
}

/// The parameters of a write, and the bytes that it writes; `None` for other requests.
fn write_of(header: &RequestHeader, fixed: &[u8]) -> Option<(WriteIn, Range<u64>)> {
    if header.operation != wire::Opcode::Write as u32 {
        return None;
    }
    let how = WriteIn::read_from_bytes(fixed).ok()?;
    let bytes = how.offset..how.offset.saturating_add(u64::from(how.size));
    Some((how, bytes))
}

fn flags_of_write(how: &WriteIn) -> WriteFlags {
    WriteFlags {
        cached: how.write_flags & write_flags::FROM_CACHE != 0,
        kill_set_id: how.write_flags & write_flags::CLEAR_SET_ID != 0,
    }
}

fn answer(
    operations: &Operations,
    header: &RequestHeader,
    fixed: &[u8],
    payload: &mut [u8],
    used: usize,
) -> Reply<usize> {
    let message = Message { header: *header, fixed, payload: &payload[..used] };
    let asked = message.request().map_err(|malformed| {
        tracing::warn!("{malformed}");
        match malformed {
            wire::Malformed::Operation { .. } => Errno::ENOSYS,
            _ => Errno::EINVAL,
        }
    })?;
    let node = NodeId(header.node);
    let request = &RequestCaller {
        unique: header.unique,
        user: header.user,
        group: header.group,
        process: header.process,
    };
    match asked {
        wire::Request::Lookup { name } => {
            let entry = operations.lookup(request, node, name)?;
            put(payload, &entry_out(&entry))
        }
        wire::Request::GetAttributes(asked) => {
            let found = if asked.flags & GET_ATTRIBUTES_BY_HANDLE == 0 {
                operations.attributes(node)?
            } else {
                operations.attributes_of_opened(node, asked.handle)?
            };
            put(payload, &attributes_out(&found))
        }
        wire::Request::Statx(_) => put(payload, &statx_out(&operations.attributes(node)?)),
        wire::Request::Access(asked) => nothing(operations.access(node, asked.mask)),
        wire::Request::SetAttributes(asked) => {
            let clear_set_id = asked.valid & set_valid::CLEAR_SET_ID != 0;
            let changes = changes(&asked);
            let by_handle = asked.valid & set_valid::HANDLE != 0;
            let changed =
                operations.set_attributes(request, node, &changes, clear_set_id, by_handle)?;
            put(payload, &attributes_out(&changed))
        }
        wire::Request::ReadLink => put_bytes(payload, &operations.read_link(node)?),
        wire::Request::Symlink { name, target } => {
            let entry = operations.symlink(request, node, name, target)?;
            put(payload, &entry_out(&entry))
        }
        wire::Request::MakeNode(how, name) => {
            let (mode, umask) = (how.mode, how.umask);
            let entry = operations.make_node(request, node, name, mode, umask, how.device)?;
            put(payload, &entry_out(&entry))
        }
        wire::Request::MakeDirectory(how, name) => {
            let entry = operations.make_directory(request, node, name, how.mode, how.umask)?;
            put(payload, &entry_out(&entry))
        }
        wire::Request::Unlink { name } => nothing(operations.unlink(request, node, name)),
        wire::Request::RemoveDirectory { name } => {
            nothing(operations.remove_directory(request, node, name))
        }
        wire::Request::Rename { new_parent, flags, name, new_name } => {
            let new_parent = NodeId(new_parent);
            nothing(operations.rename(request, node, name, new_parent, new_name, flags))
        }
        wire::Request::Link { node: linked, name } => {
            let entry = operations.link(request, NodeId(linked), node, name)?;
            put(payload, &entry_out(&entry))
        }
        wire::Request::Create(how, name) => {
            let (mode, umask) = (how.mode, how.umask);
            let created = operations.create(request, node, name, mode, umask, how.flags)?;
            put_created(payload, &created.entry, created.handle)
        }
        wire::Request::Temporary(how) => {
            let created =
                operations.create_unnamed(request, node, how.mode, how.umask, how.flags)?;
            put_created(payload, &created.entry, created.handle)
        }
        wire::Request::Open(how) => {
            let clear_set_id = how.open_flags & OPEN_CLEARS_SET_ID != 0;
            let handle = operations.open(request, node, how.flags, clear_set_id)?;
            put(payload, &open_out(handle))
        }
        wire::Request::Read(how) => {
            let room = room(payload, how.size);
            operations.read(node, how.offset, room, how.flags)
        }
        wire::Request::Write(how, data) => {
            let flags = flags_of_write(&how);
            let written = operations.write(request, node, how.offset, data, flags)?;
            // At most what was asked for, which is a `u32`.
            put(payload, &WriteOut { size: written as u32, padding: 0 })
        }
        wire::Request::CopyFileRange(how) => {
            let copied = operations.copy_range(
                request,
                node,
                how.offset,
                NodeId(how.target_node),
                how.target_offset,
                how.length,
                how.flags,
            )?;
            // One request copies less than 2^32 bytes.
            put(payload, &WriteOut { size: copied as u32, padding: 0 })
        }
        wire::Request::Fallocate(how) => {
            nothing(operations.fallocate(request, node, how.offset, how.length, how.mode))
        }
        wire::Request::Seek(how) => {
            let offset = operations.seek(node, how.offset, how.whence)?;
            put(payload, &SeekOut { offset })
        }
        wire::Request::Sync(how) => nothing(operations.fsync(node, how.flags & 1 != 0)),
        wire::Request::SyncDirectory(how) => {
            nothing(operations.fsync_directory(node, how.flags & 1 != 0))
        }
        wire::Request::SyncFileSystem => nothing(operations.sync()),
        wire::Request::Flush(_) => nothing(operations.flush(node)),
        wire::Request::Release(how) => nothing(operations.release(node, how.handle)),
        wire::Request::OpenDirectory(_) => {
            let handle = operations.open_directory()?;
            put(payload, &OpenOut { handle, ..OpenOut::default() })
        }
        wire::Request::ReleaseDirectory(_) => nothing(operations.release_directory()),
        wire::Request::ReadDirectory(how) => list(operations, request, node, &how, payload),
        wire::Request::ReadDirectoryPlus(how) => {
            list_with_attributes(operations, request, node, &how, payload)
        }
        wire::Request::GetXattr { size, name } => {
            let value = operations.xattr(request, node, name)?;
            put_sized(payload, &value, size)
        }
        wire::Request::ListXattrs { size } => {
            put_sized(payload, &operations.list_xattrs(request, node)?, size)
        }
        wire::Request::SetXattr { flags, own_flags, name, value } => {
            let clear = own_flags & XATTR_CLEARS_SET_GROUP_ID != 0;
            nothing(operations.set_xattr(request, node, name, value, flags, clear))
        }
        wire::Request::RemoveXattr { name } => {
            nothing(operations.remove_xattr(request, node, name))
        }
        wire::Request::IoControl(how, input) => {
            let IoControlIn { command, out_size, .. } = how;
            let done = operations.ioctl(request, node, command, input, out_size as usize)?;
            let length = put(payload, &IoControlOut::default())?;
            Ok(length + put_bytes(&mut payload[length..], done.data())?)
        }
        wire::Request::Statistics => statistics(operations, node, payload),
        wire::Request::Destroy => Ok(0),
        // Requests without an answer don't come here. For the others the kernel has its own way
        // once it gets this error.
        wire::Request::Forget(_)
        | wire::Request::BatchForget { .. }
        | wire::Request::Interrupt(_)
        | wire::Request::Other(_) => Err(Errno::ENOSYS),
    }
}

fn statistics(operations: &Operations, node: NodeId, payload: &mut [u8]) -> Reply<usize> {
    let space = operations.statistics(node)?;
    let out = StatisticsOut {
        blocks: space.blocks,
        blocks_free: space.blocks_free,
        blocks_available: space.blocks_available,
        inodes: space.inodes,
        inodes_free: space.inodes_free,
        block_size: space.block_size,
        name_length_max: space.name_length_max,
        fragment_size: space.block_size,
        ..StatisticsOut::default()
    };
    put(payload, &out)
}

fn list(
    operations: &Operations,
    request: &RequestCaller,
    node: NodeId,
    how: &ReadIn,
    payload: &mut [u8],
) -> Reply<usize> {
    let mut listing = ListingWriter::new(room(payload, how.size));
    operations.read_directory(request, node, how.offset, how.flags, &mut |entry| {
        let header = EntryHeader {
            inode: entry.inode.0,
            cookie: entry.cookie,
            file_type: type_number(entry.file_type),
            ..EntryHeader::default()
        };
        listing.push(None, header, entry.name)
    })?;
    Ok(listing.used())
}

fn list_with_attributes(
    operations: &Operations,
    request: &RequestCaller,
    node: NodeId,
    how: &ReadIn,
    payload: &mut [u8],
) -> Reply<usize> {
    let room = room(payload, how.size);
    let bytes_max = room.len();
    let mut listing = ListingWriter::new(room);
    operations.read_directory_plus(
        request,
        node,
        how.offset,
        how.flags,
        bytes_max,
        &mut |listed, entry| {
            let header = EntryHeader {
                inode: listed.inode.0,
                cookie: listed.cookie,
                file_type: type_number(listed.file_type),
                ..EntryHeader::default()
            };
            listing.push(Some(&entry_out(entry)), header, listed.name)
        },
    )?;
    Ok(listing.used())
}

/// The part of the payload that an answer of at most `size` bytes may use.
fn room(payload: &mut [u8], size: u32) -> &mut [u8] {
    let length = payload.len().min(size as usize);
    &mut payload[..length]
}

fn nothing(done: Reply<()>) -> Reply<usize> {
    done.map(|()| 0)
}

fn put<T: IntoBytes + Immutable>(payload: &mut [u8], value: &T) -> Reply<usize> {
    put_bytes(payload, value.as_bytes())
}

fn put_bytes(payload: &mut [u8], bytes: &[u8]) -> Reply<usize> {
    let place = payload.get_mut(..bytes.len()).ok_or(Errno::ERANGE)?;
    place.copy_from_slice(bytes);
    Ok(bytes.len())
}

fn put_created(payload: &mut [u8], entry: &EntryReply, handle: u64) -> Reply<usize> {
    let length = put(payload, &entry_out(entry))?;
    Ok(length + put(&mut payload[length..], &open_out(handle))?)
}

/// A value of unknown length: a size of zero asks how long it is.
fn put_sized(payload: &mut [u8], value: &[u8], size: u32) -> Reply<usize> {
    if size == 0 {
        // Values are far shorter than 4 GiB.
        return put(payload, &GetXattrOut { size: value.len() as u32, padding: 0 });
    }
    put_bytes(room(payload, size), value)
}

#[cfg(test)]
mod tests;
