//! Requests that come through `/dev/fuse`, taken apart and answered by the `fuser` library.
//!
//! Several threads read from the device, each from a descriptor of its own, to avoid contention.
//!
//! # What fuser lacks
//!
//! `O_TMPFILE` (programs get `EOPNOTSUPP`), `SETXATTR_EXT` and
//! `HANDLE_KILLPRIV_V2` (asking for them breaks its parsing): the kernel clears set-id bits itself,
//! which costs it a look at `security.capability` for each write call.

mod convert;

use crate::operations::{NodeId, Operations, Reply, WriteFlags};
use crate::service::surviving;
use crate::write_back::{Content, WriteBacks};
use crate::{KernelCapabilities, wanted_capabilities};
use convert::{
    OPENED, common_parts, entry_parts, errno, file_type, no_attributes, reply_attributes,
    reply_empty, reply_entry, reply_sized, request_of, set_time, timestamp,
};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileType, SetAttributes};
use fuser::{
    Config, FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier,
    OpenFlags, RenameFlags, SessionACL, TimeOrNow,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// A mount that [`Session::run`] serves.
pub(crate) struct FuserSession {
    session: fuser::Session<Server>,
    write_backs: Arc<WriteBacks<'static>>,
}

impl FuserSession {
    /// Agrees with the kernel on how the mount behind `device` works.
    pub(crate) fn begin(operations: Arc<Operations>, device: OwnedFd) -> io::Result<FuserSession> {
        let threads = operations.options().thread_count();
        let mut config = Config::default();
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        // The mount's options decide which users the kernel lets in.
        let background_max = operations.options().background_requests_max;
        let write_backs = Arc::new(WriteBacks::beside(background_max));
        let server = Server { operations, write_backs: Arc::clone(&write_backs) };
        let session = fuser::Session::from_fd(server, device, SessionACL::All, config)?;
        Ok(FuserSession { session, write_backs })
    }

    /// Answers requests until the mount is gone and all threads have ended.
    pub(crate) fn run(self) -> io::Result<()> {
        let FuserSession { session, write_backs } = self;
        let notifier = session.notifier();
        let drop_content = |content: &Content| drop_content(&notifier, content);
        thread::scope(|scope| {
            let _ends = write_backs.ends();
            thread::spawn_in(scope, "write-back", || write_backs.run(drop_content))?;
            thread::spawn_in(scope, "held answers", || write_backs.watch())?;
            // A request that a thread had just taken when the mount ended is aborted.
            session.run().or_else(|error| match error.kind() {
                io::ErrorKind::ConnectionAborted => Ok(()),
                _ => Err(error),
            })
        })
    }
}

/// Has the kernel write what it holds of some content.
fn drop_content(notifier: &Notifier, content: &Content) -> Result<(), rustix::io::Errno> {
    let (offset, length) = content.offset_and_length();
    let told = notifier.inval_inode(INodeNo(content.node), offset, length);
    told.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

struct Server {
    operations: Arc<Operations>,
    write_backs: Arc<WriteBacks<'static>>,
}

impl Server {
    /// Has a request carried out.
    fn does<T>(&self, work: impl FnOnce(&Operations) -> Reply<T>) -> Reply<T> {
        safely(|| work(&self.operations))
    }
}

/// Turns a panic into an error: fuser would take the end of the thread for the end of the mount.
fn safely<T>(work: impl FnOnce() -> Reply<T>) -> Reply<T> {
    surviving(work).unwrap_or(Err(Errno::EIO))
}

/// fuser doesn't pass on the flags with which a directory was opened.
const NO_FLAGS: u32 = 0;

drystone_sync::thread_local! {
    /// What a read puts its bytes into.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl fuser::Filesystem for Server {
    fn init(&mut self, _request: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let options = self.operations.options();
        // Without `HANDLE_KILLPRIV_V2` the kernel clears set-id bits when it truncates a file itself, but
        // not when `open` is to truncate it.
        let unknown = KernelCapabilities::HANDLE_KILLPRIV_V2
            | KernelCapabilities::SETXATTR_EXT
            | KernelCapabilities::ATOMIC_O_TRUNC;
        let wanted = wanted_capabilities(options) - unknown - KernelCapabilities::INIT_EXT;
        let offered = config.capabilities();
        let wanted = InitFlags::from_bits_retain(wanted.bits()) & offered;
        // Only offered capabilities are left.
        let _ = config.add_capabilities(wanted);
        // On error these return the nearest possible value.
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
        let found = self.does(|operations| {
            operations.lookup(&request_of(request), NodeId(parent.0), name.as_bytes())
        });
        reply_entry(reply, found);
    }

    fn forget(&self, _request: &fuser::Request, node: INodeNo, count: u64) {
        surviving(|| self.operations.forget(NodeId(node.0), count));
    }

    fn getattr(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        handle: Option<FileHandle>,
        reply: fuser::ReplyAttr,
    ) {
        let node = NodeId(node.0);
        let found = match handle {
            Some(handle) => self.does(|operations| operations.attributes_of_opened(node, handle.0)),
            None => self.does(|operations| operations.attributes(node)),
        };
        reply_attributes(reply, found);
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
        handle: Option<FileHandle>,
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
        let by_handle = handle.is_some();
        let node = NodeId(node.0);
        let changed = self.does(|operations| {
            operations.set_attributes(&request, node, &changes, false, by_handle)
        });
        reply_attributes(reply, changed);
    }

    fn readlink(&self, _request: &fuser::Request, node: INodeNo, reply: fuser::ReplyData) {
        match self.does(|operations| operations.read_link(NodeId(node.0))) {
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
        let made = self
            .does(|operations| operations.make_node(&request, parent, name, mode, umask, device));
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
        let made = self.does(|operations| {
            operations.make_directory(&request, parent, name.as_bytes(), mode, umask)
        });
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
        reply_empty(
            reply,
            self.does(|operations| operations.unlink(&request, parent, name.as_bytes())),
        );
    }

    fn rmdir(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        reply: fuser::ReplyEmpty,
    ) {
        let (request, parent) = (request_of(request), NodeId(parent.0));
        reply_empty(
            reply,
            self.does(|operations| operations.remove_directory(&request, parent, name.as_bytes())),
        );
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
        let made =
            self.does(|operations| operations.symlink(&request, parent, name.as_bytes(), target));
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
        let renamed = self.does(|operations| {
            operations.rename(
                &request_of(request),
                NodeId(parent.0),
                name.as_bytes(),
                NodeId(new_parent.0),
                new_name.as_bytes(),
                flags.bits(),
            )
        });
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
        let linked = self
            .does(|operations| operations.link(&request, NodeId(node.0), parent, name.as_bytes()));
        reply_entry(reply, linked);
    }

    fn open(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        flags: OpenFlags,
        reply: fuser::ReplyOpen,
    ) {
        match self.does(|operations| {
            operations.open(&request_of(request), NodeId(node.0), flags.0 as u32, false)
        }) {
            Ok(handle) => reply.opened(FileHandle(handle), OPENED),
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
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.does(|operations| {
                operations.read(NodeId(node.0), offset, &mut buffer[..size], flags.0 as u32)
            }) {
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
        open_flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyWrite,
    ) {
        let flags = WriteFlags {
            cached: flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
            kill_set_id: flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let written = self.does(|operations| {
            operations.write(&request_of(request), NodeId(node.0), offset, data, flags)
        });
        let written = match written {
            Ok(written) => written,
            Err(error) => return reply.error(errno(error)),
        };
        let bytes = offset..offset + written as u64;
        let outdated =
            self.operations.outdated_by_write(NodeId(node.0), bytes, flags, open_flags.0 as u32);
        match outdated {
            None => reply.written(written as u32),
            Some(bytes) => {
                let content = Content { node: node.0, bytes };
                self.write_backs.answer_after_drop(content, move || reply.written(written as u32));
            }
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
        reply_empty(reply, self.does(|operations| operations.flush(NodeId(node.0))));
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
        reply_empty(reply, self.does(|operations| operations.release(NodeId(node.0), handle.0)));
    }

    fn fsync(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(reply, self.does(|operations| operations.fsync(NodeId(node.0), data_only)));
    }

    fn opendir(
        &self,
        _request: &fuser::Request,
        _node: INodeNo,
        _flags: OpenFlags,
        reply: fuser::ReplyOpen,
    ) {
        match self.does(|operations| operations.open_directory()) {
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
        let listed = self.does(|operations| {
            operations.read_directory(&request, NodeId(node.0), offset, NO_FLAGS, &mut |entry| {
                let kind = file_type(entry.file_type.unwrap_or(FileType::Regular));
                let name = OsStr::from_bytes(entry.name);
                !reply.add(INodeNo(entry.inode.0), entry.cookie, kind, name)
            })
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
        // fuser doesn't tell how much room there is.
        let listed = self.does(|operations| {
            operations.read_directory_plus(
                &request,
                NodeId(node.0),
                offset,
                NO_FLAGS,
                usize::MAX,
                &mut |listed, entry| {
                    let name = OsStr::from_bytes(listed.name);
                    let (mut attributes, ..) = entry_parts(entry);
                    let (timeout, generation) = common_parts(entry);
                    if entry.attributes.is_none() && (listed.name == b"." || listed.name == b"..") {
                        let kind = file_type(listed.file_type.unwrap_or(FileType::Directory));
                        attributes = no_attributes(listed.inode.0, kind);
                    }
                    !reply.add(
                        attributes.ino,
                        listed.cookie,
                        name,
                        &timeout,
                        &attributes,
                        generation,
                    )
                },
            )
        });
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
        reply_empty(reply, self.does(|operations| operations.release_directory()));
    }

    fn fsyncdir(
        &self,
        _request: &fuser::Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: fuser::ReplyEmpty,
    ) {
        reply_empty(
            reply,
            self.does(|operations| operations.fsync_directory(NodeId(node.0), data_only)),
        );
    }

    fn statfs(&self, _request: &fuser::Request, node: INodeNo, reply: fuser::ReplyStatfs) {
        match self.does(|operations| operations.statistics(NodeId(node.0))) {
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
        let set = self.does(|operations| {
            operations.set_xattr(&request, node, name, value, flags as u32, false)
        });
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
        let value = self.does(|operations| {
            operations.xattr(&request_of(request), NodeId(node.0), name.as_bytes())
        });
        reply_sized(reply, value, size);
    }

    fn listxattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        size: u32,
        reply: fuser::ReplyXattr,
    ) {
        let names =
            self.does(|operations| operations.list_xattrs(&request_of(request), NodeId(node.0)));
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
        reply_empty(
            reply,
            self.does(|operations| operations.remove_xattr(&request, node, name.as_bytes())),
        );
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
        match self
            .does(|operations| operations.create(&request, parent, name, mode, umask, flags as u32))
        {
            Ok(created) => {
                let (attributes, ..) = entry_parts(&created.entry);
                let (timeout, generation) = common_parts(&created.entry);
                let handle = FileHandle(created.handle);
                reply.created(&timeout, &attributes, generation, handle, OPENED);
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
        match self
            .does(|operations| operations.ioctl(&request, node, number, input, output_bytes_max))
        {
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
        let done = self
            .does(|operations| operations.fallocate(&request, node, offset, length, mode as u32));
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
        if !self.operations.may_be_unwritten(node) {
            return reply_place(reply, seek(&self.operations, node, offset, whence));
        }
        let operations = Arc::clone(&self.operations);
        self.write_backs.write_back(Content::all(node.0), move |written| match written {
            Ok(()) => reply_place(reply, seek(&operations, node, offset, whence)),
            Err(error) => reply.error(fuser::Errno::from_i32(error.raw_os_error())),
        });
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
        let copied = self.does(|operations| {
            operations.copy_range(
                &request_of(request),
                NodeId(from.0),
                from_offset,
                NodeId(to.0),
                to_offset,
                length,
                flags.bits(),
            )
        });
        match copied {
            // One request copies less than 2^32 bytes.
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn seek(operations: &Operations, node: NodeId, offset: i64, whence: i32) -> Reply<u64> {
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    safely(|| operations.seek(node, offset, whence as u32))
}

fn reply_place(reply: fuser::ReplyLseek, found: Reply<u64>) {
    match found {
        // The longest file is far shorter than 2^63.
        Ok(offset) => reply.offset(offset as i64),
        Err(error) => reply.error(errno(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panics_fails() {
        assert_eq!(safely(|| Ok(1)), Ok(1));
        assert_eq!(safely::<()>(|| Err(Errno::ENOENT)), Err(Errno::ENOENT));
        assert_eq!(safely::<()>(|| panic!("a bug")), Err(Errno::EIO));
    }
}
