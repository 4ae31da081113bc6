//! Makes, moves and removes entries by path.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{fill, path};
use crate::failure::{Failure, answer, done};
use crate::image::{CImage, session};
use drystone::Fs;
use drystone::vfs::{DeviceNumber, Errno, FileType, NewNode, RenameFlags};
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// For drystone_rename: fails with EEXIST if there is an entry of the new name.
pub const DRYSTONE_NO_REPLACE: u32 = 1;
/// For drystone_rename: swaps the two.
pub const DRYSTONE_EXCHANGE: u32 = 2;

/// Runs `body` on a path of an image.
pub(crate) unsafe fn at(
    image: *mut CImage,
    name: *const c_char,
    body: impl FnOnce(&Fs<'static>, &Path) -> Result<(), Failure>,
) -> c_int {
    done(|| body(&session(image)?.fs, path(name)?))
}

/// Makes a directory: mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_mkdir(
    image: *mut CImage,
    path: *const c_char,
    mode: u32,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.make_node(path, NewNode::Directory, mode)?))
}

/// Makes a directory, and those above it that aren't there: mkdir -p. They get the mode 0777.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_mkdir_all(image: *mut CImage, path: *const c_char) -> c_int {
    at(image, path, |fs, path| Ok(fs.create_dir_all(path)?))
}

/// Makes an entry of the type in `mode`, which may be any but a directory or a symbolic link: mknod. Only
/// devices have numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_mknod(
    image: *mut CImage,
    path: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
) -> c_int {
    at(image, path, |fs, path| {
        let device = DeviceNumber { major, minor };
        let node = match u16::try_from(mode).ok().and_then(FileType::from_mode) {
            Some(FileType::Regular) => NewNode::Regular,
            Some(FileType::CharacterDevice) => NewNode::CharacterDevice(device),
            Some(FileType::BlockDevice) => NewNode::BlockDevice(device),
            Some(FileType::Fifo) => NewNode::Fifo,
            Some(FileType::Socket) => NewNode::Socket,
            _ => {
                let message = format!("mode {mode:#o} has no type that mknod makes");
                return Err(Failure::new(Errno::EINVAL, message));
            }
        };
        Ok(fs.make_node(path, node, mode)?)
    })
}

/// Makes a symbolic link at `link`: symlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_symlink(
    image: *mut CImage,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    at(image, link, |fs, link| Ok(fs.symlink(path(target)?, link)?))
}

/// Gives a file one more name: link. Symbolic links aren't followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_link(
    image: *mut CImage,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    at(image, link, |fs, link| Ok(fs.hard_link(path(original)?, link)?))
}

/// Renames: renameat2. The flags are DRYSTONE_NO_REPLACE or DRYSTONE_EXCHANGE, or 0: then a file, or an
/// empty directory, that has the new name is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_rename(
    image: *mut CImage,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    at(image, from, |fs, from| {
        let known = RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE;
        let flags = RenameFlags::from_bits(flags).filter(|flags| known.contains(*flags));
        let flags = flags.ok_or_else(|| Failure::new(Errno::EINVAL, "unknown flags"))?;
        Ok(fs.rename_with(from, path(to)?, flags)?)
    })
}

/// Removes a name of a file: unlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_unlink(image: *mut CImage, path: *const c_char) -> c_int {
    at(image, path, |fs, path| Ok(fs.remove_file(path)?))
}

/// Removes an empty directory: rmdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_rmdir(image: *mut CImage, path: *const c_char) -> c_int {
    at(image, path, |fs, path| Ok(fs.remove_dir(path)?))
}

/// Removes a directory with everything in it, or a symbolic link itself. A file is ENOTDIR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_remove_all(image: *mut CImage, path: *const c_char) -> c_int {
    at(image, path, |fs, path| Ok(fs.remove_dir_all(path)?))
}

/// The target of a symbolic link, with a 0 at the end. Returns its length; ERANGE if the buffer is too
/// small; with a size of 0 only the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_readlink(
    image: *mut CImage,
    link: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    answer(|| {
        let target = session(image)?.fs.read_link(path(link)?)?;
        fill(target.as_os_str().as_bytes(), true, buffer.cast(), size)
    })
}

/// The path of an entry from the root, without symbolic links, "." and "..". The buffer is as for
/// drystone_readlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_realpath(
    image: *mut CImage,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    answer(|| {
        let real = session(image)?.fs.canonicalize(path(name)?)?;
        fill(real.as_os_str().as_bytes(), true, buffer.cast(), size)
    })
}
