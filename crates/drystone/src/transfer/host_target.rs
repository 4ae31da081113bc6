//! The files of this machine as a target.
//!
//! What is copied may be hostile. Nothing is ever made or opened by a path: only by one name in an
//! open directory, without following a symbolic link, starting at the directory that the user
//! named.

use super::CopyOptions;
use super::ends::{CopyTarget, EndResult};
use super::facts::{ACCESS_ACL, DEFAULT_ACL, InodeFacts, Xattrs, permissions_without_acl};
use super::host_directory::{HostDirectory, OpenDirectories};
use super::host_source::path_below;
use super::problem::{Cause, CopyProblem, LostProperty, Side};
use crate::replace::under_free_name;
use drystone_sync::Arc;
use drystone_vfs::{Error, FileType, Timestamp, mode};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory of this machine that is copied into.
pub(super) struct HostTarget {
    start: Arc<HostDirectory>,
    directories: OpenDirectories,
    keep_owners: bool,
    /// What is never replaced, as device and inode number.
    spared: Vec<(u64, u64)>,
}

/// One inode that was made.
pub(super) enum HostTargetNode {
    Directory(Arc<HostDirectory>),
    /// A regular file.
    File(OwnedFd),
    /// Anything else: opening it would have effects or is impossible.
    Named {
        directory: Arc<OwnedFd>,
        name: OsString,
    },
}

impl HostTargetNode {
    fn file(&self) -> EndResult<&OwnedFd> {
        match self {
            HostTargetNode::File(fd) => Ok(fd),
            HostTargetNode::Directory(_) => Err(Errno::ISDIR.into()),
            HostTargetNode::Named { .. } => Err(Errno::BADF.into()),
        }
    }
}

/// A file that gets further names: the directory of its first one, which need not stay open, and that.
#[derive(Clone)]
pub(super) struct HostOriginal {
    directory: Arc<HostDirectory>,
    name: OsString,
}

/// What an inode is changed by.
enum HostHandle<'n> {
    Open(&'n OwnedFd),
    Named { directory: &'n OwnedFd, name: &'n OsStr },
}

impl HostTarget {
    /// Opens the directory that the user named, the only path that is followed.
    pub fn new(into: &Path, options: &CopyOptions) -> Result<HostTarget, CopyProblem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = rustix::fs::openat(CWD, into, flags, Mode::empty())
            .map_err(|errno| CopyProblem::new(Side::Target, "open", into, errno.into()))?;
        let start = HostDirectory::start(start);
        Ok(HostTarget {
            start,
            directories: OpenDirectories::new(),
            keep_owners: options.keep_owners,
            spared: options.excluded.clone(),
        })
    }

    /// The descriptor of a directory.
    fn directory(&self, node: &HostTargetNode) -> EndResult<Arc<OwnedFd>> {
        match node {
            HostTargetNode::Directory(directory) => self.directories.fd(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Makes an entry, under a free name beside what has the name, which is returned. A directory that has it is an
    /// error.
    fn beside<T>(
        &self,
        directory: &OwnedFd,
        name: &OsStr,
        make: impl Fn(&OsStr) -> EndResult<T>,
    ) -> EndResult<(T, Option<OsString>)> {
        let is_taken = |cause: &Cause| matches!(cause, Cause::Host(Errno::EXIST));
        match make(name) {
            Err(cause) if is_taken(&cause) => {}
            made => return Ok((made?, None)),
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok((make(name)?, None)),
            stat => stat?,
        };
        if FileType::from_mode(stat.st_mode as u16) == Some(FileType::Directory) {
            return Err(Errno::ISDIR.into());
        }
        if self.spared.contains(&(stat.st_dev, stat.st_ino)) {
            let detail = "it is the image itself";
            return Err(Error::with_detail(drystone_vfs::Errno::EBUSY, detail).into());
        }
        let (other, made) = under_free_name(|other| make(OsStr::new(other)), is_taken)?;
        Ok((made, Some(other.into())))
    }

    /// Makes anything but a directory; a regular file is open.
    fn create(
        &self,
        directory: &OwnedFd,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<Option<OwnedFd>> {
        // Nobody else may look in before the owner and permissions are the right ones.
        let private = Mode::RUSR | Mode::WUSR;
        match facts.file_type {
            FileType::Regular => {
                let flags = OFlags::RDWR
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                return Ok(Some(rustix::fs::openat(directory, name, flags, private)?));
            }
            FileType::Directory => return Err(Errno::ISDIR.into()),
            FileType::Symlink => {
                rustix::fs::symlinkat(OsStr::from_bytes(&facts.target), directory, name)?;
            }
            FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket => {
                let kind = rustix::fs::FileType::from_raw_mode(facts.file_type.mode_bits().into());
                let device = rustix::fs::makedev(facts.device.major, facts.device.minor);
                rustix::fs::mknodat(directory, name, kind, private, device)?;
            }
        }
        Ok(None)
    }

    fn finish_handle(
        &self,
        handle: &HostHandle<'_>,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        not_kept: &mut dyn FnMut(LostProperty, Cause),
    ) -> EndResult<()> {
        let mut permissions = facts.permissions;
        // A change of the owner takes away set-id bits and capabilities: it comes first.
        let owner_is_right = self.keep_owners && handle.set_owner(facts)?;
        if !owner_is_right {
            // A set-id bit would lend the rights of the wrong user.
            permissions &= !(mode::SET_USER_ID | mode::SET_GROUP_ID);
            if self.keep_owners {
                not_kept(LostProperty::Owner, Errno::PERM.into());
            }
        }
        if may_inherit && let HostHandle::Open(fd) = handle {
            for acl in [ACCESS_ACL, DEFAULT_ACL] {
                if !xattrs.iter().any(|(name, _)| name == acl) {
                    // Most have none, and many file systems know none.
                    let _ = rustix::fs::fremovexattr(fd, acl);
                }
            }
        }
        let is_acl = |name: &[u8]| name == ACCESS_ACL || name == DEFAULT_ACL;
        let mut set = |name: &[u8], value: &[u8]| {
            let Err(error) = handle.set_xattr(name, value) else { return Ok(()) };
            let cause = Cause::from(error);
            let is_refused = matches!(error, Errno::ACCESS | Errno::INVAL);
            if !is_refused && !cause.is_unsupported() && !cause.is_too_large() {
                return Err(cause);
            }
            not_kept(LostProperty::Xattr(name.to_vec()), cause);
            Ok(())
        };
        // Without rights to write, attributes can't be set; and ACLs decide some of the
        // permissions, which would be overwritten.
        for (name, value) in xattrs.iter().filter(|(name, _)| !is_acl(name)) {
            set(name, value)?;
        }
        if facts.file_type != FileType::Symlink {
            // If the ACL can be set, it makes them what they are with it.
            handle.set_permissions(permissions_without_acl(permissions, xattrs))?;
        }
        for (name, value) in xattrs.iter().filter(|(name, _)| is_acl(name)) {
            set(name, value)?;
        }
        handle.set_times(facts)
    }
}

impl HostHandle<'_> {
    /// Sets the owner; false if the caller may not.
    fn set_owner(&self, facts: &InodeFacts) -> EndResult<bool> {
        // For the system this number means that the owner stays.
        if [facts.user, facts.group].contains(&u32::MAX) {
            return Ok(false);
        }
        let user = Some(Uid::from_raw(facts.user));
        let group = Some(Gid::from_raw(facts.group));
        let result = match self {
            HostHandle::Open(fd) => rustix::fs::fchown(fd, user, group),
            HostHandle::Named { directory, name } => {
                rustix::fs::chownat(directory, *name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        match result {
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn set_permissions(&self, permissions: u16) -> EndResult<()> {
        let permissions = Mode::from_raw_mode(permissions.into());
        match self {
            HostHandle::Open(fd) => Ok(rustix::fs::fchmod(fd, permissions)?),
            HostHandle::Named { directory, name } => {
                // There is no call that doesn't follow links on all kernels: hold the inode itself.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inode = rustix::fs::openat(directory, *name, flags, Mode::empty())?;
                let is_link = rustix::fs::fstat(&inode)?.st_mode & 0o170_000 == 0o120_000;
                if is_link {
                    return Err(Errno::LOOP.into());
                }
                let path = path_below(inode.as_fd(), OsStr::new(""));
                Ok(rustix::fs::chmodat(CWD, strip_slash(&path), permissions, AtFlags::empty())?)
            }
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
        match self {
            HostHandle::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            HostHandle::Named { directory, name: entry } => {
                let path = path_below(directory.as_fd(), entry);
                rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty())
            }
        }
    }

    fn set_times(&self, facts: &InodeFacts) -> EndResult<()> {
        let times = Timestamps {
            last_access: timespec(facts.accessed),
            last_modification: timespec(facts.modified),
        };
        let set = match self {
            HostHandle::Open(fd) => rustix::fs::futimens(fd, &times),
            HostHandle::Named { directory, name } => {
                rustix::fs::utimensat(directory, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        Ok(set?)
    }
}

impl CopyTarget for HostTarget {
    type Node = HostTargetNode;
    type Original = HostOriginal;

    fn start(&self, _path: &Path) -> EndResult<HostTargetNode> {
        Ok(HostTargetNode::Directory(self.start.clone()))
    }

    fn enclosing(&self, _start: &HostTargetNode) -> EndResult<Vec<(u64, u64)>> {
        // The source is an image: nothing of the host is in it.
        Ok(Vec::new())
    }

    fn make_directory(
        &self,
        directory: &HostTargetNode,
        name: &OsStr,
        _facts: &InodeFacts,
    ) -> EndResult<(HostTargetNode, bool)> {
        let HostTargetNode::Directory(parent) = directory else { return Err(Errno::NOTDIR.into()) };
        let parent_fd = self.directories.fd(parent)?;
        let existed = match rustix::fs::mkdirat(&parent_fd, name, Mode::RWXU) {
            Ok(()) => false,
            Err(Errno::EXIST) => true,
            Err(error) => return Err(error.into()),
        };
        Ok((HostTargetNode::Directory(self.directories.open(parent, name)?), existed))
    }

    fn make(
        &self,
        directory: &HostTargetNode,
        name: &OsStr,
        facts: &InodeFacts,
    ) -> EndResult<(HostTargetNode, Option<OsString>)> {
        let directory = self.directory(directory)?;
        let create = |name: &OsStr| self.create(&directory, name, facts);
        let (made, made_as) = self.beside(&directory, name, create)?;
        let node = match made {
            Some(file) => HostTargetNode::File(file),
            None => {
                let name = made_as.as_deref().unwrap_or(name).to_os_string();
                HostTargetNode::Named { directory, name }
            }
        };
        Ok((node, made_as))
    }

    fn settle(&self, directory: &HostTargetNode, made_as: &OsStr, name: &OsStr) -> EndResult<()> {
        let directory = self.directory(directory)?;
        Ok(rustix::fs::renameat(&directory, made_as, &directory, name)?)
    }

    fn discard(&self, directory: &HostTargetNode, made_as: &OsStr) {
        // What went wrong before is what is told.
        let _ = self
            .directory(directory)
            .and_then(|directory| Ok(rustix::fs::unlinkat(directory, made_as, AtFlags::empty())?));
    }

    fn write(&self, file: &HostTargetNode, mut offset: u64, mut data: &[u8]) -> EndResult<()> {
        while !data.is_empty() {
            match rustix::io::pwrite(file.file()?, data, offset) {
                Ok(0) => return Err(Errno::NOSPC.into()),
                Ok(written) => {
                    offset += written as u64;
                    data = &data[written..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set_size(&self, file: &HostTargetNode, size: u64) -> EndResult<()> {
        Ok(rustix::fs::ftruncate(file.file()?, size)?)
    }

    fn finish(
        &self,
        node: &HostTargetNode,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        not_kept: &mut dyn FnMut(LostProperty, Cause),
    ) -> EndResult<()> {
        let opened;
        let handle = match node {
            HostTargetNode::Directory(directory) => {
                opened = self.directories.fd(directory)?;
                HostHandle::Open(&opened)
            }
            HostTargetNode::File(fd) => HostHandle::Open(fd),
            HostTargetNode::Named { directory, name } => HostHandle::Named { directory, name },
        };
        self.finish_handle(&handle, facts, xattrs, may_inherit, not_kept)
    }

    fn keep(
        &self,
        _node: HostTargetNode,
        directory: &HostTargetNode,
        name: &OsStr,
    ) -> HostOriginal {
        let HostTargetNode::Directory(directory) = directory else {
            unreachable!("entries are made in directories");
        };
        HostOriginal { directory: directory.clone(), name: name.to_os_string() }
    }

    fn link(
        &self,
        original: &HostOriginal,
        directory: &HostTargetNode,
        name: &OsStr,
    ) -> EndResult<()> {
        let into = self.directory(directory)?;
        let (holder, file) = (self.directories.fd(&original.directory)?, &original.name);
        let link = |name: &OsStr| {
            match rustix::fs::linkat(&holder, file, &into, name, AtFlags::empty()) {
                Err(Errno::EXIST) => {
                    // It may be there already.
                    let identity = |fd: &OwnedFd, name: &OsStr| {
                        rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                            .map(|stat| (stat.st_dev, stat.st_ino))
                    };
                    if identity(&holder, file)? == identity(&into, name)? {
                        return Ok(());
                    }
                    Err(Errno::EXIST.into())
                }
                linked => Ok(linked?),
            }
        };
        let ((), linked_as) = self.beside(&into, name, link)?;
        let Some(linked_as) = linked_as else { return Ok(()) };
        self.settle(directory, &linked_as, name)
            .inspect_err(|_| self.discard(directory, &linked_as))
    }

    fn leave(&self, directory: &HostTargetNode) {
        if let HostTargetNode::Directory(directory) = directory {
            self.directories.leave(directory);
        }
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}

/// `path` without the slash that joining an empty name leaves.
fn strip_slash(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(bytes.strip_suffix(b"/").unwrap_or(bytes)))
}
