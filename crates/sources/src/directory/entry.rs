//! A file of the host and its metadata.

use super::files::DirectoryFiles;
use crate::version::FileVersion;
use crate::xattrs;
use drystone_mkfs::tree::{InodeTimestamp, NodeMetadata, SourceError, Xattr};
use rustix::fs::{AtFlags, FileType, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a block in which the host counts space.
const SECTOR_BYTES: u64 = 512;

/// A file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub name: Vec<u8>,
    pub stat: Stat,
    pub metadata: NodeMetadata,
    pub kind: FoundKind,
}

#[derive(Debug)]
pub(super) enum FoundKind {
    Directory,
    /// The parts with data, where there are holes.
    File(Option<Vec<std::ops::Range<u64>>>),
    Symlink(Vec<u8>),
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
}

/// Looks at a name in an open directory, whose path from the source's root is `path`.
pub(super) fn look(
    files: &DirectoryFiles,
    directory: &OwnedFd,
    path: &[u8],
    name: &[u8],
) -> Result<FoundFile, SourceError> {
    let whole = || join(path, name);
    let failed = |errno: Errno| files.error(&whole(), errno);
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FoundKind::Directory,
        FileType::RegularFile => FoundKind::File(holes(files, &whole, &stat)?),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(directory, name, Vec::new()).map_err(failed)?;
            FoundKind::Symlink(target.into_bytes())
        }
        FileType::CharacterDevice => FoundKind::CharacterDevice,
        FileType::BlockDevice => FoundKind::BlockDevice,
        FileType::Fifo => FoundKind::Fifo,
        FileType::Socket => FoundKind::Socket,
        FileType::Unknown => return Err(files.error(&whole(), "a file of unknown type")),
    };
    // There is no such call with a directory descriptor and a name; this path is equivalent.
    let mut by_descriptor = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    by_descriptor.extend_from_slice(name);
    let xattrs = xattrs::of_path(&by_descriptor).map_err(failed)?;
    Ok(FoundFile { name: name.to_vec(), stat, metadata: metadata(&stat, xattrs), kind })
}

/// The metadata of a source's root.
pub(super) fn look_at_root(files: &DirectoryFiles) -> Result<(Stat, NodeMetadata), SourceError> {
    let failed = |errno: Errno| files.error(b"", errno);
    let stat = rustix::fs::fstat(&files.root).map_err(failed)?;
    let path = format!("/proc/self/fd/{}/.", files.root.as_raw_fd());
    let xattrs = xattrs::of_path(path.as_bytes()).map_err(failed)?;
    Ok((stat, metadata(&stat, xattrs)))
}

pub(super) fn modified(stat: &Stat) -> InodeTimestamp {
    InodeTimestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 }
}

pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') }
}

fn metadata(stat: &Stat, xattrs: Vec<Xattr>) -> NodeMetadata {
    let permissions = (stat.st_mode & 0o7777) as u16;
    NodeMetadata { permissions, user: stat.st_uid, group: stat.st_gid, xattrs }
}

/// Where a file has data, if it takes less space than it is long.
fn holes(
    files: &DirectoryFiles,
    path: &dyn Fn() -> Vec<u8>,
    stat: &Stat,
) -> Result<Option<Vec<std::ops::Range<u64>>>, SourceError> {
    let size = stat.st_size as u64;
    if stat.st_blocks as u64 * SECTOR_BYTES >= size {
        return Ok(None);
    }
    let path = path();
    let failed = |errno: Errno| files.error(&path, errno);
    let file = files.open(&path).map_err(failed)?;
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // A file system without holes.
            Err(Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).map_err(failed)?.min(size);
        if end <= start {
            break;
        }
        parts.push(start..end);
        at = end;
    }
    // Holes aren't read later: this is the only look at a file that seems to be nothing else.
    let found = rustix::fs::fstat(&file).map_err(failed)?;
    if FileVersion::from(&found) != FileVersion::from(stat) {
        return Err(files.error(&path, "changed while the image was built"));
    }
    Ok(Some(parts))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A file that is emptied between two looks at it would pass for one hole.
    #[test]
    fn a_file_that_is_emptied_is_no_hole() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("log")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"end", 8 << 20).unwrap();
        let root = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let stat = rustix::fs::fstat(&file).unwrap();
        let files = DirectoryFiles::new(root, b"folder".to_vec());
        let path = || b"log".to_vec();
        assert_eq!(holes(&files, &path, &stat).unwrap().unwrap().len(), 1);
        file.set_len(0).unwrap();
        let problem = holes(&files, &path, &stat).unwrap_err().problem;
        assert_eq!(problem, "changed while the image was built");
    }
}
