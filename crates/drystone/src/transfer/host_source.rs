//! The files of this machine as a source.

use super::ends::{CopySource, EndResult};
use super::facts::{InodeFacts, Xattrs, is_copied_xattr};
use super::host_directory::{HostDirectory, OpenDirectories, open_quietly};
use drystone_sync::Arc;
use drystone_vfs::{DeviceNumber, FileType, Timestamp};
use rustix::fs::{AtFlags, CWD, Dir, FileType as HostFileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The largest value of an extended attribute, and the largest list of names, on Linux.
const XATTR_MAX: usize = 65536;

/// The files of this machine.
pub(crate) struct HostSource {
    directories: OpenDirectories,
}

/// One inode of the host.
pub(crate) enum HostSourceNode {
    /// Found, not opened.
    Found { directory: Arc<HostDirectory>, name: OsString },
    /// A directory that can be read.
    Directory(Arc<HostDirectory>),
    /// A regular file that can be read.
    File(OwnedFd),
}

impl HostSourceNode {
    fn file(&self) -> EndResult<&OwnedFd> {
        match self {
            HostSourceNode::File(fd) => Ok(fd),
            _ => Err(Errno::BADF.into()),
        }
    }

    fn directory(&self) -> EndResult<&Arc<HostDirectory>> {
        match self {
            HostSourceNode::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }
}

impl HostSource {
    pub fn new() -> HostSource {
        HostSource { directories: OpenDirectories::new() }
    }
}

impl CopySource for HostSource {
    type Node = HostSourceNode;

    /// File systems may be mounted at several places, and a mounted one can't lie in itself.
    const HAS_ONE_NAME: bool = false;

    fn start(&self, path: &Path) -> EndResult<(HostSourceNode, InodeFacts)> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let facts = facts_of(&rustix::fs::fstat(&fd)?, Vec::new())?;
        Ok((HostSourceNode::Directory(HostDirectory::start(fd)), facts))
    }

    fn find(
        &self,
        directory: &HostSourceNode,
        name: &OsStr,
    ) -> EndResult<(HostSourceNode, InodeFacts)> {
        let directory = directory.directory()?;
        let fd = self.directories.fd(directory)?;
        let stat = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut facts = facts_of(&stat, Vec::new())?;
        if facts.file_type == FileType::Symlink {
            facts.target = rustix::fs::readlinkat(&fd, name, Vec::new())?.into_bytes();
        }
        Ok((
            HostSourceNode::Found { directory: directory.clone(), name: name.to_os_string() },
            facts,
        ))
    }

    fn is_unused_lost_and_found(&self, _: &HostSourceNode, _: &OsStr, _: &HostSourceNode) -> bool {
        false
    }

    fn open(&self, node: &mut HostSourceNode, facts: &InodeFacts) -> EndResult<()> {
        let HostSourceNode::Found { directory, name } = &*node else { return Ok(()) };
        // What was found may have been replaced: neither a link nor a pipe may get in the way, and no file
        // is copied with the owner and the permissions of another one.
        *node = match facts.is_directory() {
            true => HostSourceNode::Directory(self.directories.open(directory, name)?),
            false => {
                let directory = self.directories.fd(directory)?;
                let file = open_quietly(&directory, name, OFlags::NONBLOCK)?;
                let stat = rustix::fs::fstat(&file)?;
                let is_regular = HostFileType::from_raw_mode(stat.st_mode).is_file();
                // A new file may have got the number of the old one.
                if !is_regular || (stat.st_dev, stat.st_ino) != facts.identity {
                    return Err(Errno::STALE.into());
                }
                HostSourceNode::File(file)
            }
        };
        Ok(())
    }

    fn list(&self, directory: &HostSourceNode) -> EndResult<Vec<OsString>> {
        let mut names = Vec::new();
        let fd = self.directories.fd(directory.directory()?)?;
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, file: &HostSourceNode, offset: u64, buffer: &mut [u8]) -> EndResult<usize> {
        loop {
            match rustix::io::pread(file.file()?, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn next_data(&self, file: &HostSourceNode, offset: u64) -> EndResult<Option<(u64, u64)>> {
        let fd = file.file()?;
        match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some((start, rustix::fs::seek(fd, SeekFrom::Hole(start))?))),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn xattrs(&self, node: &HostSourceNode) -> EndResult<Xattrs> {
        match node {
            HostSourceNode::File(fd) => read_xattrs_of(fd),
            HostSourceNode::Directory(directory) => {
                read_xattrs_of(&*self.directories.fd(directory)?)
            }
            HostSourceNode::Found { directory, name } => {
                let fd = self.directories.fd(directory)?;
                let path = path_below(fd.as_fd(), name);
                read_xattrs(
                    |list| rustix::fs::llistxattr(&path, list),
                    |name, value| rustix::fs::lgetxattr(&path, name, value),
                )
            }
        }
    }

    fn leave(&self, directory: &HostSourceNode) {
        if let HostSourceNode::Directory(directory) = directory {
            self.directories.leave(directory);
        }
    }
}

/// A path of a name in an open directory, for the calls that take no descriptor.
pub(crate) fn path_below(directory: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

fn read_xattrs_of(fd: &OwnedFd) -> EndResult<Xattrs> {
    read_xattrs(
        |list| rustix::fs::flistxattr(fd, list),
        |name, value| rustix::fs::fgetxattr(fd, name, value),
    )
}

fn read_xattrs(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&OsStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> EndResult<Xattrs> {
    // Most inodes have none or few: ask with little room first.
    let mut names = vec![0; 1024];
    let length = match with_room(&mut names, &list) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(Xattrs::new()),
        Err(error) => return Err(error.into()),
    };
    let mut xattrs = Xattrs::new();
    for name in names[..length].split(|&byte| byte == 0) {
        if name.is_empty() || !is_copied_xattr(name) {
            continue;
        }
        let mut value = vec![0; 256];
        match with_room(&mut value, |value| get(OsStr::from_bytes(name), value)) {
            Ok(length) => value.truncate(length),
            // Gone since it was listed.
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error.into()),
        }
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}

/// Calls with more room if there was too little.
fn with_room(
    buffer: &mut Vec<u8>,
    call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<usize> {
    match call(buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_MAX, 0);
            call(buffer)
        }
        other => other,
    }
}

fn facts_of(stat: &Stat, target: Vec<u8>) -> EndResult<InodeFacts> {
    // The type of `st_mode` is the same everywhere; 16 bits hold all of it.
    let mode = stat.st_mode as u16;
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    Ok(InodeFacts {
        file_type: FileType::from_mode(mode).ok_or(Errno::INVAL)?,
        permissions: mode & drystone_vfs::mode::PERMISSIONS,
        user: stat.st_uid,
        group: stat.st_gid,
        size: stat.st_size as u64,
        is_sparse: (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64,
        device: DeviceNumber {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        },
        accessed: time(stat.st_atime, stat.st_atime_nsec as u32),
        modified: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        links: stat.st_nlink,
        identity: (stat.st_dev, stat.st_ino),
        target,
    })
}
