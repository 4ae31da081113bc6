//! Locks on bytes of a file: our own, and those of QEMU.
//!
//! # Locking
//!
//! Our own locks are on the bytes that are read or written, except those that stand for something else:
//!
//! QEMU, with libvirt and guestfish, locks bytes 100 and 200 of an image, and some after each. A program
//! locks byte `100 + n` if it uses right `n`, and byte `200 + n` if it lets nobody else use it.
//! All these locks are shared ones. After it has taken its own, a program tests whether somebody has the
//! opposite ones. We do the same:
//!
//! | opened | used | not shared |
//! | --- | --- | --- |
//! | whole, to write | reading, writing, resizing | writing, resizing |
//! | whole, to read | reading | writing |
//! | a part, to write | none | reading, writing |
//! | a part, to read | none | writing |
//!
//! What opens parts uses no right, so that it keeps QEMU out and no other part.
//!
//! Over NFS the lock of a whole file (`flock`) is a lock on all its bytes, also of those that QEMU locks; it is no
//! lock of QEMU's. Over SMB our own would stand in our way, and in that of our writes: no bytes are locked there.
//!
//! # Reference
//! `BLK_PERM_*` and "image locking" in the documentation of QEMU (`docs/system/images.rst`).

use nix::fcntl::FcntlArg;
use std::fs::File;
use std::ops::Range;

/// How much of a file is opened.
pub(super) enum Extent {
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// It is only looked at.
    Nothing,
}

impl Extent {
    /// The bytes that others may not write meanwhile.
    pub fn bytes(&self) -> Range<u64> {
        match self {
            Self::Whole => ALL,
            Self::Part(part) => part.clone(),
            Self::Nothing => 0..0,
        }
    }
}

const ALL: Range<u64> = 0..u64::MAX;

/// Where the bytes begin that stand for rights that are used, and for those that aren't shared.
const USED: u64 = 100;
const NOT_SHARED: u64 = 200;
/// From the first of them to the last that any version of QEMU locks. No partition begins or ends there.
const OF_QEMU: Range<u64> = 100..300;

/// Rights, by their numbers.
const READING: u64 = 0;
const WRITING: u64 = 1;
const RESIZING: u64 = 3;

/// Locks the bytes of what is opened against others. The locks belong to the open file, as `flock` does, and
/// not to the process.
///
/// # Errors
///
/// `EAGAIN` or `EACCES` if another program has it open so that both can't be. Some locks may be held then.
/// `EOPNOTSUPP`, among others, where bytes can't be locked.
pub(super) fn lock(file: &File, is_written: bool, extent: &Extent) -> nix::Result<()> {
    if is_on_smb(file)? {
        return Err(nix::Error::EOPNOTSUPP);
    }
    let (used, not_shared): (&[u64], &[u64]) = match (extent, is_written) {
        (Extent::Nothing, _) => return Ok(()),
        (Extent::Whole, true) => (&[READING, WRITING, RESIZING], &[WRITING, RESIZING]),
        (Extent::Whole, false) => (&[READING], &[WRITING]),
        (Extent::Part(_), true) => (&[], &[READING, WRITING]),
        (Extent::Part(_), false) => (&[], &[WRITING]),
    };
    // Nobody else gets the whole file to write, as `flock` sees to.
    if !(is_written && matches!(extent, Extent::Whole)) {
        let bytes = extent.bytes();
        let kind = if is_written { libc::F_WRLCK } else { libc::F_RDLCK };
        set(file, kind, bytes.start..bytes.end.min(OF_QEMU.start))?;
        set(file, kind, bytes.start.max(OF_QEMU.end)..bytes.end)?;
    }
    let used = used.iter().map(|right| (USED + right, NOT_SHARED + right));
    let not_shared = not_shared.iter().map(|right| (NOT_SHARED + right, USED + right));
    let own_and_opposite: Vec<(u64, u64)> = used.chain(not_shared).collect();
    for (own, _) in &own_and_opposite {
        set(file, libc::F_RDLCK, *own..own + 1)?;
    }
    for (_, opposite) in &own_and_opposite {
        if is_locked(file, *opposite)? {
            return Err(nix::Error::EAGAIN);
        }
    }
    Ok(())
}

/// Releases all locks on bytes.
pub(super) fn unlock(file: &File) -> nix::Result<()> {
    set(file, libc::F_UNLCK, ALL)
}

fn set(file: &File, kind: libc::c_int, bytes: Range<u64>) -> nix::Result<()> {
    match description(kind, &bytes) {
        Some(lock) => nix::fcntl::fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop),
        None => Ok(()),
    }
}

fn is_on_smb(file: &File) -> nix::Result<bool> {
    let kind = nix::sys::statfs::fstatfs(file)?.filesystem_type().0;
    // The magic numbers of SMB, CIFS and SMB 2, of 32 bits.
    Ok([0x517b, 0xff53_4d42, 0xfe53_4d42].contains(&(kind as u32)))
}

/// Whether another program, or another open file of this one, has locked a byte, as QEMU does.
fn is_locked(file: &File, byte: u64) -> nix::Result<bool> {
    let Some(mut lock) = description(libc::F_WRLCK, &(byte..byte + 1)) else { return Ok(false) };
    nix::fcntl::fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    let of_qemu = OF_QEMU.start as libc::off_t..OF_QEMU.end as libc::off_t;
    let is_within = lock.l_len > 0
        && of_qemu.contains(&lock.l_start)
        && lock.l_start + lock.l_len <= of_qemu.end;
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK && is_within)
}

/// What the system is told of bytes; nothing if there are none.
fn description(kind: libc::c_int, bytes: &Range<u64>) -> Option<libc::flock> {
    let narrow = |number: u64| libc::off_t::try_from(number).unwrap_or(libc::off_t::MAX);
    let (start, end) = (narrow(bytes.start), narrow(bytes.end));
    // A length of 0 would stand for all up to the end of the file.
    (start < end).then_some(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: end - start,
        l_pid: 0,
    })
}
