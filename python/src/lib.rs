//! Drystone for Python: what the package `drystone` calls.
//!
//! The classes and functions here are few and plain; `drystone/` beside `src/` gives them the shape that
//! `os`, `pathlib` and `io` have. Other Python threads run during every call that looks at an image.
#![forbid(unsafe_code)]

mod build;
mod check;
mod failure;
mod file;
mod image;
mod slot;

use pyo3::prelude::*;

#[pymodule]
mod _drystone {
    use super::*;

    #[pymodule_export]
    use super::build::build;
    #[pymodule_export]
    use super::check::check;
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::image::{Image, mkfs};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
