//! Makes, moves and removes entries.

use super::Fs;
use super::options::OpenOptions;
use super::walk::remove_below;
use super::{OPEN_TO_REPLACE, checked_bytes};
use crate::{Error, Result};
use drystone_vfs::{
    Errno, FileType, FollowedLinks, InodeGuard, LastName, NewNode, OpenFlags, PathWalk,
    RenameFlags, SetAttributes,
};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Copied at a time.
const COPY_BYTES: usize = 1 << 20;

impl Fs<'_> {
    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// There is an entry of this name, or the directory above isn't there.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.run("create", path.as_ref(), |path| self.make(path, NewNode::Directory, 0o777))
    }

    /// Makes a directory, and those above it that aren't there yet. One that is there is no error.
    ///
    /// # Errors
    ///
    /// One of them can't be made.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let is_there = |path: &Path| self.metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let mut missing = Vec::new();
        for above in path.ancestors() {
            match self.create_dir(above) {
                Ok(()) => break,
                Err(error) if error.errno() == Errno::ENOENT && above.parent().is_some() => {
                    missing.push(above);
                }
                Err(_) if is_there(above) => break,
                Err(error) => return Err(error),
            }
        }
        for below in missing.into_iter().rev() {
            match self.create_dir(below) {
                Err(error) if !is_there(below) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a symbolic link at `link` that leads to `original`.
    ///
    /// # Errors
    ///
    /// There is an entry of this name, or it can't be made.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.run("create", link.as_ref(), |link| {
            let target = checked_bytes(original.as_ref())?;
            self.make(link, NewNode::Symlink(target), 0o777)
        })
    }

    /// Makes a device node, a named pipe, a socket, or anything else that [`NewNode`] names.
    ///
    /// # Errors
    ///
    /// There is an entry of this name, or it can't be made.
    pub fn make_node(&self, path: impl AsRef<Path>, node: NewNode<'_>, mode: u32) -> Result<()> {
        self.run("create", path.as_ref(), |path| self.make(path, node, (mode & 0o7777) as u16))
    }

    /// Gives a file that isn't a directory one more name. A symbolic link isn't followed.
    ///
    /// # Errors
    ///
    /// There is an entry of this name, or `original` is a directory or not there.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        self.run_on_two("link", original, link, |original| {
            let found = self.find(original, false)?;
            let walk = self.walk_to(checked_bytes(link)?)?;
            check_new(&walk, false)?;
            if found.attributes().file_type == FileType::Directory {
                // A name that is taken is what Linux complains of first.
                return Err(match walk.look_up() {
                    Ok(_) => Errno::EEXIST.into(),
                    Err(error) if error.errno == Errno::ENOENT => Errno::EPERM.into(),
                    Err(error) => error,
                });
            }
            let (directory, name) = (walk.directory(), walk.name());
            let file_system = self.file_system();
            InodeGuard::link(file_system, self.context(), found.inode(), directory, name).map(drop)
        })
    }

    /// Removes a name of a file; the file goes with the last one.
    ///
    /// # Errors
    ///
    /// There is none, it is a directory, or it can't be removed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.run("remove", path.as_ref(), |path| {
            let walk = self.walk_to(path)?;
            if walk.last() != LastName::Name {
                return Err(walk.refusal(Errno::EISDIR));
            }
            if walk.has_slash() {
                return Err(match walk.look_up()?.attributes().file_type {
                    FileType::Directory => Errno::EISDIR.into(),
                    _ => Errno::ENOTDIR.into(),
                });
            }
            self.file_system().unlink(self.context(), walk.directory(), walk.name())
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// There is none, it isn't empty or no directory, or it can't be removed.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.run("remove", path.as_ref(), |path| self.remove_empty(path))
    }

    /// Removes a directory with everything in it. Symbolic links aren't followed: of one at `path` the link
    /// is removed.
    ///
    /// # Errors
    ///
    /// There is none, it is a file, or something can't be removed, where it stops.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.run("remove", path, |path| self.find(path, false))?;
        match found.attributes().file_type {
            FileType::Symlink => self.remove_file(path),
            FileType::Directory => {
                remove_below(self, found, path)?;
                self.remove_dir(path)
            }
            _ => Err(Error::from(Errno::ENOTDIR).during("remove").at(path)),
        }
    }

    /// Gives an entry another name, in place of what has that name.
    ///
    /// # Errors
    ///
    /// There is no such entry; the new name is that of a directory that isn't empty, or of a file where
    /// a directory is renamed, or the other way round; a directory would come to lie in itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// As [`rename`](Fs::rename), but an existing target is treated as the flags say.
    ///
    /// # Errors
    ///
    /// As [`rename`](Fs::rename), and as [`RenameFlags`] says.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.run_on_two("rename", from, to, |from| {
            let from = self.walk_to(from)?;
            let to = checked_bytes(to).and_then(|to| self.walk_to(to));
            let to = to.map_err(|error| from.refusal(error))?;
            if from.last() != LastName::Name || to.last() != LastName::Name {
                return Err(match from.refusal(Errno::EBUSY) {
                    error if error.errno == Errno::EBUSY => to.refusal(Errno::EBUSY),
                    error => error,
                });
            }
            if (from.has_slash() || to.has_slash())
                && from.look_up()?.attributes().file_type != FileType::Directory
            {
                return Err(to.refusal(Errno::ENOTDIR));
            }
            let ((parent, name), (new_parent, new_name)) =
                ((from.directory(), from.name()), (to.directory(), to.name()));
            self.file_system().rename(self.context(), parent, name, new_parent, new_name, flags)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// There is no such entry; [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is no link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.run("read", path.as_ref(), |path| {
            let found = self.find(path, false)?;
            if found.attributes().file_type != FileType::Symlink {
                return Err(Errno::EINVAL.into());
            }
            let target = self.file_system().read_link(found.inode())?;
            Ok(OsString::from_vec(target).into())
        })
    }

    /// Whether something is at `path`. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// It can't be said: a directory may not be searched, or a link leads in a circle.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Errno::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The path of something from the root, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    ///
    /// It isn't there.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let real = match path.as_os_str().as_bytes() {
            b"" => Err(Errno::ENOENT.into()),
            bytes if bytes.contains(&0) => Err(Errno::EINVAL.into()),
            // Of any length: each name is looked up by itself.
            bytes => self.real_path(bytes),
        };
        real.map_err(|error| Error::from(error).during("resolve").at(path))
    }

    /// Copies the content and the permissions of a file, and returns how many bytes that are. Holes
    /// are filled. As with [`std::fs::copy`], a file that is copied to itself is empty then.
    ///
    /// # Errors
    ///
    /// `from` isn't a regular file ([`InvalidInput`](std::io::ErrorKind::InvalidInput)), or one of the two
    /// can't be opened, read or written.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let copied = self.run("copy", from, |from| {
            let source = self.open_existing(from, OpenFlags::READ, Ok)?;
            if source.attributes().file_type != FileType::Regular {
                return Err(Errno::EINVAL.into());
            }
            let permissions = source.attributes().permissions;
            let options: OpenOptions = OPEN_TO_REPLACE.mode(u32::from(permissions));
            let target = self.open_or_create(checked_bytes(to)?, options)?;
            let file_system = self.file_system();
            let changes =
                SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
            file_system.set_attributes(self.context(), target.inode(), &changes)?;
            let mut buffer = vec![0; COPY_BYTES];
            let mut copied = 0;
            loop {
                let read = file_system.read(source.inode(), copied, &mut buffer)?;
                if read == 0 {
                    file_system.closed(target.inode());
                    return Ok(copied);
                }
                let data = &buffer[..read];
                file_system.write_all(self.context(), target.inode(), copied, data)?;
                copied += read as u64;
            }
        });
        copied.map_err(|error| error.and_at(to))
    }

    fn make(&self, path: &[u8], node: NewNode<'_>, permissions: u16) -> drystone_vfs::Result<()> {
        let walk = self.walk_to(path)?;
        check_new(&walk, matches!(node, NewNode::Directory))?;
        let file_system = self.file_system();
        let (directory, name) = (walk.directory(), walk.name());
        InodeGuard::create(file_system, self.context(), directory, name, node, permissions)
            .map(drop)
    }

    fn remove_empty(&self, path: &[u8]) -> drystone_vfs::Result<()> {
        let walk = self.walk_to(path)?;
        let errno = match walk.last() {
            LastName::Name => {
                let (directory, name) = (walk.directory(), walk.name());
                return self.file_system().remove_directory(self.context(), directory, name);
            }
            LastName::Root => Errno::EBUSY,
            LastName::Dot => Errno::EINVAL,
            LastName::DotDot => Errno::ENOTEMPTY,
        };
        Err(walk.refusal(errno))
    }

    fn real_path(&self, path: &[u8]) -> drystone_vfs::Result<PathBuf> {
        let file_system = self.file_system();
        // What is on the way from the root, with names.
        let mut way: Vec<(Vec<u8>, InodeGuard<'_>)> = Vec::new();
        let mut rest = path.to_vec();
        let mut links = FollowedLinks::default();
        loop {
            let start = rest.iter().position(|&byte| byte != b'/');
            let here = way.last().map(|(_, found)| found);
            if let Some(here) = here
                && (!rest.is_empty() && here.attributes().file_type != FileType::Directory)
            {
                return Err(Errno::ENOTDIR.into());
            }
            let Some(start) = start else { break };
            let name = rest[start..].split(|&byte| byte == b'/').next().unwrap_or_default();
            let (name, end) = (name.to_vec(), start + name.len());
            let directory = here.map_or_else(|| file_system.root(), InodeGuard::inode);
            let found = InodeGuard::lookup(file_system, self.context(), directory, &name)?;
            rest.drain(..end);
            if name == b".." {
                way.pop();
            } else if found.attributes().file_type == FileType::Symlink {
                let target = links.target(file_system, &found)?;
                if target.first() == Some(&b'/') {
                    way.clear();
                }
                rest.splice(..0, target);
            } else if name != b"." {
                way.push((name, found));
            }
        }
        let names = way.into_iter().map(|(name, _)| OsString::from_vec(name));
        Ok([OsString::from("/")].into_iter().chain(names).collect())
    }

    fn run_on_two<T>(
        &self,
        operation: &'static str,
        first: &Path,
        second: &Path,
        body: impl FnOnce(&[u8]) -> drystone_vfs::Result<T>,
    ) -> Result<T> {
        // What else is wrong with the second path is found after the first was walked.
        let outcome = match second.as_os_str().as_bytes().contains(&0) {
            true => Err(Errno::EINVAL.into()),
            false => checked_bytes(first).and_then(body),
        };
        outcome.map_err(|error| Error::from(error).during(operation).at(first).and_at(second))
    }
}

/// Fails if the last name can't be that of a new entry.
fn check_new(walk: &PathWalk<'_, '_>, is_directory: bool) -> drystone_vfs::Result<()> {
    if walk.last() != LastName::Name {
        return Err(walk.refusal(Errno::EEXIST));
    }
    if walk.has_slash() && !is_directory {
        return Err(walk.look_up().map_or_else(|error| error, |_| Errno::EEXIST.into()));
    }
    Ok(())
}
