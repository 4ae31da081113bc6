//! Compares trees.

use super::Fs;
use super::transfer::FirstProblem;
use crate::compare::{CompareOptions, CompareSummary, ComparedTree, Difference, compare};
use crate::transfer::Endpoint;
use crate::{Error, Result};
use drystone_vfs::Errno;
use std::path::Path;

impl Fs<'_> {
    /// The file or the tree at `path`, for the other side of a [`diff`](Fs::diff).
    pub fn tree<'t>(&'t self, path: &'t (impl AsRef<Path> + ?Sized)) -> ComparedTree<'t> {
        ComparedTree { place: Endpoint::Image(self.file_system()), path: path.as_ref() }
    }

    /// Compares the file or the tree at `path` with another one, of this image, another one
    /// ([`tree`](Fs::tree)) or this machine ([`ComparedTree::host`]), and calls `found` for each difference, in
    /// the order of their paths.
    ///
    /// ```
    /// # use drystone::{CreateOptions, Image};
    /// use drystone::compare::{CompareOptions, DifferenceKind};
    ///
    /// # fn main() -> drystone::Result<()> {
    /// # let image = Image::in_memory(&CreateOptions::new(8 << 20))?;
    /// let fs = image.fs();
    /// for directory in ["/old", "/new"] {
    ///     fs.create_dir(directory)?;
    ///     fs.write(format!("{directory}/file"), directory)?;
    /// }
    /// let mut options = CompareOptions::default();
    /// options.aspects.times = false;
    /// let mut differences = Vec::new();
    /// fs.diff("/old", fs.tree("/new"), &options, |difference| differences.push(difference.clone()))?;
    /// assert_eq!(differences.len(), 1);
    /// assert_eq!(differences[0].path.as_os_str(), "file");
    /// assert_eq!(differences[0].kind, DifferenceKind::Content(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The first one; what can be compared is compared all the same. Only the superuser of an image may.
    pub fn diff(
        &self,
        path: impl AsRef<Path>,
        other: ComparedTree<'_>,
        options: &CompareOptions,
        mut found: impl FnMut(&Difference),
    ) -> Result<CompareSummary> {
        let path = path.as_ref();
        let failed = |error: Error| error.during("compare").at(path).and_at(other.path);
        if self.context().check_permissions {
            // It would read with all rights.
            return Err(failed(Errno::EPERM.into()));
        }
        let first = FirstProblem::new();
        let outcome = compare(self.tree(path), other, options, &first, &mut found);
        match (first.into_error(), outcome) {
            (Some(error), _) => Err(error),
            (None, Err(problem)) => Err(problem.into()),
            (None, Ok(summary)) if summary.failed > 0 => Err(failed(Errno::EIO.into())),
            (None, Ok(summary)) => Ok(summary),
        }
    }
}
