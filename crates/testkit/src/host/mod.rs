//! Operations by system calls below a directory, so that two mounted file systems can be compared
//! call by call.
//!
//! Paths are looked up below the directory as if it were the root, so that no symbolic link leads
//! out of it. Mount what is below it with `nodev`: the operations make devices and open them.

mod attributes;
mod compare;
mod content;
mod identity;
mod names;

pub use compare::check_directories;
pub use identity::become_root_without_umask;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx,
};
use rustix::io::Errno;

use crate::operations::{Action, Operation, OperationTarget, Word};

/// The outcome of an operation: the error, or what a caller sees.
pub type HostOutcome = std::result::Result<String, Errno>;

type Result<T> = std::result::Result<T, Errno>;

/// Runs operations below a directory and holds the files that they open.
#[derive(Debug)]
pub struct HostExecutor {
    root: OwnedFd,
    slots: BTreeMap<u8, OwnedFd>,
}

impl HostExecutor {
    /// An executor below `directory` that holds nothing.
    pub fn new(directory: &Path) -> std::io::Result<HostExecutor> {
        let root = openat(CWD, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(HostExecutor { root, slots: BTreeMap::new() })
    }

    /// Does one operation as its actor.
    pub fn apply(&mut self, operation: &Operation) -> HostOutcome {
        identity::act_as(operation.actor, || self.run(&operation.action))
    }

    /// Closes all files.
    pub fn close_all(&mut self) {
        self.slots.clear();
    }

    fn run(&mut self, action: &Action) -> HostOutcome {
        match action {
            _ if action.is_on_names() => self.run_on_names(action),
            _ if action.is_on_content() => self.run_on_content(action),
            Action::Open { path, slot, kind } => {
                let flags = match kind.flags() {
                    flags if flags.contains(drystone_vfs::OpenFlags::TRUNCATE) => {
                        OFlags::WRONLY | OFlags::TRUNC
                    }
                    flags if flags == drystone_vfs::OpenFlags::READ => OFlags::RDONLY,
                    flags if flags == drystone_vfs::OpenFlags::WRITE => OFlags::WRONLY,
                    _ => OFlags::RDWR,
                };
                let file = self.open(path, flags)?;
                let description = describe(file.as_fd())?;
                self.slots.insert(*slot, file);
                Ok(description)
            }
            Action::Close { slot } => {
                self.slots.remove(slot).ok_or(Errno::BADF)?;
                Ok(String::new())
            }
            Action::Sync {} => rustix::fs::syncfs(&self.root).map(|()| String::new()),
            _ => self.run_on_attributes(action),
        }
    }

    /// The directory of a path, opened, and the last name.
    fn parent<'p>(&self, path: &'p Word) -> Result<(OwnedFd, &'p OsStr)> {
        let bytes = &path.0[..];
        let at = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (directory, name) = (&bytes[..at], &bytes[(at + 1).min(bytes.len())..]);
        let parent = if directory.is_empty() { b"." } else { directory };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT;
        let parent = openat2(&self.root, OsStr::from_bytes(parent), flags, Mode::empty(), how)?;
        // The root itself.
        let name = if name.is_empty() { b"." } else { name };
        Ok((parent, OsStr::from_bytes(name)))
    }

    /// Opens what a path names, without following a symbolic link at the end.
    fn open(&self, path: &Word, flags: OFlags) -> Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        let fixed = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&parent, name, flags | fixed, Mode::empty())
    }

    /// Calls `action` with an open file: the slot's, or one opened for it.
    fn at_open<T>(
        &self,
        target: &OperationTarget,
        flags: OFlags,
        action: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        match target {
            OperationTarget::Slot(slot) => action(self.slots.get(slot).ok_or(Errno::BADF)?.as_fd()),
            OperationTarget::Path(path) => action(self.open(path, flags)?.as_fd()),
        }
    }

    /// Calls `action` with a descriptor that only names the inode.
    fn at_inode<T>(
        &self,
        target: &OperationTarget,
        action: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        self.at_open(target, OFlags::PATH, action)
    }
}

/// A path by which system calls that take no descriptor reach an open file.
fn path_of(file: BorrowedFd<'_>) -> OsString {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// What callers see of an inode, on which file systems have to agree.
fn describe(file: BorrowedFd<'_>) -> HostOutcome {
    let seen = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let file_type = FileType::from_raw_mode(seen.stx_mode.into());
    let size = match file_type {
        FileType::Directory => String::new(),
        _ => format!(" size {}", seen.stx_size),
    };
    Ok(format!(
        "{file_type:?} {:04o} links {} owner {}:{}{size} device {}:{}",
        seen.stx_mode & 0o7777,
        seen.stx_nlink,
        seen.stx_uid,
        seen.stx_gid,
        seen.stx_rdev_major,
        seen.stx_rdev_minor,
    ))
}
