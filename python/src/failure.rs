//! Errors become `OSError`, of which Python makes `FileNotFoundError` and so on by the number.

use drystone::vfs::Errno;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use std::path::Path;

/// An error of the library, with its paths.
pub fn from_drystone(error: drystone::Error) -> PyErr {
    let (errno, text) = (error.errno().code(), error.cause().to_string());
    let path = error.path().map(|path| path.as_os_str().to_owned());
    match error.second_path().map(|path| path.as_os_str().to_owned()) {
        // The fourth is for Windows.
        Some(second) => PyOSError::new_err((errno, text, path, None::<i32>, second)),
        None => PyOSError::new_err((errno, text, path)),
    }
}

/// What is wrong with a path.
pub fn at_path(errno: Errno, path: &Path) -> PyErr {
    let text = drystone::Error::from(errno).cause().to_string();
    PyOSError::new_err((errno.code(), text, path.as_os_str().to_owned()))
}

/// An error of reading or writing.
pub fn from_io(error: std::io::Error) -> PyErr {
    from_drystone(drystone::Error::from(error))
}

/// What was closed is used.
pub fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is closed"))
}
