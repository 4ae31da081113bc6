//! The program's allocator: mimalloc.
//!
//! Threads allocate very many small objects that live long, and free those of other threads. mimalloc
//! does that faster than the C library. Programs that use the library choose for themselves.
//!
//! # Unsafe code
//! Sets an option of the C library.
#![allow(unsafe_code)]

use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use mimalloc::MiMalloc;
use rustix::thread::disable_transparent_huge_pages;
use std::ffi::c_long;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay`: milliseconds before freed memory goes back to the system.
const PURGE_DELAY: mi_option_t = 15;

/// Taking memory from the system costs more than the rest of a small operation. Kept memory serves
/// the next burst of operations.
const PURGE_DELAY_MS: c_long = 10_000;

/// To be called before there are other threads. `MIMALLOC_PURGE_DELAY` in the environment counts more.
pub fn keep_freed_memory_for_a_while() {
    // SAFETY: the option exists, and this is the only thread.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// For a command that is bounded in its memory: gives back what is freed at once, and takes no huge pages, of which
/// arenas leave most empty. To be called before there are other threads, like the above, whose delay it replaces.
pub fn take_no_more_memory_than_needed() {
    // SAFETY: as above.
    unsafe { mi_option_set_default(PURGE_DELAY, 0) }
    // Where the kernel doesn't know huge pages, there are none.
    let _ = disable_transparent_huge_pages(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    /// Options are numbers, which may change between versions.
    #[test]
    fn the_option_is_the_delay() {
        // SAFETY: the option exists, and is only read.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, 1000);
    }
}
