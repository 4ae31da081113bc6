//! The border to Python: other threads of Python run during a call, and errors become `OSError`, of which Python makes
//! `FileNotFoundError` and so on by the number.

use drystone::vfs::Errno;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::{PyErr, PyResult, Python};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs a call of the library. A panic is an `OSError`, too: Python would get an exception that no `except` for
/// errors catches.
pub fn call<T: Send, E: Into<drystone::Error> + Send>(
    py: Python<'_>,
    body: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    // After a panic nothing but the message is used here; what the engine holds is for it to protect.
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(body)));
    match outcome {
        Ok(outcome) => outcome.map_err(|error| from_drystone(error.into())),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            let text = format!("fault in drystone: {text}");
            Err(PyOSError::new_err((Errno::EIO.code(), text)))
        }
    }
}

/// An error of the library, with its paths.
fn from_drystone(error: drystone::Error) -> PyErr {
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

/// What was closed is used.
pub fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is closed"))
}
