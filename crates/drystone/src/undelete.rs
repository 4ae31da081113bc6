//! Writes files that were deleted from an ext4 image to a directory of this machine.
//!
//! Names come from the image, which may be hostile. Each is made in an open directory, without following a symbolic
//! link, and never in place of anything: what can't have its path is called after its inode.

use crate::Error;
use crate::inspect::{DeletedProgress, look_into, with_deleted};
use drystone_inspect::{DeletedFile, InspectedImage, Recoverable, visit_content};
use drystone_vfs::FileType;
use rustix::fs::{CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: u64 = 4096;
/// Names after an inode that are tried.
const NAMES_MAX: u32 = 1000;

/// What is brought back.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UndeleteOptions {
    /// The inodes; all if there are none.
    pub inodes: Vec<u32>,
    /// Bring back files too of which only a part is left.
    pub partial: bool,
}

/// What became of a deleted file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Undeleted {
    /// It was written here.
    Written(PathBuf),
    /// Only a part of it is left, which isn't wanted.
    Partial,
    /// Nothing of it is left.
    Lost,
    /// Its data are ciphertext, and the key isn't known.
    Encrypted,
    /// It is a device, a pipe or a socket, or a directory without a name.
    NotMade,
    /// It couldn't be written.
    Failed(Error),
}

/// Writes deleted files of the ext4 image that `name` stands for to the directory `to`, which is made or must be
/// empty. The image isn't changed. `told` gets each file and what became of it; `progress` is as for
/// [`deleted_files`](crate::deleted_files). Permissions and times are kept, owners and attributes aren't.
///
/// # Errors
///
/// The image can't be read, or the directory isn't empty or can't be made. A file that can't be written is told.
pub fn undelete(
    name: &Path,
    to: &Path,
    options: &UndeleteOptions,
    progress: &mut DeletedProgress<'_>,
    told: &mut dyn FnMut(&DeletedFile, &Undeleted),
) -> Result<(), Error> {
    look_into("bring back deleted files of", name, |device| {
        with_deleted(device, progress, |image, mut files| {
            let start = open_empty(to).map_err(|error| error.during("write to").at(to))?;
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
                let became = match target.undelete(image, &file, options) {
                    Ok(became) => became,
                    Err(error) => Undeleted::Failed(error),
                };
                told(&file, &became);
            }
            Ok(())
        })
    })
}

/// Opens a directory that has nothing in it, which is made if it isn't there.
fn open_empty(to: &Path) -> Result<OwnedFd, Error> {
    match std::fs::create_dir(to) {
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
                // Another file has the name, or one that a directory of it would have.
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error.during("write").at(&self.to.join(&name))),
                Ok(()) => return Ok(Undeleted::Written(self.to.join(name))),
            }
        }
        Err(drystone_vfs::Errno::EEXIST.into())
    }

    /// Makes the directories of a path, and opens the last.
    fn directory(&self, path: &Path) -> std::io::Result<OwnedFd> {
        let mut at = self.start.try_clone()?;
        for name in path {
            match rustix::fs::mkdirat(&at, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }

    fn make(
        &self,
        image: &InspectedImage<'_>,
        file: &DeletedFile,
        file_type: FileType,
        path: &Path,
    ) -> Result<(), Error> {
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
            return Ok(made.map_err(std::io::Error::from)?);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let private = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::openat(&directory, name, flags | OFlags::CLOEXEC, private);
        let host = std::fs::File::from(opened.map_err(std::io::Error::from)?);
        let written = write_content(image, file, &host);
        if written.is_err() {
            // It was made by this call; what went wrong before is what is told.
            let _ = rustix::fs::unlinkat(&directory, name, rustix::fs::AtFlags::empty());
        }
        written
    }
}

fn write_content(
    image: &InspectedImage<'_>,
    file: &DeletedFile,
    host: &std::fs::File,
) -> Result<(), Error> {
    host.set_len(file.size_bytes)?;
    visit_content(image, file, &mut |offset, bytes| {
        Ok::<(), Error>(host.write_all_at(bytes, offset)?)
    })?;
    // Without set-id bits: the owner is another one.
    let permissions = Mode::from_raw_mode((file.mode & 0o777).into());
    rustix::fs::fchmod(host, permissions).map_err(std::io::Error::from)?;
    let time = |time: drystone_ext4_format::inode::InodeTimestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    let times =
        Timestamps { last_access: time(file.accessed), last_modification: time(file.modified) };
    Ok(rustix::fs::futimens(host, &times).map_err(std::io::Error::from)?)
}

/// A path below the target, unless one of its names could lead out of it or steer a terminal.
fn safe_path(path: &[u8]) -> Option<PathBuf> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let mut safe = PathBuf::new();
    for name in names {
        let is_control = |byte: &u8| byte.is_ascii_control();
        if name == b"." || name == b".." || name.iter().any(is_control) {
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
        drystone_vfs::Errno::ELOOP,
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
        let unsafe_paths: [&[u8]; 6] = [b"/", b"", b"/../x", b"/d/../../x", b"/a\0b", b"/a\x1b[2J"];
        for path in unsafe_paths {
            assert_eq!(safe_path(path), None);
        }
    }
}
