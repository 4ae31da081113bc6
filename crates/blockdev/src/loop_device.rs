//! Which file a loop device has, and which bytes of it.
//!
//! The device itself knows. Its path in `/sys` says it only where that path leads to the file: not in another mount
//! namespace, as that of a container, and not after the file was renamed or its name removed.
//!
//! # Reference
//! loop(4); `Documentation/ABI/testing/sysfs-block-loop` of the kernel; `F_SETLEASE` in fcntl(2).
#![allow(unsafe_code, reason = "no crate wraps the question to a loop device")]

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Getter, Opcode};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `LOOP_GET_STATUS64`.
const GET_STATUS: Opcode = 0x4c05;
/// Chooses the signal that tells of a lease. `libc` lacks it.
const F_SETSIG: libc::c_int = 10;
/// The unit of sizes in `/sys`.
const SECTOR_BYTES: u64 = 512;

#[repr(C)]
struct RawLoopStatus {
    device: u64,
    inode: u64,
    own_device: u64,
    offset: u64,
    size_limit: u64,
    numbers: [u32; 4],
    names: [[u8; 64]; 2],
    key: [u8; 32],
    initial: [u64; 2],
}
const _: () = assert!(size_of::<RawLoopStatus>() == 232);

/// Whether a loop device has a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoopFile {
    /// It has these bytes of it.
    Has(Range<u64>),
    /// It may have these bytes of it: its path leads nowhere, and the size of its file would fit.
    MayHave(Range<u64>),
    /// It has another file, or none.
    Other,
}

/// Finds out whether the loop device whose directory in `/sys` this is has the file with this metadata.
pub(crate) fn loop_file(directory: &Path, file: &Metadata) -> LoopFile {
    let Some(backing) = backing_file(directory) else { return LoopFile::Other };
    let (same, range) = match status(&device_at(directory)) {
        Some(status) => {
            let is_same = (status.device, status.inode) == (file.dev(), file.ino());
            (Some(is_same), range(status.offset, status.size_limit))
        }
        None => {
            let found = backing.metadata().map(|found| (found.dev(), found.ino()));
            (found.ok().map(|found| found == (file.dev(), file.ino())), told_range(directory))
        }
    };
    match same {
        Some(true) => LoopFile::Has(range),
        None if fits(directory, file, &range) => LoopFile::MayHave(range),
        Some(false) | None => LoopFile::Other,
    }
}

/// The file in `/dev` of a device with this directory in `/sys`.
pub(crate) fn device_at(directory: &Path) -> PathBuf {
    Path::new("/dev").join(directory.file_name().unwrap_or_default())
}

/// The path of the file, unless the device is none that is attached.
pub(crate) fn backing_file(directory: &Path) -> Option<PathBuf> {
    let mut backing = std::fs::read(directory.join("loop/backing_file")).ok()?;
    backing.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(backing).into())
}

/// Whether somebody else has an open file open too, in whatever namespace, the kernel included. Nothing if that
/// can't be found out: it takes the owner of the file.
///
/// The open file must be the only one of this process.
pub(crate) fn is_open_elsewhere(file: &File) -> Option<bool> {
    let set = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: it is passed no memory.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error()) }
    };
    // Whoever opens the file in between has this process told. The signal for it would end the process.
    set(F_SETSIG, libc::SIGURG).ok()?;
    // The system grants a lease only while nobody else has the file open.
    match set(libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            // A lease of a file that is open once is given back without a wait.
            let _ = set(libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Some(libc::EAGAIN)) => Some(true),
        Err(_) => None,
    }
}

fn status(device: &Path) -> Option<RawLoopStatus> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(device, flags, Mode::empty()).ok()?;
    // SAFETY: the number is that of a question which a loop device answers with this structure, and which other
    // block devices refuse.
    unsafe { rustix::ioctl::ioctl(device, Getter::<GET_STATUS, RawLoopStatus>::new()) }.ok()
}

fn told(directory: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The bytes according to `/sys`; all of them if it doesn't tell.
fn told_range(directory: &Path) -> Range<u64> {
    range(told(directory, "loop/offset"), told(directory, "loop/sizelimit"))
}

fn range(offset: u64, limit: u64) -> Range<u64> {
    offset..if limit == 0 { u64::MAX } else { offset.saturating_add(limit) }
}

/// Whether a device is as large as it would be with this file.
fn fits(directory: &Path, file: &Metadata, range: &Range<u64>) -> bool {
    let length = range.end.min(file.len()).saturating_sub(range.start);
    length / SECTOR_BYTES == told(directory, "size")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder.join("loop")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn a_loop_device_may_have_a_part_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(told_range(folder.path()), 0..u64::MAX);
        sys(folder.path(), &[("loop/offset", "1048576\n"), ("loop/sizelimit", "0\n")]);
        assert_eq!(told_range(folder.path()), 1 << 20..u64::MAX);
        sys(folder.path(), &[("loop/sizelimit", "4096\n")]);
        assert_eq!(told_range(folder.path()), 1 << 20..(1 << 20) + 4096);
    }

    /// As in a container, where the device isn't there either.
    #[test]
    fn a_path_that_leads_nowhere_may_be_that_of_any_file_of_the_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = path.metadata().unwrap();
        let directory = folder.path().join("no-such-device");
        let of = |files: &[(&str, &str)]| {
            sys(&directory, files);
            loop_file(&directory, &file)
        };
        let path = path.to_str().unwrap();
        assert_eq!(of(&[]), LoopFile::Other);
        let there = of(&[("loop/backing_file", &format!("{path}\n")), ("size", "7\n")]);
        assert_eq!(there, LoopFile::Has(0..u64::MAX));
        let elsewhere = of(&[("loop/backing_file", &format!("{path} (deleted)\n"))]);
        assert_eq!(elsewhere, LoopFile::Other);
        assert_eq!(of(&[("size", "2048\n")]), LoopFile::MayHave(0..u64::MAX));
        assert_eq!(of(&[("loop/offset", "4096\n")]), LoopFile::Other);
        assert_eq!(of(&[("size", "2040\n")]), LoopFile::MayHave(4096..u64::MAX));
    }

    #[test]
    fn an_open_file_is_noticed() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let first = open();
        // Some file systems have no leases.
        let Some(is_open) = is_open_elsewhere(&first) else { return };
        assert!(!is_open);
        let second = open();
        assert_eq!(is_open_elsewhere(&first), Some(true));
        drop(second);
        assert_eq!(is_open_elsewhere(&first), Some(false));
    }
}
