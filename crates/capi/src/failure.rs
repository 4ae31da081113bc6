//! The border to C: no panic crosses it, and what failed can be asked for.
//!
//! # State
//!
//! The number and the words of the last failure of each thread.
#![allow(unsafe_code, reason = "names that C finds")]

use drystone::vfs::Errno;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Why a call failed.
pub(crate) struct Failure {
    errno: Errno,
    message: String,
}

impl Failure {
    pub fn new(errno: Errno, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }
}

impl From<drystone::Error> for Failure {
    fn from(error: drystone::Error) -> Failure {
        Failure { errno: error.errno(), message: error.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        drystone::Error::from(error).into()
    }
}

/// What a call returns to C.
pub(crate) trait Answer {
    /// What says that it failed.
    fn of_failure(code: c_int) -> Self;
}

impl Answer for c_int {
    fn of_failure(code: c_int) -> c_int {
        -code
    }
}

impl Answer for i64 {
    fn of_failure(code: c_int) -> i64 {
        -i64::from(code)
    }
}

impl<T> Answer for *mut T {
    fn of_failure(_: c_int) -> *mut T {
        std::ptr::null_mut()
    }
}

/// Runs a call, and keeps why it failed.
pub(crate) fn answer<A: Answer>(body: impl FnOnce() -> Result<A, Failure>) -> A {
    // After a panic nothing but the message is used here; what the engine holds is for it to protect.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::new(Errno::EIO, format!("fault in libdrystone: {text}")))
    });
    outcome.unwrap_or_else(|failure| {
        let code = failure.errno.code();
        let message = CString::new(failure.message.replace('\0', "\u{fffd}")).unwrap_or_default();
        // A thread that ends has nobody who asks.
        let _ = LAST.try_with(|last| last.replace((code, message)));
        A::of_failure(code)
    })
}

/// As [`answer`], for a call that returns 0.
pub(crate) fn done(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    answer(|| body().map(|()| 0))
}

/// The errno value of the call of this thread that failed last; 0 if none has.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_errno() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or_default()
}

/// What the call of this thread that failed last tried, where, and why it failed, in English. Valid until
/// another call of this thread fails; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: a string that lives in this thread.
        unsafe { CStr::from_ptr(drystone_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(drystone_errno(), 0);
        assert_eq!(message(), "");
        let code = done(|| panic!("at {}", 7));
        assert_eq!((code, drystone_errno()), (-5, 5));
        assert_eq!(message(), "fault in libdrystone: at 7");
        let pointer: *mut u8 = answer(|| panic!("again"));
        assert!(pointer.is_null());
        assert_eq!(message(), "fault in libdrystone: again");
        let failed: i64 = answer(|| Err(drystone::Error::from(Errno::ENOENT).into()));
        assert_eq!((failed, drystone_errno()), (-2, 2));
    }
}
