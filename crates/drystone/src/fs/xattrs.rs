//! Reads and changes extended attributes, of what a symbolic link leads to or of the link itself.

use super::Fs;
use crate::Result;
use drystone_vfs::{Errno, FileSystem, InodeNumber, RequestContext, XattrMode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

impl Fs<'_> {
    /// The value of an extended attribute, by its full name (`user.comment`); `None` if there is none.
    ///
    /// # Errors
    ///
    /// It can't be read.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.xattr_of(path.as_ref(), name.as_ref(), true)
    }

    /// As [`xattr`](Fs::xattr), but of a symbolic link at the end of the path itself.
    ///
    /// Linux keeps `user.` attributes to files and directories: links have those of `trusted.` and
    /// `security.`.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.write("/file", "")?;
    /// fs.symlink("file", "/link")?;
    /// fs.set_lxattr("/link", "trusted.origin", b"built here")?;
    /// assert_eq!(fs.lxattr("/link", "trusted.origin")?.as_deref(), Some(&b"built here"[..]));
    /// assert_eq!(fs.xattr("/link", "trusted.origin")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`xattr`](Fs::xattr).
    pub fn lxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.xattr_of(path.as_ref(), name.as_ref(), false)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    ///
    /// The name is none that the file system takes, there is no room, or it may not be set.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.set_xattr_of(path.as_ref(), name.as_ref(), value.as_ref(), true)
    }

    /// As [`set_xattr`](Fs::set_xattr), but of a symbolic link at the end of the path itself.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// // It leads nowhere, and needn't lead anywhere.
    /// fs.symlink("nothing", "/link")?;
    /// fs.set_lxattr("/link", "security.label", b"secret")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_xattr`](Fs::set_xattr); [`PermissionDenied`](std::io::ErrorKind::PermissionDenied) for a
    /// `user.` attribute of a link.
    pub fn set_lxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.set_xattr_of(path.as_ref(), name.as_ref(), value.as_ref(), false)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    ///
    /// There is none, or it may not be removed.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.remove_xattr_of(path.as_ref(), name.as_ref(), true)
    }

    /// As [`remove_xattr`](Fs::remove_xattr), but of a symbolic link at the end of the path itself.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.symlink("nothing", "/link")?;
    /// fs.set_lxattr("/link", "trusted.origin", b"built here")?;
    /// fs.remove_lxattr("/link", "trusted.origin")?;
    /// assert_eq!(fs.lxattr("/link", "trusted.origin")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`remove_xattr`](Fs::remove_xattr).
    pub fn remove_lxattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.remove_xattr_of(path.as_ref(), name.as_ref(), false)
    }

    /// The full names of all extended attributes.
    ///
    /// # Errors
    ///
    /// They can't be read.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.list_xattrs_of(path.as_ref(), true)
    }

    /// As [`list_xattrs`](Fs::list_xattrs), but of a symbolic link at the end of the path itself.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.symlink("nothing", "/link")?;
    /// fs.set_lxattr("/link", "trusted.origin", b"built here")?;
    /// assert_eq!(fs.list_lxattrs("/link")?, ["trusted.origin"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`list_xattrs`](Fs::list_xattrs).
    pub fn list_lxattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.list_xattrs_of(path.as_ref(), false)
    }

    fn xattr_of(&self, path: &Path, name: &OsStr, follow_last: bool) -> Result<Option<Vec<u8>>> {
        self.on_found("read an attribute of", path, follow_last, |file_system, context, inode| {
            match file_system.xattr(context, inode, name.as_bytes()) {
                Ok(value) => Ok(Some(value)),
                Err(error) if error.errno == Errno::ENODATA => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn set_xattr_of(
        &self,
        path: &Path,
        name: &OsStr,
        value: &[u8],
        follow_last: bool,
    ) -> Result<()> {
        self.on_found("set an attribute of", path, follow_last, |file_system, context, inode| {
            file_system.set_xattr(context, inode, name.as_bytes(), value, XattrMode::Set)
        })
    }

    fn remove_xattr_of(&self, path: &Path, name: &OsStr, follow_last: bool) -> Result<()> {
        self.on_found("remove an attribute of", path, follow_last, |file_system, context, inode| {
            file_system.remove_xattr(context, inode, name.as_bytes())
        })
    }

    fn list_xattrs_of(&self, path: &Path, follow_last: bool) -> Result<Vec<OsString>> {
        self.on_found("list the attributes of", path, follow_last, |file_system, context, inode| {
            let names = file_system.list_xattrs(context, inode)?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// Does something with the inode at a path.
    fn on_found<T>(
        &self,
        operation: &'static str,
        path: &Path,
        follow_last: bool,
        body: impl FnOnce(&dyn FileSystem, &RequestContext, InodeNumber) -> drystone_vfs::Result<T>,
    ) -> Result<T> {
        self.run(operation, path, |path| {
            let found = self.find(path, follow_last)?;
            body(self.file_system(), self.context(), found.inode())
        })
    }
}
