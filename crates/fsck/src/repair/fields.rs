//! Fields of inodes that several rules set.

use super::repairer::{Done, Repairer};
use crate::image::Error;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{InodeFlags, ModeFileType};
use std::ops::Range;

pub(super) const SIZE_LOW: Range<usize> = 4..8;
pub(super) const SIZE_HIGH: Range<usize> = 108..112;
pub(super) const MODE: Range<usize> = 0..2;
const DELETION_TIME: Range<usize> = 20..24;
pub(super) const FLAGS: Range<usize> = 32..36;

pub(super) fn set_deletion_time(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    seconds: u32,
) -> Result<Done, Error> {
    set(repairer, inode, DELETION_TIME, u64::from(seconds))
}

/// The bits of a mode that are no type.
pub(super) const PERMISSIONS: u16 = 0o7777;

/// Makes an inode one of another type.
pub(super) fn set_type(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    kind: ModeFileType,
) -> Result<Done, Error> {
    repairer.edit_inode(inode, |bytes| {
        let mode = u16::from_le_bytes([bytes[MODE.start], bytes[MODE.start + 1]]);
        let mode = mode & PERMISSIONS | kind.mode_bits();
        bytes[MODE].copy_from_slice(&mode.to_le_bytes());
    })?;
    Ok(Some("the inode got its type back"))
}

/// Stores a number in a field, as many bytes of it as the field has.
pub(super) fn set(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    field: Range<usize>,
    value: u64,
) -> Result<Done, Error> {
    let length = field.len();
    repairer.edit_inode(inode, |bytes| {
        bytes[field].copy_from_slice(&value.to_le_bytes()[..length]);
    })
}

pub(super) fn set_size(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    size: u64,
) -> Result<Done, Error> {
    repairer.edit_inode(inode, |bytes| {
        bytes[SIZE_LOW].copy_from_slice(&(size as u32).to_le_bytes());
        bytes[SIZE_HIGH].copy_from_slice(&((size >> 32) as u32).to_le_bytes());
    })
}

pub(super) fn set_flags(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    flags: InodeFlags,
) -> Result<Done, Error> {
    repairer.edit_inode(inode, |bytes| store_flags(bytes, |stored| stored | flags.bits()))
}

pub(super) fn clear_flags(
    repairer: &Repairer<'_, '_>,
    inode: InodeNumber,
    flags: InodeFlags,
) -> Result<Done, Error> {
    repairer.edit_inode(inode, |bytes| store_flags(bytes, |stored| stored & !flags.bits()))
}

fn store_flags(bytes: &mut [u8], change: impl FnOnce(u32) -> u32) {
    let stored = bytes[FLAGS].iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    bytes[FLAGS].copy_from_slice(&change(stored).to_le_bytes());
}
