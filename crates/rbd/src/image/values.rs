//! Errors and strings of librbd and librados.
#![allow(unsafe_code, reason = "functions of a C library")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

pub(super) const EIO: c_int = 5;
pub(super) const ERANGE: c_int = 34;
/// What a cluster tells a client that is on its blocklist, as `ESHUTDOWN` of Linux.
const BLOCKLISTED: c_int = 108;

pub(super) fn check(result: impl Into<i64>) -> io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(error(result)) } else { Ok(result) }
}

/// An error of librbd or librados, which return a negated errno.
pub(super) fn error(result: i64) -> io::Error {
    match c_int::try_from(-result).unwrap_or(c_int::MAX) {
        BLOCKLISTED => io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "this client is on the cluster's blocklist: its lock was broken by another one",
        ),
        errno => io::Error::from_raw_os_error(errno),
    }
}

/// An error with what it is about.
pub(super) fn told(error: &io::Error, about: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{about}: {error}"))
}

/// The same, with what to do if the user may not.
pub(super) fn not_permitted(error: &io::Error, about: &str) -> io::Error {
    let error = told(error, about);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            told(&error, "the user needs the capability 'profile rbd' of monitors and of the pool")
        }
        _ => error,
    }
}

pub(super) fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A copy of a string.
///
/// # Safety
///
/// The pointer is to a string that ends with a zero.
pub(super) unsafe fn string(text: *const c_char) -> String {
    // SAFETY: as said.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
