//! Asks the server of a mount to make its image larger, with the request that Linux has for ext4.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::os::fd::AsFd;

/// `EXT4_IOC_RESIZE_FS`; the argument is the number of blocks.
const GROW: Opcode = opcode::write::<u64>(b'f', 16);

/// Makes the image larger whose mount an open directory belongs to. Returns when it is.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` if what is mounted can't grow; otherwise what its server says.
pub fn grow(directory: impl AsFd, blocks: u64) -> Result<(), Errno> {
    // SAFETY: the request reads a `u64`, which is what the number says too.
    let request = unsafe { Setter::<GROW, u64>::new(blocks) };
    // SAFETY: the pointer that is passed is that of the request's own number; other drivers than that of a file
    // system don't get it, because it is sent to a directory.
    unsafe { ioctl(directory, request) }
}
