//! The files of an image as the commands see them: paths, names, and errors with their place.

use crate::accounts::AccountNames;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Escaped;
use anyhow::anyhow;
use drystone::Fs;
use drystone::vfs::{
    self, Dots, Errno, FileSystem, FileType, InodeAttributes, InodeGuard, InodeNumber,
    RequestContext, check_listed, find_parent, find_path,
};
use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An open image, used with the rights of the superuser.
pub struct ImageTree<'a> {
    /// Its files, by path. New entries get the permissions that a command gives them.
    pub fs: Fs<'a>,
    /// Its files, by inode.
    pub file_system: &'a dyn FileSystem,
    /// The identity that calls are made with.
    pub context: RequestContext,
    /// The name of the image.
    pub image: &'a Path,
    /// The command works on other images too.
    pub is_one_of_several: bool,
    names: OnceCell<AccountNames>,
    has_reported: Cell<bool>,
    interrupt: Option<Interrupt>,
}

/// The directories that a walk has entered. In a damaged image a directory may lie in itself, or have
/// many names, each of which would double the work.
#[derive(Default)]
pub struct Entered(HashSet<InodeNumber>);

impl Entered {
    /// Fails for a directory that was entered before.
    pub fn enter(&mut self, directory: InodeNumber) -> vfs::Result<()> {
        if self.0.insert(directory) {
            return Ok(());
        }
        let detail = "the directory has another place in the tree";
        Err(vfs::Error::with_detail(Errno::EUCLEAN, detail))
    }
}

impl<'a> ImageTree<'a> {
    /// The files of `file_system`, which is in `image`.
    pub fn new(file_system: &'a dyn FileSystem, image: &'a Path) -> ImageTree<'a> {
        let fs = Fs::over(file_system).with_umask(0);
        let context = RequestContext::superuser();
        let has_reported = Cell::new(false);
        let names = OnceCell::new();
        ImageTree {
            fs,
            file_system,
            context,
            image,
            is_one_of_several: false,
            names,
            has_reported,
            interrupt: None,
        }
    }

    /// The same, for work that ends early after an interrupt.
    pub fn heeding(self, interrupt: Option<Interrupt>) -> ImageTree<'a> {
        ImageTree { interrupt, ..self }
    }

    /// Fails after an interrupt. To be called between the steps of long work.
    pub fn check_interrupt(&self) -> Outcome {
        match self.interrupt.as_ref().filter(|interrupt| interrupt.is_asked()) {
            Some(interrupt) => {
                crate::messages::tell("interrupted; what was changed so far stays so");
                Err(Failure::Code(interrupt.code()))
            }
            None => Ok(()),
        }
    }

    /// Finds what is at a path. Symbolic links on the way are followed; one at the end only if
    /// `follow_last`.
    pub fn find(&self, path: &Path, follow_last: bool) -> anyhow::Result<InodeGuard<'a>> {
        let bytes = path.as_os_str().as_bytes();
        let found = find_path(self.file_system, &self.context, bytes, follow_last);
        found.map_err(|error| self.error(bytes, &error))
    }

    /// Finds the directory that a path ends in, and the name there.
    pub fn find_parent<'p>(&self, path: &'p Path) -> anyhow::Result<(InodeGuard<'a>, &'p [u8])> {
        let bytes = path.as_os_str().as_bytes();
        let found = find_parent(self.file_system, &self.context, bytes);
        found.map_err(|error| self.error(bytes, &error))
    }

    /// The entry of this name in a directory, if there is one.
    pub fn child(
        &self,
        directory: InodeNumber,
        name: &[u8],
    ) -> vfs::Result<Option<InodeGuard<'a>>> {
        match InodeGuard::lookup(self.file_system, &self.context, directory, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names in the directory at `path`, sorted, without `.` and `..`. Names that none can have are
    /// reported and left out.
    pub fn list(&self, directory: InodeNumber, path: &[u8]) -> vfs::Result<Vec<Box<[u8]>>> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut dots = Dots::default();
        self.file_system.read_directory(&self.context, directory, 0, &mut |entry| {
            match check_listed(entry.name, &mut dots) {
                Ok(true) => names.push(entry.name.into()),
                Ok(false) => {}
                Err(error) => self.report(path, &error),
            }
            true
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The target of a symbolic link; none for anything else.
    pub fn link_target(&self, attributes: &InodeAttributes) -> vfs::Result<Option<Vec<u8>>> {
        match attributes.file_type {
            FileType::Symlink => self.file_system.read_link(attributes.inode).map(Some),
            _ => Ok(None),
        }
    }

    /// What the user called the image.
    pub fn image(&self) -> &'a Path {
        self.image
    }

    /// The names that the image has for users and groups.
    pub fn names(&self) -> &AccountNames {
        self.names.get_or_init(|| AccountNames::of_image(&self.fs))
    }

    /// An error with its place.
    pub fn error(&self, path: &[u8], cause: &dyn std::fmt::Display) -> anyhow::Error {
        anyhow!("{}:{}: {cause}", self.image.display(), Escaped(path))
    }

    /// An error of [`fs`](ImageTree::fs), with the place that the user named.
    pub fn error_at(&self, path: &Path, error: drystone::Error) -> anyhow::Error {
        self.error(path.as_os_str().as_bytes(), &error.into_cause())
    }

    /// The same for an entry that was to be made: which directory above it isn't there, if that is why; `advice` says
    /// what to do.
    pub fn error_making(&self, path: &Path, error: drystone::Error, advice: &str) -> anyhow::Error {
        let is_missing = |above: &&Path| {
            let found = self.fs.symlink_metadata(above);
            found.is_err_and(|error| error.errno() == Errno::ENOENT)
        };
        let missing = path.ancestors().skip(1).filter(is_missing).last();
        match missing.filter(|_| error.errno() == Errno::ENOENT) {
            Some(above) => {
                self.error(above.as_os_str().as_bytes(), &format!("doesn't exist{advice}"))
            }
            None => self.error_at(path, error),
        }
    }

    /// Reports a failure at a path; the command goes on and fails at its end.
    pub fn report(&self, path: &[u8], cause: &dyn std::fmt::Display) {
        self.report_error(&self.error(path, cause));
    }

    /// Reports a failure; the command goes on and fails at its end.
    pub fn report_error(&self, error: &anyhow::Error) {
        crate::messages::tell(format_args!("{error:#}"));
        self.has_reported.set(true);
    }

    /// True if something failed.
    pub fn has_reported(&self) -> bool {
        self.has_reported.get()
    }

    /// Runs `body` for each path or the like; one that fails is reported and the others go on.
    pub fn for_each<T>(&self, items: &[T], mut body: impl FnMut(&T) -> Outcome) -> Outcome {
        for item in items {
            self.check_interrupt()?;
            match body(item) {
                Err(Failure::Failed(error)) if error.downcast_ref::<std::io::Error>().is_none() => {
                    self.report_error(&error);
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// `directory/name`.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    push(&mut path, name);
    path
}

/// Appends an entry's name to a directory's path.
pub fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
