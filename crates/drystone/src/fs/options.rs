//! How a file is opened.

use drystone_vfs::{Errno, OpenFlags};

/// How a file is opened, with the rules of [`std::fs::OpenOptions`].
///
/// ```
/// use drystone::{CreateOptions, Image, OpenOptions};
/// use std::io::Write;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
/// let fs = image.fs();
/// let mut log = fs.open_with("/log", OpenOptions::new().append(true).create(true))?;
/// log.write_all(b"started\n")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    /// Permission bits, which keep this within eight bytes: it is copied at each opening.
    mode: u16,
}

impl OpenOptions {
    /// Nothing is chosen yet: at least one of [`read`](OpenOptions::read), [`write`](OpenOptions::write)
    /// and [`append`](OpenOptions::append) must be.
    #[must_use]
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// For reading.
    #[must_use]
    pub const fn read(self, read: bool) -> OpenOptions {
        OpenOptions { read, ..self }
    }

    /// For writing.
    #[must_use]
    pub const fn write(self, write: bool) -> OpenOptions {
        OpenOptions { write, ..self }
    }

    /// For writing at the end, wherever that is at the moment.
    #[must_use]
    pub const fn append(self, append: bool) -> OpenOptions {
        OpenOptions { append, ..self }
    }

    /// Cuts an existing file off.
    #[must_use]
    pub const fn truncate(self, truncate: bool) -> OpenOptions {
        OpenOptions { truncate, ..self }
    }

    /// Makes the file if it isn't there.
    #[must_use]
    pub const fn create(self, create: bool) -> OpenOptions {
        OpenOptions { create, ..self }
    }

    /// Makes the file, which must not be there.
    #[must_use]
    pub const fn create_new(self, create_new: bool) -> OpenOptions {
        OpenOptions { create_new, ..self }
    }

    /// Permissions of a new file, of which the umask takes some away. 0o666 by default.
    #[must_use]
    pub const fn mode(self, mode: u32) -> OpenOptions {
        OpenOptions { mode: (mode & 0o7777) as u16, ..self }
    }

    /// Fails for what contradicts itself, as the standard library does.
    #[inline]
    pub(super) fn check(self) -> drystone_vfs::Result<()> {
        let writes = self.write || self.append;
        let makes = self.create || self.create_new;
        let has_access = self.read || writes;
        let is_cut_by_append = self.append && self.truncate && !self.create_new;
        if has_access && (writes || !(self.truncate || makes)) && !is_cut_by_append {
            return Ok(());
        }
        Err(Errno::EINVAL.into())
    }

    #[inline]
    pub(super) const fn may_create(self) -> bool {
        self.create || self.create_new
    }

    #[inline]
    pub(super) const fn must_create(self) -> bool {
        self.create_new
    }

    #[inline]
    pub(super) const fn reads(self) -> bool {
        self.read
    }

    #[inline]
    pub(super) const fn writes(self) -> bool {
        self.write || self.append
    }

    #[inline]
    pub(super) const fn appends(self) -> bool {
        self.append
    }

    #[inline]
    pub(super) const fn permissions(self) -> u16 {
        self.mode
    }

    #[inline]
    pub(super) fn flags(self) -> OpenFlags {
        let mut flags = OpenFlags::empty();
        flags.set(OpenFlags::READ, self.read);
        flags.set(OpenFlags::WRITE, self.writes());
        flags.set(OpenFlags::TRUNCATE, self.truncate);
        flags
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}
