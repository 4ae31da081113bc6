//! Each request of fuser, as a call of the operation for it.

use super::agree;
use super::answer::{FuserReply, Opened, answer_sized};
use super::convert::{
    common_parts, entry_parts, file_type, no_attributes, request_of, set_time, timestamp,
};
use crate::operations::{
    EntryReply, Listed, NodeId, Operations, Reply, WriteFlags, outdated_by_refusal,
};
use crate::service::surviving;
use crate::write_back::{Content, WriteBacks};
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, SetAttributes};
use fuser::{
    FileHandle, INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

pub(super) struct Server {
    operations: Arc<Operations>,
    write_backs: Arc<WriteBacks<'static>>,
}

impl Server {
    pub fn new(operations: Arc<Operations>, write_backs: Arc<WriteBacks<'static>>) -> Server {
        Server { operations, write_backs }
    }

    /// Has a request carried out.
    fn does<T>(&self, work: impl FnOnce(&Operations) -> Reply<T>) -> Reply<T> {
        safely(|| work(&self.operations))
    }

    /// Has a request carried out, and answers it.
    fn answer<T>(&self, reply: impl FuserReply<T>, work: impl FnOnce(&Operations) -> Reply<T>) {
        reply.answer(self.does(work));
    }
}

/// Turns a panic into an error: fuser would take the end of the thread for the end of the mount.
fn safely<T>(work: impl FnOnce() -> Reply<T>) -> Reply<T> {
    surviving(work).unwrap_or(Err(Errno::EIO))
}

fn seek(operations: &Operations, node: NodeId, offset: i64, whence: i32) -> Reply<u64> {
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    safely(|| operations.seek(node, offset, whence as u32))
}

/// fuser doesn't pass on the flags with which a directory was opened.
const NO_FLAGS: u32 = 0;

drystone_sync::thread_local! {
    /// What a read puts its bytes into.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl fuser::Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        agree(&self.operations, config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| to.lookup(&caller, parent, name.as_bytes()));
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        surviving(|| self.operations.forget(NodeId(node.0), count));
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let node = NodeId(node.0);
        self.answer(reply, |to| match handle {
            Some(handle) => to.attributes_of_opened(node, handle.0),
            None => to.attributes(node),
        });
    }

    fn setattr(
        &self,
        request: &Request,
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
        reply: ReplyAttr,
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
        let (caller, node) = (request_of(request), NodeId(node.0));
        let by_handle = handle.is_some();
        self.answer(reply, |to| to.set_attributes(&caller, node, &changes, false, by_handle));
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        self.answer(reply, |to| to.read_link(NodeId(node.0)));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| {
            to.make_node(&caller, parent, name.as_bytes(), mode, umask, device)
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| to.make_directory(&caller, parent, name.as_bytes(), mode, umask));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| to.unlink(&caller, parent, name.as_bytes()));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| to.remove_directory(&caller, parent, name.as_bytes()));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        let target = target.as_os_str().as_bytes();
        self.answer(reply, |to| to.symlink(&caller, parent, name.as_bytes(), target));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let caller = request_of(request);
        let (parent, new_parent) = (NodeId(parent.0), NodeId(new_parent.0));
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        self.answer(reply, |to| {
            to.rename(&caller, parent, name, new_parent, new_name, flags.bits())
        });
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        self.answer(reply, |to| to.link(&caller, NodeId(node.0), parent, name.as_bytes()));
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        self.answer(reply, |to| to.open(&caller, node, flags.0 as u32, false).map(Opened::File));
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let bytes = &mut buffer[..size];
            match self.does(|to| to.read(NodeId(node.0), offset, bytes, flags.0 as u32)) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.fail(error),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: fuser::WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        let flags = WriteFlags {
            cached: flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
            kill_set_id: flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let written = match self.does(|to| to.write(&caller, node, offset, data, flags)) {
            Ok(written) => written as u64,
            Err(error) => {
                reply.fail(error);
                let bytes = offset..offset + data.len() as u64;
                if let Some(bytes) = outdated_by_refusal(bytes, flags, error) {
                    self.write_backs.drop_soon(Content { node: node.0, bytes });
                }
                return;
            }
        };
        let bytes = offset..offset + written;
        match self.operations.outdated_by_write(node, bytes, flags, open_flags.0 as u32) {
            None => reply.succeed(written),
            Some(bytes) => {
                let content = Content { node: node.0, bytes };
                self.write_backs.answer_after_drop(content, move || reply.succeed(written));
            }
        }
    }

    fn flush(&self, _: &Request, node: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.answer(reply, |to| to.flush(NodeId(node.0)));
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(reply, |to| to.release(NodeId(node.0), handle.0));
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.answer(reply, |to| to.fsync(NodeId(node.0), data_only));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer(reply, |to| to.open_directory().map(Opened::Directory));
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: fuser::ReplyDirectory,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        let mut add = |entry: &Listed<'_>| {
            let kind = file_type(entry.file_type.unwrap_or(FileType::Regular));
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(entry.inode.0), entry.cookie, kind, name)
        };
        let listed = self.does(|to| to.read_directory(&caller, node, offset, NO_FLAGS, &mut add));
        reply.answer(listed);
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: fuser::ReplyDirectoryPlus,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        let mut add = |listed: &Listed<'_>, entry: &EntryReply| {
            let name = OsStr::from_bytes(listed.name);
            let (mut attributes, ..) = entry_parts(entry);
            let (timeout, generation) = common_parts(entry);
            if entry.attributes.is_none() && (listed.name == b"." || listed.name == b"..") {
                let kind = file_type(listed.file_type.unwrap_or(FileType::Directory));
                attributes = no_attributes(listed.inode.0, kind);
            }
            !reply.add(attributes.ino, listed.cookie, name, &timeout, &attributes, generation)
        };
        // fuser doesn't tell how much room there is.
        let room = usize::MAX;
        let listed =
            self.does(|to| to.read_directory_plus(&caller, node, offset, NO_FLAGS, room, &mut add));
        reply.answer(listed);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.answer(reply, Operations::release_directory);
    }

    fn fsyncdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(reply, |to| to.fsync_directory(NodeId(node.0), data_only));
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: fuser::ReplyStatfs) {
        self.answer(reply, |to| to.statistics(NodeId(node.0)));
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        self.answer(reply, |to| {
            to.set_xattr(&caller, node, name.as_bytes(), value, flags as u32, false)
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        answer_sized(reply, self.does(|to| to.xattr(&caller, node, name.as_bytes())), size);
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        answer_sized(reply, self.does(|to| to.list_xattrs(&caller, node)), size);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        self.answer(reply, |to| to.remove_xattr(&caller, node, name.as_bytes()));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        let (caller, parent) = (request_of(request), NodeId(parent.0));
        let name = name.as_bytes();
        self.answer(reply, |to| to.create(&caller, parent, name, mode, umask, flags as u32));
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: fuser::IoctlFlags,
        number: u32,
        input: &[u8],
        output_bytes_max: u32,
        reply: fuser::ReplyIoctl,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        let bytes_max = output_bytes_max as usize;
        if !self.operations.ioctl_needs_write_back(node, number, input) {
            return self.answer(reply, |to| to.ioctl(&caller, node, number, input, bytes_max));
        }
        let (operations, input) = (Arc::clone(&self.operations), input.to_vec());
        self.write_backs.write_back(Content::all(node.0), move |written| match written {
            Ok(()) => {
                let work = || operations.ioctl(&caller, node, number, &input, bytes_max);
                reply.answer(safely(work));
            }
            Err(_) => reply.answer(Err(Errno::EIO)),
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (caller, node) = (request_of(request), NodeId(node.0));
        self.answer(reply, |to| to.fallocate(&caller, node, offset, length, mode as u32));
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: fuser::ReplyLseek,
    ) {
        let node = NodeId(node.0);
        if !self.operations.may_be_unwritten(node) {
            return reply.answer(seek(&self.operations, node, offset, whence));
        }
        let operations = Arc::clone(&self.operations);
        self.write_backs.write_back(Content::all(node.0), move |written| match written {
            Ok(()) => reply.answer(seek(&operations, node, offset, whence)),
            // Programs then read everything.
            Err(_) => reply.answer(Err(Errno::EINVAL)),
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        flags: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let caller = request_of(request);
        let (from, to, flags) = (NodeId(from.0), NodeId(to.0), flags.bits());
        self.answer(reply, |operations| {
            operations.copy_range(&caller, from, from_offset, to, to_offset, length, flags)
        });
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
