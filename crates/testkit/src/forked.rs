//! Children that `fork` makes of a test.
//!
//! A child has one thread, and must not wait for what another thread of the test may hold. So a test that forks has a
//! program of its own, with no other test in it.
#![allow(unsafe_code, reason = "a copy of this process is what a test needs")]

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

/// Real time that a child may take, in seconds.
const SECONDS_MAX: u32 = 60;

/// Has a child do something, and waits until it is done.
///
/// # Errors
///
/// There can be no child, or it panicked, hung or died.
pub fn in_child(work: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the C library makes its own locks usable in the child. Those of the test are, as said above.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the call takes no pointers.
            unsafe { libc::alarm(SECONDS_MAX) };
            // The test's output is captured where nobody looks for what a child says.
            set_hook(Box::new(|panic| drop(writeln!(io::stderr(), "{panic}"))));
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: the process ends at once; what the test has registered for its own end doesn't run.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        _ => {
            let mut status = 0;
            // SAFETY: the status is written to a variable that lives long enough.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            match status {
                0 => Ok(()),
                _ => Err(io::Error::other(format!("the child ended with status {status:#x}"))),
            }
        }
    }
}
