//! Content of regular files.

use super::{NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{
    Capabilities, Errno, FallocateMode, FileFlags, InodeNumber, OpenFlags, RequestContext, Result,
    SeekFrom, mode,
};
use rustix::fs::OFlags;
use std::borrow::Cow;

/// Most bytes that one `copy_file_range` moves: programs ask again, and can be interrupted between.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// Bytes copied at a time.
pub(crate) const COPY_CHUNK_BYTES: usize = 1 << 20;

/// Freeing or allocating so many bytes takes no longer than the change of a thread would.
pub(crate) const LONG_RANGE_BYTES: u64 = 16 << 20;

/// Bits of `fallocate`'s mode.
const FALLOCATE_KEEP_SIZE: u32 = 0x01;
const FALLOCATE_PUNCH_HOLE: u32 = 0x02;
const FALLOCATE_COLLAPSE_RANGE: u32 = 0x08;
const FALLOCATE_ZERO_RANGE: u32 = 0x10;
const FALLOCATE_INSERT_RANGE: u32 = 0x20;

/// `lseek`'s ways of looking for holes.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// The handle of a file that is open for writing; of others it is 0.
pub(super) const WRITTEN: u64 = 1;

/// Whether `open` with these flags empties the file.
pub(crate) fn truncates(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::TRUNC)
}

/// Properties of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// It comes from the page cache, which doesn't keep which user wrote (`FUSE_WRITE_CACHE`).
    pub cached: bool,
    /// It clears set-id bits (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_set_id: bool,
}

impl Operations {
    /// Opens a file; `flags` are those of `open`. `kill_set_id`: truncating it clears set-id bits
    /// (`FUSE_OPEN_KILL_SUIDGID`).
    pub fn open(
        &self,
        request: &RequestCaller,
        node: NodeId,
        flags: u32,
        kill_set_id: bool,
    ) -> Reply<u64> {
        let mut context = self.context(request, 0);
        context.capabilities.set(Capabilities::SET_ID, !kill_set_id);
        let opened = self.telling_of_set_id(request, context, node, |context| {
            self.open_file(context, self.inode(node), flags)
        });
        self.done(CountedOperation::Open, opened)
    }

    pub(super) fn open_file(
        &self,
        context: &RequestContext,
        inode: InodeNumber,
        flags: u32,
    ) -> Result<u64> {
        let flags = OFlags::from_bits_retain(flags);
        let access = flags & OFlags::RWMODE;
        let mut wanted = OpenFlags::empty();
        wanted.set(OpenFlags::READ, access != OFlags::WRONLY);
        wanted.set(OpenFlags::WRITE, access != OFlags::RDONLY);
        wanted.set(OpenFlags::TRUNCATE, flags.contains(OFlags::TRUNC));
        let attributes = self.file_system.open(context, inode, wanted)?;
        // The kernel's own reference keeps the inode while the file is open.
        self.file_system.forget(inode, 1);
        if flags.contains(OFlags::TRUNC) {
            self.refusals.forget(inode);
        }
        let appends_only = attributes.flags.contains(FileFlags::APPEND);
        if appends_only && access != OFlags::RDONLY && !flags.contains(OFlags::APPEND) {
            return Err(Errno::EPERM.into());
        }
        Ok(self.opened(inode, flags))
    }

    /// The handle by which later requests name the file that is opened with `flags`.
    pub(super) fn opened(&self, inode: InodeNumber, flags: OFlags) -> u64 {
        if flags & OFlags::RWMODE == OFlags::RDONLY {
            return 0;
        }
        self.writers.add(inode);
        self.direct_writes.opened(inode, flags);
        WRITTEN
    }

    /// The last descriptor of an open file description is closed.
    pub fn release(&self, node: NodeId, handle: u64) -> Reply<()> {
        self.counters.count(CountedOperation::Release);
        if handle == WRITTEN {
            let inode = self.inode(node);
            // The close has reported refused writes to its caller, but not to other descriptors. The
            // release may come long after the close.
            self.writers.remove(inode, || {
                self.refusals.forget(inode);
                self.direct_writes.closed(inode);
            });
            self.file_system.closed(inode);
        }
        Ok(())
    }

    /// A file descriptor is closed. Nothing to do: the kernel writes back before it sends this.
    pub fn flush(&self, _node: NodeId) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Reads into `buffer`; fewer bytes only at the end. `flags` are those that the file was opened with.
    pub fn read(&self, node: NodeId, offset: u64, buffer: &mut [u8], flags: u32) -> Reply<usize> {
        let inode = self.inode(node);
        let opened_with = OFlags::from_bits_retain(flags);
        self.direct_writes.reads(inode, opened_with);
        let read =
            self.done(CountedOperation::Read, self.file_system.read(inode, offset, buffer))?;
        // If the kernel reads only to complete a page that a program writes into, that is no
        // access.
        if opened_with & OFlags::RWMODE != OFlags::WRONLY {
            self.note_access(inode, flags);
        }
        self.counters.count_read(read);
        Ok(read)
    }

    /// A program has read from what it opened with `flags`.
    pub(super) fn note_access(&self, inode: InodeNumber, flags: u32) {
        if !OFlags::from_bits_retain(flags).contains(OFlags::NOATIME) {
            self.file_system.accessed(inode);
        }
    }

    /// Writes `data` at `offset`.
    pub fn write(
        &self,
        request: &RequestCaller,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Reply<usize> {
        let inode = self.inode(node);
        let mut context = self.context(request, 0);
        context.capabilities.set(Capabilities::SET_ID, !flags.kill_set_id);
        // With a cache the kernel keeps the times of all changes of content, direct ones too, and sends them
        // unless it believes its own to be stored already. The current time would be later than those, and stay.
        context.keeps_times = self.options.writeback_cache;
        context.is_cache = flags.cached && self.options.writeback_cache;
        // With a cache, a write that doesn't come from it bypasses it (`O_DIRECT`).
        context.is_direct = !flags.cached && self.options.writeback_cache;
        let written = if flags.cached {
            // The page cache doesn't record the writer; the owner stands in for it.
            self.file_system.attributes(inode).and_then(|attributes| {
                context.user = attributes.user;
                context.group = attributes.group;
                context.capabilities.set(Capabilities::ADMINISTER, attributes.user == 0);
                if attributes.flags.contains(FileFlags::APPEND) {
                    self.append_only_data(inode, attributes.size, offset, data)
                } else {
                    Ok(Cow::Borrowed(data))
                }
            })
        } else {
            Ok(Cow::Borrowed(data))
        }
        .and_then(|allowed| {
            let is_forbidden = matches!(allowed, Cow::Owned(_));
            self.telling_of_set_id(request, context, node, |context| {
                if flags.cached {
                    // The kernel takes any count for everything it has gathered, and forgets the rest.
                    self.file_system.write_all(context, inode, offset, &allowed)?;
                    Ok((data.len(), is_forbidden))
                } else {
                    Ok((self.file_system.write(context, inode, offset, data)?, false))
                }
            })
        });
        let done = self.done(CountedOperation::Write, written);
        let (written, is_forbidden) = done.inspect_err(|&error| {
            if flags.cached {
                self.refused(node, offset..offset + data.len() as u64, error);
            }
        })?;
        self.refusals.settle(inode, offset..offset + written as u64);
        self.counters.count_written(written);
        // Appends beside bytes that may not change are stored. The kernel reports the error to syncs and
        // closes; other programs that append aren't bothered with it.
        if is_forbidden { Err(Errno::EPERM) } else { Ok(written) }
    }

    /// Returns when the content of an inode is durable, and its attributes unless `data_only`
    /// allows those to wait that aren't needed to read it.
    ///
    /// # Errors
    /// Also if gathered writes were refused and their bytes are still missing.
    pub fn fsync(&self, node: NodeId, data_only: bool) -> Reply<()> {
        let inode = self.inode(node);
        let synced = self.file_system.sync_inode(inode, data_only);
        self.done(CountedOperation::Fsync, synced)?;
        self.refusals.of(inode).map_or(Ok(()), Err)
    }

    /// Changes the space behind a range; `mode` is that of `fallocate`.
    pub fn fallocate(
        &self,
        request: &RequestCaller,
        node: NodeId,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Reply<()> {
        let context = self.changing_context(request);
        let inode = self.inode(node);
        let done = fallocate_mode(mode).and_then(|mode| {
            self.telling_of_set_id(request, context, node, |context| {
                self.file_system.fallocate(context, inode, mode, offset, length)
            })?;
            if matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange { .. }) {
                self.refusals.settle(inode, offset..offset.saturating_add(length));
            }
            Ok(())
        });
        self.done(CountedOperation::Fallocate, done)
    }

    /// Does something that may clear set-id bits, as `context` says, and tells the kernel to ask for the
    /// mode again. The kernel wouldn't notice by itself and would go on running the file as its owner.
    fn telling_of_set_id<T>(
        &self,
        request: &RequestCaller,
        mut context: RequestContext,
        node: NodeId,
        change: impl FnOnce(&RequestContext) -> Result<T>,
    ) -> Result<T> {
        let is_armed = self.set_id_at_stake(request, &mut context, node)?;
        let done = change(&context);
        // Also if it failed halfway.
        if is_armed {
            self.notices.outdate_attributes(node);
        }
        done
    }

    /// Whether the node has set-id bits that a change may clear. Tells the context the caller's
    /// supplementary groups if they decide.
    pub(super) fn set_id_at_stake(
        &self,
        request: &RequestCaller,
        context: &mut RequestContext,
        node: NodeId,
    ) -> Result<bool> {
        if context.has(Capabilities::SET_ID) {
            return Ok(false);
        }
        let permissions = self.file_system.attributes(self.inode(node))?.permissions;
        if permissions & (mode::SET_GROUP_ID | 0o010) == mode::SET_GROUP_ID {
            context.groups = groups_of(request.process);
        }
        Ok(permissions & (mode::SET_USER_ID | mode::SET_GROUP_ID) != 0)
    }

    /// The context for changes of content whose requests don't say whether they clear set-id bits. They do
    /// unless root asks, since only root is known to be allowed to keep them.
    fn changing_context(&self, request: &RequestCaller) -> RequestContext {
        let mut context = self.context(request, 0);
        context.capabilities.set(Capabilities::SET_ID, request.user == 0);
        // As for writes.
        context.keeps_times = self.options.writeback_cache;
        context
    }

    /// Whether a file gets so much shorter with this size that it may take long.
    pub(crate) fn cuts_much(&self, node: NodeId, size: u64) -> bool {
        self.file_system
            .attributes(self.inode(node))
            .is_ok_and(|attributes| attributes.size.saturating_sub(size) > LONG_RANGE_BYTES)
    }

    /// True if the kernel may hold content of the file that it hasn't written yet.
    pub fn may_be_unwritten(&self, node: NodeId) -> bool {
        self.writers.has(self.inode(node))
    }

    /// Finds data or a hole; `whence` is `SEEK_DATA` or `SEEK_HOLE`. For a file that
    /// [`may_be_unwritten`](Operations::may_be_unwritten), a transport must first make the kernel
    /// write what it has gathered, or answer `EINVAL` as file systems without holes do: what is a
    /// hole here may be data in the kernel's cache, and a program that skipped it would lose it.
    pub fn seek(&self, node: NodeId, offset: u64, whence: u32) -> Reply<u64> {
        let from = match whence {
            SEEK_DATA => Ok(SeekFrom::Data(offset)),
            SEEK_HOLE => Ok(SeekFrom::Hole(offset)),
            _ => Err(Errno::EINVAL.into()),
        };
        let found = from.and_then(|from| self.file_system.seek(self.inode(node), from));
        self.done(CountedOperation::Seek, found)
    }

    /// Copies a range from one file to another, or within one where the ranges don't overlap.
    /// Returns how many bytes were copied: perhaps fewer than asked.
    #[allow(clippy::too_many_arguments, reason = "they are those of the request")]
    pub fn copy_range(
        &self,
        request: &RequestCaller,
        from: NodeId,
        from_offset: u64,
        to: NodeId,
        to_offset: u64,
        length: u64,
        flags: u64,
    ) -> Reply<u64> {
        let context = self.changing_context(request);
        let copied = if flags != 0 {
            Err(Errno::EINVAL.into())
        } else {
            let from = (self.inode(from), from_offset);
            self.telling_of_set_id(request, context, to, |context| {
                let to = (self.inode(to), to_offset);
                self.copy(context, from, to, length.min(COPY_BYTES_MAX))
            })
            .inspect(|_| self.file_system.accessed(from.0))
        };
        self.done(CountedOperation::CopyRange, copied)
    }

    fn copy(
        &self,
        context: &RequestContext,
        (from, from_offset): (InodeNumber, u64),
        (to, to_offset): (InodeNumber, u64),
        length: u64,
    ) -> Result<u64> {
        let mut buffer = vec![0; COPY_CHUNK_BYTES.min(length as usize)];
        let mut copied = 0;
        while copied < length {
            let chunk = (length - copied).min(COPY_CHUNK_BYTES as u64) as usize;
            let buffer = &mut buffer[..chunk];
            let step = self.file_system.read(from, from_offset + copied, buffer).and_then(|read| {
                let data = &buffer[..read];
                let written = if data.is_empty() {
                    0
                } else {
                    self.file_system.write(context, to, to_offset + copied, data)?
                };
                Ok((read, written))
            });
            match step {
                Ok((read, written)) => {
                    let begin = to_offset + copied;
                    self.refusals.settle(to, begin..begin + written as u64);
                    copied += written as u64;
                    if read < chunk || written < read {
                        break;
                    }
                }
                Err(error) if copied == 0 => return Err(error),
                // What was copied counts; the next call says what is wrong.
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}

/// The supplementary groups of a process, which requests don't carry. None if it can't be asked: then
/// a set-group-id bit is rather lost than kept.
fn groups_of(process: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn fallocate_mode(mode: u32) -> Result<FallocateMode> {
    let keep_size = mode & FALLOCATE_KEEP_SIZE != 0;
    match mode & !FALLOCATE_KEEP_SIZE {
        0 => Ok(FallocateMode::Allocate { keep_size }),
        FALLOCATE_PUNCH_HOLE if keep_size => Ok(FallocateMode::PunchHole),
        FALLOCATE_ZERO_RANGE => Ok(FallocateMode::ZeroRange { keep_size }),
        FALLOCATE_COLLAPSE_RANGE if !keep_size => Ok(FallocateMode::CollapseRange),
        FALLOCATE_INSERT_RANGE if !keep_size => Ok(FallocateMode::InsertRange),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
