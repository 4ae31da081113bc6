//! Reads and changes the attributes that every inode has.

use super::Fs;
use super::metadata::{FileTimes, Metadata};
use crate::Result;
use drystone_vfs::{FallocateMode, FileSystemStatistics, OpenFlags, SetAttributes};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Fs<'_> {
    /// What is at a path. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// There is nothing, or the way to it may not be searched.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.examine(path.as_ref(), true)
    }

    /// What is at a path. A symbolic link at its end isn't followed.
    ///
    /// # Errors
    ///
    /// As [`metadata`](Fs::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.examine(path.as_ref(), false)
    }

    /// Sets permissions, with [`PermissionsExt::from_mode`] for example.
    ///
    /// # Errors
    ///
    /// Only the owner and the superuser may.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let permissions = Some((permissions.mode() & 0o7777) as u16);
        let changes = SetAttributes { permissions, ..SetAttributes::default() };
        self.change("change permissions of", path.as_ref(), true, &changes)
    }

    /// Sets the owner, the group or both. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// Only the superuser may, but for owners, who may choose among their groups.
    pub fn chown(
        &self,
        path: impl AsRef<Path>,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<()> {
        let changes = SetAttributes { user, group, ..SetAttributes::default() };
        self.change("change the owner of", path.as_ref(), true, &changes)
    }

    /// As [`chown`](Fs::chown), but of a symbolic link at the end of the path itself.
    ///
    /// # Errors
    ///
    /// As [`chown`](Fs::chown).
    pub fn lchown(
        &self,
        path: impl AsRef<Path>,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<()> {
        let changes = SetAttributes { user, group, ..SetAttributes::default() };
        self.change("change the owner of", path.as_ref(), false, &changes)
    }

    /// Sets times. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// Only the owner and the superuser may.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change("change times of", path.as_ref(), true, &times.changes())
    }

    /// Changes several attributes, all or none: also flags, project, and other times than
    /// [`set_times`](Fs::set_times) knows. A symbolic link at the end is followed if `follow_last`.
    ///
    /// # Errors
    ///
    /// As the methods for one attribute.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        changes: &SetAttributes,
        follow_last: bool,
    ) -> Result<()> {
        self.change("change", path.as_ref(), follow_last, changes)
    }

    /// Cuts a file off, or extends it by a hole.
    ///
    /// # Errors
    ///
    /// It isn't a regular file, may not be written, or can't be so large.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.change("truncate", path.as_ref(), true, &changes)
    }

    /// Changes the space behind a range of a file.
    ///
    /// # Errors
    ///
    /// It may not be written; there is no space; the file system or the kind of file can't do it.
    pub fn fallocate(
        &self,
        path: impl AsRef<Path>,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.run("allocate space for", path.as_ref(), |path| {
            self.open_existing(path, OpenFlags::WRITE, |file| {
                self.file_system().fallocate(self.context(), file.inode(), mode, offset, length)
            })
        })
    }

    /// Space and inodes in use.
    ///
    /// # Errors
    ///
    /// The image can't be read.
    pub fn statistics(&self) -> Result<FileSystemStatistics> {
        Ok(self.file_system().statistics()?)
    }

    fn examine(&self, path: &Path, follow_last: bool) -> Result<Metadata> {
        self.run("examine", path, |path| {
            Ok(Metadata::new(*self.find(path, follow_last)?.attributes()))
        })
    }

    fn change(
        &self,
        operation: &'static str,
        path: &Path,
        follow_last: bool,
        changes: &SetAttributes,
    ) -> Result<()> {
        self.run(operation, path, |path| {
            let found = self.find(path, follow_last)?;
            self.file_system().set_attributes(self.context(), found.inode(), changes)?;
            Ok(())
        })
    }
}
