//! Requests that come through `/dev/fuse`, taken apart and answered by the `fuser` library.
//!
//! Several threads read from the device, each from a descriptor of its own, so that they don't meet
//! at one.
//!
//! # What fuser lacks
//!
//! `O_TMPFILE` and `statx` (programs get `EOPNOTSUPP`, and no creation time), `SETXATTR_EXT` and
//! `HANDLE_KILLPRIV_V2` (asking for them breaks its parsing): the kernel clears set-id bits itself,
//! which costs it a look at `security.capability` for each write call. Files that are open for
//! writing have no holes to look for (`EINVAL`).

use crate::operations::{
    EntryReply, NodeAttributes, NodeId, OpenReply, Operations, Reply, Request, WriteFlags,
    encode_device,
};
use crate::{Capabilities, wanted_capabilities};
use drystone_sync::Arc;
use drystone_vfs::{Attributes, Errno, FileType, SetAttributes, SetTime, Timestamp};
use fuser::{
    Config, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, SessionACL, TimeOrNow,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A mount that has been begun and is served by [`Session::run`].
pub(crate) struct Session {
    session: fuser::Session<Server>,
}

impl Session {
    /// Agrees with the kernel on how the mount behind `device` works.
    pub(crate) fn begin(operations: Arc<Operations>, device: OwnedFd) -> io::Result<Session> {
        let threads = operations.options().thread_count();
        let mut config = Config::default();
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        // Whom the kernel lets in is decided by the mount's options, before a request is sent.
        let server = Server { operations };
        let session = fuser::Session::from_fd(server, device, SessionACL::All, config)?;
        Ok(Session { session })
    }

    /// Answers requests until the mount is gone and all threads have ended.
    pub(crate) fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

struct Server {
    operations: Arc<Operations>,
}

drystone_sync::thread_local! {
    /// What a read puts its bytes into.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn request_of(request: &fuser::Request) -> Request {
    Request {
        unique: request.unique().0,
        user: request.uid(),
        group: request.gid(),
        process: request.pid(),
    }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.code())
}

/// A time for fuser, which turns it into the protocol's form correctly, before 1970 too.
fn system_time(time: Timestamp) -> SystemTime {
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
fn timestamp(time: SystemTime) -> Timestamp {
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

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

fn file_type(file_type: FileType) -> fuser::FileType {
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

fn file_attributes(attributes: &Attributes) -> FileAttr {
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
fn no_attributes(node: u64, kind: fuser::FileType) -> FileAttr {
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

/// What fuser wants for an entry: its attributes, how long they and the name may be kept, and its
/// generation. The node is the number in the attributes.
fn entry_parts(entry: &EntryReply) -> (FileAttr, Duration, Duration, Generation) {
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

fn reply_entry(reply: fuser::ReplyEntry, result: Reply<EntryReply>) {
    match result {
        Ok(entry) => {
            let (attributes, attribute_timeout, entry_timeout, generation) = entry_parts(&entry);
            reply.entry_with_ttls(&attribute_timeout, &entry_timeout, &attributes, generation);
        }
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attributes(reply: fuser::ReplyAttr, result: Reply<NodeAttributes>) {
    match result {
        Ok(node) => reply.attr(&node.timeout, &file_attributes(&node.attributes)),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_empty(reply: fuser::ReplyEmpty, result: Reply<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers a request for a value of unknown length: a size of 0 asks how long it is.
fn reply_sized(reply: fuser::ReplyXattr, result: Reply<Vec<u8>>, size: u32) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::ERANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

fn open_flags(open: &OpenReply) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, open.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, open.direct_io);
    flags
}

impl fuser::Filesystem for Server {
    fn init(&mut self, _request: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let options = self.operations.options();
        // Without `HANDLE_KILLPRIV_V2` the kernel clears set-id bits where it cuts a file itself, and
        // nobody does where `open` cuts it.
        let unknown = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::SETXATTR_EXT
            | Capabilities::ATOMIC_O_TRUNC;
        let wanted = wanted_capabilities(options) - unknown - Capabilities::INIT_EXT;
        let offered = config.capabilities();
        let wanted = InitFlags::from_bits_retain(wanted.bits()) & offered;
        // What isn't offered has just been taken out.
        let _ = config.add_capabilities(wanted);
        // These hand back the nearest value that is possible.
        if let Err(nearest) = config.set_max_write(options.write_bytes_max) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(options.write_bytes_max) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(options.background_requests_max);
        tracing::debug!(?wanted, "agreed with the kernel");
        Ok(())
    }

    fn lookup(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEntry,
    ) {
        let found = self.operations.lookup(&request_of(request), NodeId(parent.0), name.as_bytes());
        reply_entry(reply, found);
    }

    fn forget(&self, _request: &fuser::Request, node: INodeNo, count: u64) {
        self.operations.forget(NodeId(node.0), count);
    }

    fn getattr(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: Option<FileHandle>,
        reply: fuser::ReplyAttr,
    ) {
        reply_attributes(reply, self.operations.attributes(NodeId(node.0)));
    }

    fn setattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_on_mac: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: fuser::ReplyAttr,
    ) {
        let changes = SetAttributes {
            permissions: mode.map(|mode| mode as u16 & drystone_vfs::mode::PERMISSIONS),
            user,
            group,
            size,
            accessed: accessed.map(set_time),
            modified: modified.map(set_time),
            changed: changed.map(timestamp),
            ..SetAttributes::default()
        };
        let request = request_of(request);
        let changed = self.operations.set_attributes(&request, NodeId(node.0), &changes, false);
        reply_attributes(reply, changed);
    }

    fn readlink(&self, _request: &fuser::Request, node: INodeNo, reply: fuser::ReplyData) {
        match self.operations.read_link(NodeId(node.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: fuser::ReplyEntry,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        let name = name.as_bytes();
        let made = self.operations.make_node(&request, parent, name, mode, umask, device);
        reply_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: fuser::ReplyEntry,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        let made = self.operations.make_directory(&request, parent, name.as_bytes(), mode, umask);
        reply_entry(reply, made);
    }

    fn unlink(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        reply_empty(reply, self.operations.unlink(&request, parent, name.as_bytes()));
    }

    fn rmdir(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        reply_empty(reply, self.operations.remove_directory(&request, parent, name.as_bytes()));
    }

    fn symlink(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: fuser::ReplyEntry,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        let target = target.as_os_str().as_bytes();
        let made = self.operations.symlink(&request, parent, name.as_bytes(), target);
        reply_entry(reply, made);
    }

    fn rename(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: fuser::ReplyEmpty,
    ) {
        let renamed = self.operations.rename(
            &request_of(request),
            NodeId(parent.0),
            name.as_bytes(),
            NodeId(new_parent.0),
            new_name.as_bytes(),
            flags.bits(),
        );
        reply_empty(reply, renamed);
    }

    fn link(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEntry,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        let linked = self.operations.link(&request, NodeId(node.0), parent, name.as_bytes());
        reply_entry(reply, linked);
    }

    fn open(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        flags: OpenFlags,
        reply: fuser::ReplyOpen,
    ) {
        match self.operations.open(&request_of(request), NodeId(node.0), flags.0 as u32, false) {
            Ok(open) => reply.opened(FileHandle(open.handle), open_flags(&open)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.operations.read(NodeId(node.0), offset, &mut buffer[..size]) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: fuser::WriteFlags,
        _open_flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyWrite,
    ) {
        let flags = WriteFlags {
            cached: flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
            kill_set_id: flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        match self.operations.write(&request_of(request), NodeId(node.0), offset, data, flags) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.operations.flush(NodeId(node.0)));
    }

    fn release(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.operations.release(NodeId(node.0), handle.0));
    }

    fn fsync(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.operations.fsync(NodeId(node.0), data_only));
    }

    fn opendir(
        &self,
        _request: &fuser::Request,
        _node: INodeNo,
        _flags: OpenFlags,
        reply: fuser::ReplyOpen,
    ) {
        match self.operations.open_directory() {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: fuser::ReplyDirectory,
    ) {
        let request = request_of(request);
        let listed =
            self.operations.read_directory(&request, NodeId(node.0), offset, &mut |entry| {
                let kind = file_type(entry.file_type.unwrap_or(FileType::Regular));
                let name = OsStr::from_bytes(entry.name);
                !reply.add(INodeNo(entry.inode.0), entry.cookie, kind, name)
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: fuser::ReplyDirectoryPlus,
    ) {
        let request = request_of(request);
        // fuser knows how much room there is, and doesn't tell.
        let listed = self.operations.read_directory_plus(
            &request,
            NodeId(node.0),
            offset,
            usize::MAX,
            &mut |listed, entry| {
                let name = OsStr::from_bytes(listed.name);
                let (mut attributes, timeout, _, generation) = entry_parts(entry);
                if entry.attributes.is_none() && (listed.name == b"." || listed.name == b"..") {
                    let kind = file_type(listed.file_type.unwrap_or(FileType::Directory));
                    attributes = no_attributes(listed.inode.0, kind);
                }
                !reply.add(attributes.ino, listed.cookie, name, &timeout, &attributes, generation)
            },
        );
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _request: &fuser::Request,
        _node: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.operations.release_directory());
    }

    fn fsyncdir(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.operations.fsync_directory(NodeId(node.0), data_only));
    }

    fn statfs(&self, _request: &fuser::Request, _node: INodeNo, reply: fuser::ReplyStatfs) {
        match self.operations.statistics() {
            Ok(space) => reply.statfs(
                space.blocks,
                space.blocks_free,
                space.blocks_available,
                space.inodes,
                space.inodes_free,
                space.block_size,
                space.name_length_max,
                space.block_size,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, node) = (request_of(request), NodeId(node.0));
        let name = name.as_bytes();
        let set = self.operations.set_xattr(&request, node, name, value, flags as u32, false);
        reply_empty(reply, set);
    }

    fn getxattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: fuser::ReplyXattr,
    ) {
        let value = self.operations.xattr(&request_of(request), NodeId(node.0), name.as_bytes());
        reply_sized(reply, value, size);
    }

    fn listxattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        size: u32,
        reply: fuser::ReplyXattr,
    ) {
        let names = self.operations.list_xattrs(&request_of(request), NodeId(node.0));
        reply_sized(reply, names, size);
    }

    fn removexattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, node) = (request_of(request), NodeId(node.0));
        reply_empty(reply, self.operations.remove_xattr(&request, node, name.as_bytes()));
    }

    fn create(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        let name = name.as_bytes();
        match self.operations.create(&request, parent, name, mode, umask, flags as u32) {
            Ok(created) => {
                let (attributes, timeout, _, generation) = entry_parts(&created.entry);
                let handle = FileHandle(created.open.handle);
                let flags = open_flags(&created.open);
                reply.created(&timeout, &attributes, generation, handle, flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn ioctl(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: fuser::IoctlFlags,
        number: u32,
        input: &[u8],
        output_bytes_max: u32,
        reply: fuser::ReplyIoctl,
    ) {
        let (request, node) = (request_of(request), NodeId(node.0));
        let output_bytes_max = output_bytes_max as usize;
        match self.operations.ioctl(&request, node, number, input, output_bytes_max) {
            Ok(done) => reply.ioctl(0, done.data()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, node) = (request_of(request), NodeId(node.0));
        let done = self.operations.fallocate(&request, node, offset, length, mode as u32);
        reply_empty(reply, done);
    }

    fn lseek(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: fuser::ReplyLseek,
    ) {
        let node = NodeId(node.0);
        let found = match u64::try_from(offset) {
            // Programs take that for "can't tell data from holes" and read everything.
            Ok(_) if self.operations.may_be_unwritten(node) => Err(Errno::EINVAL),
            Ok(offset) => self.operations.seek(node, offset, whence as u32),
            Err(_) => Err(Errno::ENXIO),
        };
        match found {
            // The longest file is far shorter than 2^63.
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &fuser::Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        flags: fuser::CopyFileRangeFlags,
        reply: fuser::ReplyWrite,
    ) {
        let copied = self.operations.copy_range(
            &request_of(request),
            NodeId(from.0),
            from_offset,
            NodeId(to.0),
            to_offset,
            length,
            flags.bits(),
        );
        match copied {
            // One request copies less than 2^32 bytes.
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
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
        // What goes to fuser is the time itself.
        let exact = SystemTime::UNIX_EPOCH - Duration::new(1, 750_000_000);
        assert_eq!(system_time(meant), exact);
    }
}
