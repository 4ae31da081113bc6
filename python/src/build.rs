//! Building images from directories, archives and layers.
//!
//! # Crash
//!
//! A file gets its name when the image is complete and durable.

use crate::failure::{from_drystone, from_io};
use drystone::vfs::{Exclude, OwnerMap};
use drystone_blockdev::{BlockDevice, FileDevice, OpenMode};
use drystone_mkfs::build::{BuildOptions, Builder, Size, SpareRoom};
use drystone_mkfs::tree::FileTree;
use drystone_sources::oci::Choice;
use drystone_sources::{Changes, HostFiles, Opener, Source, SourceContext, Warnings};
use drystone_sync::thread;
use pyo3::exceptions::{PyFileExistsError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How to build.
struct Request {
    sources: Vec<OsString>,
    size: Size,
    label: String,
    owner: Option<(u32, u32)>,
    exclude: Vec<OsString>,
    overwrite: bool,
}

/// Builds an ext4 image in a file, which gets its name when it is complete; gives warnings.
#[pyfunction]
#[pyo3(signature = (name, sources, *, size=None, free=0, label="", owner=None, exclude=Vec::new(),
    overwrite=false))]
#[expect(clippy::too_many_arguments, reason = "Python has names for them")]
pub fn build(
    py: Python<'_>,
    name: PathBuf,
    sources: Vec<OsString>,
    size: Option<u64>,
    free: u64,
    label: &str,
    owner: Option<(u32, u32)>,
    exclude: Vec<OsString>,
    overwrite: bool,
) -> PyResult<Vec<String>> {
    if size.is_some() && free > 0 {
        return Err(PyValueError::new_err("size and free exclude each other"));
    }
    if label.len() > 16 {
        return Err(PyValueError::new_err("a label has at most 16 bytes"));
    }
    let size = size.map_or(Size::Auto(SpareRoom::Bytes(free)), Size::Fixed);
    let request = Request { sources, size, label: label.to_owned(), owner, exclude, overwrite };
    py.detach(|| request.build(&name))
}

impl Request {
    fn build(self, name: &Path) -> PyResult<Vec<String>> {
        let folder = match name.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let replaced = self.hold(name)?;
        let mut tree = FileTree::new();
        let exclude = Exclude::new(self.exclude);
        let mut context = SourceContext {
            opener: Opener::new(folder),
            choice: Choice::default(),
            exclude: exclude.clone(),
            threads,
            one_file_system: false,
            warnings: Warnings::default(),
            files: HostFiles::default(),
        };
        for source in &self.sources {
            Source::parse(source).add(&mut tree, &mut context).map_err(failed)?;
        }
        let owners = OwnerMap { all: self.owner, ..OwnerMap::default() };
        Changes { exclude, owners, ..Changes::default() }.apply(&mut tree).map_err(failed)?;

        let options =
            BuildOptions::default().size(self.size).label(self.label.into_bytes()).threads(threads);
        let builder = Builder::new(&mut tree, &options).map_err(failed)?;
        let mut unfinished = tempfile::Builder::new();
        let readable = Permissions::from_mode(0o666);
        let unfinished = unfinished.permissions(readable).tempfile_in(folder).map_err(from_io)?;
        let file = unfinished.as_file().try_clone().map_err(from_io)?;
        let device = FileDevice::from_file(file, unfinished.path(), OpenMode::ReadWrite);
        let device = device.map_err(failed)?;
        device.resize(builder.size_bytes()).map_err(failed)?;
        builder.write(&device, true, &()).map_err(failed)?;
        device.flush().map_err(failed)?;
        drop(device);
        // What was looked at may be replaced; what was made meanwhile may not.
        let named = match &replaced {
            Some(_) => unfinished.persist(name),
            None => unfinished.persist_noclobber(name),
        };
        named.map_err(|error| from_io(error.error))?;
        Ok(context.warnings.sentences().collect())
    }

    /// Looks at what has the name, and keeps other processes from using it.
    fn hold(&self, name: &Path) -> PyResult<Option<FileDevice>> {
        let Ok(found) = std::fs::metadata(name) else { return Ok(None) };
        let path = name.as_os_str().to_owned();
        if !found.is_file() {
            const EINVAL: i32 = 22;
            return Err(PyOSError::new_err((EINVAL, "an image is built in a file", path)));
        }
        if found.len() > 0 && !self.overwrite {
            const EEXIST: i32 = 17;
            let text = "it isn't empty; overwrite=True replaces it";
            return Err(PyFileExistsError::new_err((EEXIST, text, path)));
        }
        let held = FileDevice::open(name, OpenMode::ReadWrite);
        held.map(Some).map_err(|error| from_drystone(error.into()))
    }
}

/// What a source, a manifest or the builder has to say, with its place.
fn failed(error: impl std::fmt::Display) -> PyErr {
    const EIO: i32 = 5;
    PyOSError::new_err((EIO, error.to_string()))
}
