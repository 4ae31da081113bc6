//! Early write-back: the system begins to write large writes to the disk at once.
//!
//! Otherwise it keeps them in its page cache until a flush, which then waits for all of them, while the disk
//! was idle before. Small writes stay in the page cache: they may be overwritten or lie next to others that come.
//!
//! # Crash
//!
//! Nothing is durable before a flush, as without it.
#![allow(unsafe_code, reason = "no crate wraps this system call")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// A write of at least this many bytes is large.
const LARGE_BYTES: u64 = 256 << 10;

/// Has the system begin to write what was written to `length` bytes at `offset`, if they are many. Does not wait
/// for the disk, unless that has hundreds of requests to do.
pub(super) fn begin(file: &File, offset: u64, length: u64) {
    if length < LARGE_BYTES {
        return;
    }
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    // SAFETY: it is passed no memory, and the file is open. A hint: whatever the system answers, a flush writes
    // the same bytes and tells of failures, which this call, as it doesn't wait, takes from no one.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}
