//! Copies trees between this machine and the image.

use super::Fs;
use crate::transfer::{
    CopyItem, CopyMonitor, CopyOptions, CopyProblem, CopySummary, Endpoint, copy,
};
use crate::{Error, Result};
use drystone_sync::{LockClass, Mutex};
use drystone_vfs::Errno;
#[cfg(feature = "build")]
use std::io::Seek;
use std::path::Path;

/// The first problem of a copy.
static FIRST_PROBLEM: LockClass = LockClass::new("first problem of a copy", 10);

impl Fs<'_> {
    /// Copies the file or the tree at `from` on this machine to the path `to`, with owners, permissions,
    /// times, extended attributes, hard links and holes. A directory is merged into one that is there, and any
    /// other entry replaces one that isn't a directory, once it is complete; a directory in place of something
    /// else, or the other way round, is an error. The file that the image is in is left out.
    /// [`transfer`](crate::transfer) has options, and says how far it is.
    ///
    /// # Errors
    ///
    /// The first one; what can be copied is copied all the same. Only the superuser of an image may.
    pub fn copy_in(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<CopySummary> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.copied("copy", from, to, |first| {
            let target = Endpoint::Image(self.file_system());
            let (item, into) = item_to(from, to);
            let itself: Vec<_> = self.0.image.host_file().into_iter().collect();
            let options = CopyOptions::default().excluded(itself);
            copy(Endpoint::Host, &[item], target, into, &options, first)
        })
    }

    /// Copies the file or the tree at `from` to the path `to` on this machine, as
    /// [`copy_in`](Fs::copy_in) does.
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Fs::copy_in). Owners can only be kept by root. `EBUSY` for a name that is that of the
    /// file that the image is in: it isn't replaced.
    pub fn copy_out(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<CopySummary> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.copied("copy", from, to, |first| {
            let source = Endpoint::Image(self.file_system());
            let (item, into) = item_to(from, to);
            let itself: Vec<_> = self.0.image.host_file().into_iter().collect();
            let keep_owners = rustix::process::geteuid().is_root();
            let options = CopyOptions::default().keep_owners(keep_owners).excluded(itself);
            copy(source, &[item], Endpoint::Host, into, &options, first)
        })
    }

    /// Writes the directory at `path` to `out` as a tar archive, whose top it is.
    /// [`import_tar`](Fs::import_tar) unpacks it.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.create_dir("/etc")?;
    /// fs.write("/etc/hostname", "wall\n")?;
    /// let mut archive = Vec::new();
    /// let summary = fs.extract_tar("/etc", &mut archive)?;
    /// assert_eq!((summary.files, summary.bytes), (1, 5));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Fs::copy_in); `out` takes no more.
    #[cfg(feature = "tar")]
    pub fn extract_tar(
        &self,
        path: impl AsRef<Path>,
        mut out: impl std::io::Write + Send,
    ) -> Result<CopySummary> {
        let path = path.as_ref();
        self.copied("archive", path, path, |first| {
            let item = CopyItem { path: path.to_path_buf(), name: None };
            crate::transfer::archive(
                self.file_system(),
                &item,
                &mut out,
                &CopyOptions::default(),
                first,
            )
        })
    }

    /// Unpacks a tar archive into the directory `into`, with owners, permissions, times, extended attributes,
    /// ACLs, hard links and holes. A directory that is there is merged into, anything else replaced; only a
    /// directory is never replaced by something else, which is an error. The archive may be compressed if the
    /// feature `compression` is on. An ordinary user owns what is unpacked.
    /// [`transfer::import`](crate::transfer::import) has options, and says how far it is.
    ///
    /// The archive is first copied to a file without a name in [`std::env::temp_dir`] and read to its end: one
    /// that is cut off in an entry, or has a damaged header, changes nothing. Content has no checksum in a tar.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// fs.create_dir_all("/etc/ssl")?;
    /// fs.write("/etc/ssl/openssl.cnf", "# none\n")?;
    /// // For a file: fs.import_tar(std::fs::File::open("etc.tar")?, "/etc")?
    /// let mut archive = Vec::new();
    /// fs.extract_tar("/etc", &mut archive)?;
    /// fs.create_dir("/copy")?;
    /// let summary = fs.import_tar(&archive[..], "/copy")?;
    /// assert_eq!((summary.files, summary.directories), (1, 2));
    /// assert_eq!(fs.read("/copy/ssl/openssl.cnf")?, b"# none\n");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The archive can't be read or is damaged, or `into` isn't a directory. If entries can't be made, the error is
    /// that of the first: the others are unpacked, and what it would have replaced stays.
    #[cfg(feature = "tar")]
    pub fn import_tar(
        &self,
        archive: impl std::io::Read,
        into: impl AsRef<Path>,
    ) -> Result<CopySummary> {
        let into = into.as_ref();
        self.run("import", into, |_| Ok(()))?;
        let opener = drystone_sources::Opener::new(&std::env::temp_dir());
        let archive = opener
            .read("the archive", archive)
            .map_err(|error| Error::from(error).during("import").at(into))?;
        let (first, options) = (FirstProblem::new(), CopyOptions::default());
        let summary = crate::transfer::import(
            &archive,
            self.file_system(),
            self.context(),
            into,
            &options,
            &first,
        )?;
        first.into_error().map_or(Ok(summary), Err)
    }

    /// Builds a new image of the directory at `path`, which becomes its root: a smaller or a larger one, or one of another
    /// kind. It goes where `name` says, as with [`build_image`](crate::build_image), by way of an archive in a file
    /// without a name beside it, or in [`std::env::temp_dir`] if `name` isn't a file.
    ///
    /// Label and UUID are those of `options`. Flags of inodes, project numbers and times of creation aren't kept. Nobody
    /// may change the directory meanwhile.
    ///
    /// ```no_run
    /// use drystone::{BuildOptions, FileSystemKind, Image};
    ///
    /// # fn main() -> drystone::Result<()> {
    /// let image = Image::options().read_only(true).open("disk.img")?;
    /// image.fs().build("/", "copy.nilfs", &BuildOptions::default().kind(FileSystemKind::Nilfs2))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`extract_tar`](Fs::extract_tar) and [`build_image`](crate::build_image).
    #[cfg(feature = "build")]
    pub fn build(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<Path>,
        options: &crate::BuildOptions,
    ) -> Result<crate::BuildSummary> {
        let (path, name) = (path.as_ref(), name.as_ref());
        crate::build::build_of(name, options, &(), |tree, context| {
            let mut file = tempfile::tempfile_in(crate::build::spool_directory(name))?;
            let left_out = self.extract_tar(path, &mut file)?.not_kept;
            file.rewind()?;
            let archive = context.opener.open_file("the archive", file)?;
            drystone_sources::add_archive(tree, archive, context)?;
            let warning = format!("sockets are left out, {left_out} of them: archives hold none");
            Ok((left_out > 0).then_some(warning).into_iter().collect())
        })
    }

    fn copied(
        &self,
        operation: &'static str,
        from: &Path,
        to: &Path,
        body: impl FnOnce(&FirstProblem) -> std::result::Result<CopySummary, CopyProblem>,
    ) -> Result<CopySummary> {
        if self.context().check_permissions {
            // It would copy with all rights.
            return Err(Error::from(Errno::EPERM).during(operation).at(from));
        }
        let first = FirstProblem::new();
        let outcome = body(&first);
        match (first.into_error(), outcome) {
            (Some(error), _) => Err(error),
            (None, Err(problem)) => Err(problem.into()),
            (None, Ok(summary)) if summary.failed > 0 => {
                Err(Error::from(Errno::EIO).during(operation).at(to))
            }
            (None, Ok(summary)) => Ok(summary),
        }
    }
}

/// Keeps the first problem that isn't just a warning.
pub(super) struct FirstProblem(Mutex<Option<CopyProblem>>);

impl FirstProblem {
    pub fn new() -> FirstProblem {
        FirstProblem(Mutex::new(&FIRST_PROBLEM, None))
    }

    /// The error that stands for it.
    pub fn into_error(self) -> Option<Error> {
        self.0.into_inner().map(Error::from)
    }
}

impl CopyMonitor for FirstProblem {
    fn problem(&self, problem: &CopyProblem) {
        if !problem.is_warning {
            self.0.lock().get_or_insert_with(|| problem.clone());
        }
    }
}

/// What to copy, and into which directory, so that it comes to be at `to`.
fn item_to<'t>(from: &Path, to: &'t Path) -> (CopyItem, &'t Path) {
    let name = to.file_name().map(std::ffi::OsStr::to_os_string);
    let into = match (&name, to.parent()) {
        (Some(_), Some(above)) if above.as_os_str().is_empty() => Path::new("."),
        (Some(_), Some(above)) => above,
        _ => to,
    };
    (CopyItem { path: from.to_path_buf(), name }, into)
}
