//! Building images from directories, archives and layers.

use crate::failure::call;
use drystone::mkfs::build::{Size, SpareRoom};
use drystone::vfs::{Exclude, OwnerMap};
use drystone::{BuildOptions, build_image};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

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
    let options = BuildOptions::default()
        .size(size.map_or(Size::Auto(SpareRoom::Bytes(free)), Size::Fixed))
        .label(label)
        .owners(OwnerMap { all: owner, ..OwnerMap::default() })
        .exclude(Exclude::new(exclude))
        .overwrite(overwrite);
    call(py, || build_image(&name, &sources, &options, &())).map(|built| built.warnings)
}
