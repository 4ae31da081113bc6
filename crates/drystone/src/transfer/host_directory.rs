//! Directories of this machine that are read or made. A tree may be deeper than the number of files
//! that a process may open: only some directories are open, the others are opened again when they are
//! needed.
//!
//! # Locking
//!
//! Both locks are held for moments, never while the system is called.

use super::ends::EndResult;
use drystone_sync::{Arc, LockClass, Mutex, Weak};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;

static DIRECTORY: LockClass = LockClass::new("transfer directory", 4);
static OPEN_DIRECTORIES: LockClass = LockClass::new("transfer open directories", 5);

/// How many directories are kept open. By default Linux lets a process open 1024 files.
const OPEN_MAX: usize = 128;

/// Device and inode number.
type OpenIdentity = (u64, u64);

enum DirectoryState {
    Open(Arc<OwnedFd>),
    /// What it must be when it is opened again.
    Closed(OpenIdentity),
}

/// A directory at or below the start.
pub(crate) struct HostDirectory {
    /// None for the start, which stays open.
    parent: Option<Arc<HostDirectory>>,
    name: OsString,
    state: Mutex<DirectoryState>,
}

impl HostDirectory {
    /// The directory that the user named.
    pub fn start(fd: OwnedFd) -> Arc<HostDirectory> {
        let state = Mutex::new(&DIRECTORY, DirectoryState::Open(Arc::new(fd)));
        Arc::new(HostDirectory { parent: None, name: OsString::new(), state })
    }

    fn opened(&self) -> Option<Arc<OwnedFd>> {
        match &*self.state.lock() {
            DirectoryState::Open(fd) => Some(fd.clone()),
            DirectoryState::Closed(_) => None,
        }
    }

    fn close(&self) -> rustix::io::Result<()> {
        let Some(fd) = self.opened() else { return Ok(()) };
        let identity = identity(&fd)?;
        *self.state.lock() = DirectoryState::Closed(identity);
        Ok(())
    }

    /// Takes `fd` for this directory if it is the one that was closed.
    fn reopen(&self, fd: OwnedFd) -> rustix::io::Result<Arc<OwnedFd>> {
        let found = identity(&fd)?;
        let mut state = self.state.lock();
        match &*state {
            DirectoryState::Open(fd) => Ok(fd.clone()),
            DirectoryState::Closed(expected) if *expected == found => {
                let fd = Arc::new(fd);
                *state = DirectoryState::Open(fd.clone());
                Ok(fd)
            }
            // Another directory is in its place now.
            DirectoryState::Closed(_) => Err(Errno::STALE),
        }
    }
}

impl Drop for HostDirectory {
    /// One after the other: a deep tree would take the whole stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}

/// The directories that are open, the one that was opened first in front.
pub(crate) struct OpenDirectories(Mutex<VecDeque<Weak<HostDirectory>>>);

impl OpenDirectories {
    pub fn new() -> OpenDirectories {
        OpenDirectories(Mutex::new(&OPEN_DIRECTORIES, VecDeque::new()))
    }

    /// Opens the directory `name` in `parent`, which must be one and no link to one.
    pub fn open(&self, parent: &Arc<HostDirectory>, name: &OsStr) -> EndResult<Arc<HostDirectory>> {
        let fd = Arc::new(open_directory(&*self.fd(parent)?, name)?);
        let directory = Arc::new(HostDirectory {
            parent: Some(parent.clone()),
            name: name.to_os_string(),
            state: Mutex::new(&DIRECTORY, DirectoryState::Open(fd)),
        });
        self.note(&directory);
        Ok(directory)
    }

    /// The descriptor of a directory, which is opened again if need be: name by name from the next
    /// one above that is open, as carefully as the first time.
    pub fn fd(&self, directory: &Arc<HostDirectory>) -> EndResult<Arc<OwnedFd>> {
        if let Some(fd) = directory.opened() {
            return Ok(fd);
        }
        let mut names = vec![&directory.name];
        let mut above = directory.parent.as_ref();
        let mut holder = loop {
            let Some(parent) = above else { return Err(Errno::STALE.into()) };
            if let Some(fd) = parent.opened() {
                break fd;
            }
            names.push(&parent.name);
            above = parent.parent.as_ref();
        };
        let Some((last, ways)) = names.split_first() else { return Err(Errno::STALE.into()) };
        for name in ways.iter().rev() {
            holder = Arc::new(open_directory(&holder, name)?);
        }
        let fd = directory.reopen(open_directory(&holder, last)?)?;
        self.note(directory);
        Ok(fd)
    }

    /// Called for a directory that is complete: its parent is needed next, and is opened from here
    /// if it was closed. From the start, the way back out of a deep tree would take the square of
    /// its depth.
    pub fn leave(&self, directory: &HostDirectory) {
        let Some(parent) = &directory.parent else { return };
        let Some(fd) = directory.opened() else { return };
        if parent.opened().is_none()
            && let Ok(above) = open_directory(&fd, OsStr::new(".."))
            && parent.reopen(above).is_ok()
        {
            self.note(parent);
        }
    }

    /// Counts a directory that was opened, and closes the one that has been open for longest.
    fn note(&self, directory: &Arc<HostDirectory>) {
        let oldest = {
            let mut open = self.0.lock();
            open.push_back(Arc::downgrade(directory));
            if open.len() > OPEN_MAX { open.pop_front() } else { None }
        };
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            // If its identity can't be read, it stays open.
            let _ = oldest.close();
        }
    }
}

fn identity(fd: &OwnedFd) -> rustix::io::Result<OpenIdentity> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens one name in a directory, without following a link.
fn open_directory(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    open_quietly(directory, name, OFlags::DIRECTORY)
}

/// Opens one name in a directory for reading, without following a link, and without a trace in the
/// time of access where that is possible: only the owner may leave it alone.
pub(super) fn open_quietly(
    directory: &OwnedFd,
    name: &OsStr,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(directory, name, flags, Mode::empty()),
        other => other,
    }
}
