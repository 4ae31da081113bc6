//! Files that are opened by handle, as an NFS server does, when the kernel has forgotten them.

use crate::support::{Mounted, errno};
use drystone_sync::{clock, thread};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of a handle's own part that are enough for every file system (`MAX_HANDLE_SZ`).
const HANDLE_BYTES: usize = 128;

/// `struct file_handle`, with room for its last field.
#[repr(C)]
struct Handle {
    length_bytes: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES],
}

impl Handle {
    fn of(path: &Path) -> Handle {
        let mut handle =
            Handle { length_bytes: HANDLE_BYTES as u32, kind: 0, bytes: [0; HANDLE_BYTES] };
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut mount = 0;
        // SAFETY: the path ends with NUL, and the handle has as many bytes as it says.
        let status = unsafe {
            libc::name_to_handle_at(
                libc::AT_FDCWD,
                path.as_ptr(),
                (&raw mut handle).cast(),
                &raw mut mount,
                0,
            )
        };
        assert_eq!(status, 0, "{}", io::Error::last_os_error());
        handle
    }

    fn open(&mut self, mounted: &Mounted) -> io::Result<File> {
        let root = File::open(mounted.root()).unwrap();
        // SAFETY: the handle has at least as many bytes as it says, and the descriptor is open.
        let opened = unsafe {
            libc::open_by_handle_at(root.as_raw_fd(), (&raw mut *self).cast(), libc::O_RDONLY)
        };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now, and nothing else owns it.
        Ok(unsafe { File::from_raw_fd(opened) })
    }
}

/// Makes the kernel forget everything that isn't open.
fn forget_all() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

pub fn forgotten_files_are_opened_by_handle(mounted: &Mounted) {
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    fs::write(mounted.path("d/e/f"), "content").unwrap();
    let mut file = Handle::of(&mounted.path("d/e/f"));
    let mut directory = Handle::of(&mounted.path("d/e"));
    forget_all();
    let mut content = String::new();
    file.open(mounted).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    forget_all();
    // The kernel asks for the way up to the root.
    let opened = directory.open(mounted).unwrap();
    let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
    assert!(path.ends_with("d/e"), "{path:?}");
}

pub fn handles_of_files_that_are_gone_are_stale(mounted: &Mounted) {
    let path = mounted.path("f");
    fs::write(&path, "first").unwrap();
    let mut first = Handle::of(&path);
    fs::remove_file(&path).unwrap();
    // The kernel may release the closed file later, and has the inode until then.
    let soon = clock::now() + Duration::from_secs(20);
    loop {
        forget_all();
        match first.open(mounted) {
            Ok(_) if clock::now() < soon => thread::sleep(Duration::from_millis(20)),
            opened => break assert_eq!(errno(opened), Errno::STALE),
        }
    }
    // One of these reuses its number.
    for number in 0..32 {
        fs::write(mounted.path(&number.to_string()), "next").unwrap();
    }
    assert_eq!(errno(first.open(mounted)), Errno::STALE);
    forget_all();
    assert_eq!(errno(first.open(mounted)), Errno::STALE);
}
