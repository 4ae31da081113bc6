//! Whole files and whole trees.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{input, is_null, path, put};
use crate::failure::{Failure, done};
use crate::image::{CImage, session};
use crate::names::at;
use drystone::transfer::CopySummary;
use drystone::vfs::Errno;
use std::ffi::{c_char, c_int, c_void};

/// Reads a whole file into memory that drystone_free frees. One more byte, a 0, stands behind the content.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_read_file(
    image: *mut CImage,
    name: *const c_char,
    data: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    done(|| {
        if data.is_null() || size.is_null() {
            return Err(is_null());
        }
        let content = session(image)?.fs.read(path(name)?)?;
        let copy = libc::malloc(content.len() + 1).cast::<u8>();
        if copy.is_null() {
            return Err(Failure::new(Errno::ENOMEM, "no memory for the file"));
        }
        copy.copy_from_nonoverlapping(content.as_ptr(), content.len());
        copy.add(content.len()).write(0);
        put(data, copy.cast())?;
        put(size, content.len())
    })
}

/// Frees what drystone_read_file returned. NULL is nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_free(data: *mut c_void) {
    libc::free(data);
}

/// Makes a file with this content, with the mode 0666, or replaces the content of one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_write_file(
    image: *mut CImage,
    path: *const c_char,
    data: *const c_void,
    size: usize,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.write(path, input(data, size)?)?))
}

/// What was copied.
#[repr(C)]
pub struct CCopySummary {
    /// Regular files, each counted once.
    pub files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device nodes, pipes and sockets.
    pub special: u64,
    /// Content, without holes.
    pub bytes: u64,
    /// Device nodes that only root may make.
    pub not_made: u64,
    /// Owners, attributes and the like that the target can't hold or the caller may not set.
    pub not_kept: u64,
}

/// Copies a file or a tree of this machine into the image, with owners, permissions, times, extended attributes,
/// hard links and holes. The file that the image is in is left out of a tree. `summary` may be NULL; after a failure it
/// is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_copy_in(
    image: *mut CImage,
    from: *const c_char,
    to: *const c_char,
    summary: *mut CCopySummary,
) -> c_int {
    at(image, to, |fs, to| {
        tell(fs.copy_in(path(from)?, to)?, summary);
        Ok(())
    })
}

/// Copies a file or a tree of the image to this machine, as drystone_copy_in does. Owners are kept only for
/// root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_copy_out(
    image: *mut CImage,
    from: *const c_char,
    to: *const c_char,
    summary: *mut CCopySummary,
) -> c_int {
    at(image, from, |fs, from| {
        tell(fs.copy_out(from, path(to)?)?, summary);
        Ok(())
    })
}

unsafe fn tell(copied: CopySummary, summary: *mut CCopySummary) {
    if summary.is_null() {
        return;
    }
    summary.write(CCopySummary {
        files: copied.files,
        hard_links: copied.hard_links,
        directories: copied.directories,
        symlinks: copied.symlinks,
        special: copied.special,
        bytes: copied.bytes,
        not_made: copied.not_made,
        not_kept: copied.not_kept,
    });
}
