//! Reads what C passes, and writes what it asked for.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn, reason = "pointers of C, as the crate's header says")]

use crate::failure::Failure;
use drystone::vfs::Errno;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A string.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Result<&'a [u8], Failure> {
    match text.is_null() {
        true => Err(is_null()),
        false => Ok(CStr::from_ptr(text).to_bytes()),
    }
}

/// A path, or a name.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Failure> {
    Ok(Path::new(OsStr::from_bytes(bytes(text)?)))
}

/// Bytes to read; none if there are to be none, whatever the pointer is.
pub(crate) unsafe fn input<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    values(data.cast(), size)
}

/// Numbers to read; none if there are to be none, whatever the pointer is.
pub(crate) unsafe fn values<'a, T: Copy>(data: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (count, data.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(is_null()),
        _ if count > isize::MAX as usize / size_of::<T>() => Err(too_large()),
        _ => Ok(std::slice::from_raw_parts(data, count)),
    }
}

/// Room for bytes that are read into it. C may not have written to it yet: it is cleared, since Rust may not
/// see bytes without a value.
pub(crate) unsafe fn room<'a>(buffer: *mut c_void, size: usize) -> Result<&'a mut [u8], Failure> {
    match (size, buffer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(is_null()),
        _ if isize::try_from(size).is_err() => Err(too_large()),
        _ => {
            buffer.write_bytes(0, size);
            Ok(std::slice::from_raw_parts_mut(buffer.cast(), size))
        }
    }
}

/// A place for a result.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Failure> {
    match place.is_null() {
        true => Err(is_null()),
        false => {
            place.write(value);
            Ok(())
        }
    }
}

/// Hands `value` out in a buffer, or only its length if the buffer has no room at all. `is_text`: it ends
/// in 0, which isn't counted.
pub(crate) unsafe fn fill(
    value: &[u8],
    is_text: bool,
    buffer: *mut c_void,
    size: usize,
) -> Result<i64, Failure> {
    if size > 0 {
        let needed = value.len() + usize::from(is_text);
        if size < needed {
            let message = format!("the buffer has {size} bytes, {needed} are needed");
            return Err(Failure::new(Errno::ERANGE, message));
        }
        if buffer.is_null() {
            return Err(is_null());
        }
        let buffer = buffer.cast::<u8>();
        buffer.copy_from_nonoverlapping(value.as_ptr(), value.len());
        if is_text {
            buffer.add(value.len()).write(0);
        }
    }
    // No value is as long as that it doesn't fit.
    Ok(value.len() as i64)
}

pub(crate) fn is_null() -> Failure {
    Failure::new(Errno::EINVAL, "an argument is NULL")
}

fn too_large() -> Failure {
    Failure::new(Errno::EINVAL, "a size is larger than any buffer")
}
