//! Writes files that were deleted from an ext4 image to a directory of this machine.
//!
//! Names come from the image, which may be hostile. Each file is created relative to an open directory, without
//! following symbolic links, and never replaces anything. A file that can't have its path is named after its inode.

use crate::Error;
use crate::VolumeName;
use crate::inspect::{DeletedProgress, UNDELETE, look_into, with_deleted};
use crate::transfer::FINAL;
use drystone_inspect::{DeletedFile, InspectedImage, Recoverable, visit_content};
use drystone_vfs::FileType;
use rustix::fs::{CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: u64 = 4096;
/// How many names after the inode are tried.
const NAMES_MAX: u32 = 1000;

/// Which deleted files are brought back.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UndeleteOptions {
    /// The inodes; all if there are none.
    pub inodes: Vec<u32>,
    /// Also bring back files of which only a part is left.
    pub partial: bool,
}

drystone_options::setters! {
    UndeleteOptions {
        inodes: impl Into<Vec<u32>>,
        partial: bool,
    }
}

/// What became of a deleted file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Undeleted {
    /// It was written here.
    Written(PathBuf),
    /// Its content was written here, but setting its permissions or times failed with this error.
    WrittenBare(PathBuf, Error),
    /// Only a part of it is left, and `partial` isn't set.
    Partial,
    /// Nothing of it is left.
    Lost,
    /// Its data is encrypted, and the key isn't known.
    Encrypted,
    /// It is a device, a pipe or a socket, or a directory without a name.
    NotMade,
    /// It couldn't be written.
    Failed(Error),
}

/// Writes deleted files of the ext4 image that `name` stands for to the directory `to`, which is made or must be
/// empty. The image isn't changed. `told` is called with each file and what became of it; `progress` is as for
/// [`deleted_files`](crate::deleted_files). Permissions and times of files are kept, owners and attributes aren't. Only
/// the caller may enter the new directories.
///
/// # Errors
///
/// The image can't be read; the directory isn't empty, can't be made, lies in the image, or is full. A file that
/// can't be written is passed to `told`.
pub fn undelete(
    name: &Path,
    to: &Path,
    options: &UndeleteOptions,
    progress: &mut DeletedProgress<'_>,
    told: &mut dyn FnMut(&DeletedFile, &Undeleted),
) -> Result<(), Error> {
    look_into("bring back deleted files of", UNDELETE, name, |device| {
        let problem = |error: Error| error.during("write to").at(to);
        let start = open_empty(to, VolumeName::find_whole(name)?.source()).map_err(problem)?;
        with_deleted(device, progress, |image, mut files| {
            let target = UndeleteTarget { start, to };
            let is_wanted = |file: &DeletedFile| {
                options.inodes.is_empty() || options.inodes.contains(&file.inode.get())
            };
            files.retain(is_wanted);
            // Of several files with a path, the last one that is whole gets it.
            files.sort_by_key(|file| {
                let is_whole = file.recoverable() == Recoverable::Whole;
                Reverse((is_whole, file.deleted, file.modified))
            });
            for file in files {
                let became = target.undelete(image, &file, options);
                let errno = became.as_ref().err().map(Error::errno);
                told(&file, &became.unwrap_or_else(Undeleted::Failed));
                // No other file will fare better.
                if let Some(errno) = errno.filter(|errno| FINAL.contains(errno)) {
                    return Err(problem(errno.into()));
                }
            }
            Ok(())
        })
    })
}

/// Opens an empty directory, or makes it. It must not be on a mount of the image, where writing would take the blocks
/// of deleted files.
fn open_empty(to: &Path, image: &Path) -> Result<OwnedFd, Error> {
    let above = to.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    let place = to.metadata().or_else(|_| above.metadata())?;
    if drystone_blockdev::lies_on(place.dev(), image) {
        let detail = "it lies in the image itself; choose a directory on another disk";
        return Err(drystone_vfs::Error::with_detail(drystone_vfs::Errno::EBUSY, detail).into());
    }
    match std::fs::DirBuilder::new().mode(0o700).create(to) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if std::fs::read_dir(to)?.next().is_some() {
                return Err(drystone_vfs::Errno::ENOTEMPTY.into());
            }
        }
        made => made?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, to, flags, Mode::empty()).map_err(std::io::Error::from)?)
}

struct UndeleteTarget<'t> {
    start: OwnedFd,
    to: &'t Path,
}

impl UndeleteTarget<'_> {
    fn undelete(
        &self,
        image: &InspectedImage<'_>,
        file: &DeletedFile,
        options: &UndeleteOptions,
    ) -> Result<Undeleted, Error> {
        let Some(file_type) = FileType::from_mode(file.mode) else { return Ok(Undeleted::NotMade) };
        let path = file.path.as_deref().and_then(safe_path);
        if file_type == FileType::Directory {
            let Some(path) = path else { return Ok(Undeleted::NotMade) };
            self.directory(&path).map_err(|error| Error::from(error).at(&self.to.join(&path)))?;
            return Ok(Undeleted::Written(self.to.join(path)));
        }
        match (file_type, file.recoverable()) {
            (FileType::Regular | FileType::Symlink, _) if file.is_encrypted => {
                return Ok(Undeleted::Encrypted);
            }
            (FileType::Regular | FileType::Symlink, Recoverable::Nothing) => {
                return Ok(Undeleted::Lost);
            }
            (FileType::Symlink, Recoverable::Part) => return Ok(Undeleted::Partial),
            (FileType::Regular, Recoverable::Part) if !options.partial => {
                return Ok(Undeleted::Partial);
            }
            (FileType::Regular | FileType::Symlink, _) => {}
            _ => return Ok(Undeleted::NotMade),
        }
        let made = |path: &Path| self.make(image, file, file_type, path);
        let fallback = |number: u32| {
            let version = file.version.map_or(String::new(), |version| format!(".{version}"));
            let again = if number == 0 { String::new() } else { format!("-{number}") };
            PathBuf::from(format!("inode-{}{version}{again}", file.inode))
        };
        let names = path.into_iter().chain((0..NAMES_MAX).map(fallback));
        for name in names {
            match made(&name) {
                // The name, or that of one of its directories, is taken.
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error.during("write").at(&self.to.join(&name))),
                Ok(host) => {
                    let path = self.to.join(name);
                    let kept = host.map_or(Ok(()), |host| keep_attributes(file, &host));
                    return Ok(match kept {
                        Ok(()) => Undeleted::Written(path),
                        Err(error) => Undeleted::WrittenBare(path, error.into()),
                    });
                }
            }
        }
        Err(drystone_vfs::Errno::EEXIST.into())
    }

    /// Makes the directories of a path, and opens the last.
    fn directory(&self, path: &Path) -> std::io::Result<OwnedFd> {
        let mut at = self.start.try_clone()?;
        for name in path {
            match rustix::fs::mkdirat(&at, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }

    /// Makes a file with its content, which is returned open, or a symbolic link.
    fn make(
        &self,
        image: &InspectedImage<'_>,
        file: &DeletedFile,
        file_type: FileType,
        path: &Path,
    ) -> Result<Option<std::fs::File>, Error> {
        let directory = self.directory(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        if file_type == FileType::Symlink {
            let mut target = Vec::new();
            if file.size_bytes <= TARGET_BYTES_MAX {
                visit_content(image, file, &mut |_, bytes| {
                    target.extend_from_slice(bytes);
                    Ok::<(), Error>(())
                })?;
            }
            let made = rustix::fs::symlinkat(OsStr::from_bytes(&target), &directory, name);
            made.map_err(std::io::Error::from)?;
            return Ok(None);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let private = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::openat(&directory, name, flags | OFlags::CLOEXEC, private);
        let host = std::fs::File::from(opened.map_err(std::io::Error::from)?);
        let written = write_content(image, file, &host);
        if written.is_err() {
            // This call has made it. The first error counts, not one of the removal.
            let _ = rustix::fs::unlinkat(&directory, name, rustix::fs::AtFlags::empty());
        }
        written.map(|()| Some(host))
    }
}

fn write_content(
    image: &InspectedImage<'_>,
    file: &DeletedFile,
    host: &std::fs::File,
) -> Result<(), Error> {
    host.set_len(file.size_bytes)?;
    visit_content(image, file, &mut |offset, bytes| Ok(host.write_all_at(bytes, offset)?))
}

fn keep_attributes(file: &DeletedFile, host: &std::fs::File) -> std::io::Result<()> {
    // Without set-id bits: the owner is another one.
    let permissions = Mode::from_raw_mode((file.mode & 0o777).into());
    rustix::fs::fchmod(host, permissions)?;
    let time = |time: drystone_ext4_format::inode::InodeTimestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    let times =
        Timestamps { last_access: time(file.accessed), last_modification: time(file.modified) };
    Ok(rustix::fs::futimens(host, &times)?)
}

/// A path below the target, unless one of its names could lead out of it or control a terminal.
fn safe_path(path: &[u8]) -> Option<PathBuf> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let mut safe = PathBuf::new();
    for name in names {
        let steers = match std::str::from_utf8(name) {
            Ok(text) => text.contains(char::is_control),
            // Some terminals take the latter for control characters, also as single bytes.
            Err(_) => {
                name.iter().any(|byte| byte.is_ascii_control() || (0x80..0xa0).contains(byte))
            }
        };
        if name == b"." || name == b".." || steers {
            return None;
        }
        safe.push(OsStr::from_bytes(name));
    }
    (safe != Path::new("")).then_some(safe)
}

fn is_taken(error: &Error) -> bool {
    let taken = [
        drystone_vfs::Errno::EEXIST,
        drystone_vfs::Errno::ENOTDIR,
        drystone_vfs::Errno::EISDIR,
        drystone_vfs::Errno::ENAMETOOLONG,
    ];
    taken.contains(&error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_target() {
        assert_eq!(safe_path(b"/d/file"), Some(PathBuf::from("d/file")));
        assert_eq!(safe_path("…/file".as_bytes()), Some(PathBuf::from("…/file")));
        assert!(safe_path(b"/caf\xe9").is_some());
        let unsafe_paths: [&[u8]; 8] = [
            b"/",
            b"",
            b"/../x",
            b"/d/../../x",
            b"/a\0b",
            b"/a\x1b[2J",
            b"/a\xc2\x9b2J",
            b"/a\x9b2J",
        ];
        for path in unsafe_paths {
            assert_eq!(safe_path(path), None);
        }
    }
}
