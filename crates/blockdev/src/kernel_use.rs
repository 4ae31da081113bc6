//! Whether the kernel uses a regular file as a disk.
//!
//! The kernel takes no lock on the file behind a loop device, so our own lock can't tell. Block
//! devices need none of this: opening one exclusively claims it.
//!
//! # Reference
//! `proc_pid_mountinfo(5)`.

use crate::loop_device::{LoopFile, backing_file, device_at, is_open_elsewhere, loop_file};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How the kernel uses a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelUse {
    /// It is mounted at this directory.
    Mounted(PathBuf),
    /// It is behind this loop device, which is in use, or which we may not ask.
    LoopDevice(PathBuf),
    /// Somebody has it open, perhaps this loop device, whose file has a path that leads nowhere here.
    PerhapsLoopDevice(PathBuf),
}

impl fmt::Display for KernelUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted(directory) => write!(formatter, "mounted at {}", directory.display()),
            Self::LoopDevice(device) => {
                let device = device.display();
                write!(formatter, "in use by way of {device} ('losetup -d {device}' detaches it)")
            }
            Self::PerhapsLoopDevice(device) => write!(
                formatter,
                "open elsewhere, perhaps by way of {}, whose file can't be found here",
                device.display()
            ),
        }
    }
}

/// Finds out how the kernel uses these bytes of a regular file with this metadata, if it does. The file must be
/// open only once.
pub(crate) fn kernel_use(file: &File, found: &Metadata, bytes: &Range<u64>) -> Option<KernelUse> {
    let mounts = mount_table();
    let is_file = |path: &Path| is_at(found, path);
    if let Some(mount) = mounts.iter().find(|mount| mount.is_of(is_file)) {
        return Some(KernelUse::Mounted(mount.directory.clone()));
    }
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.map(|device| device.path()).find_map(|device| match loop_file(&device, found) {
        LoopFile::Has(its) if shares_bytes(&its, bytes) => use_of_loop(&device, &mounts),
        LoopFile::MayHave(its) if shares_bytes(&its, bytes) && is_open_elsewhere(file)? => {
            Some(KernelUse::PerhapsLoopDevice(device_at(&device)))
        }
        _ => None,
    })
}

/// Whether the file system with the device number `number` lies on an image, in a file or on a device: as
/// a mount of it, of one of its partitions, or of an image in it.
pub fn lies_on(number: u64, image: &Path) -> bool {
    let Ok(image) = image.metadata() else { return false };
    is_on(number, &image)
}

fn is_on(number: u64, image: &Metadata) -> bool {
    if image.file_type().is_block_device() && image.rdev() == number {
        return true;
    }
    let is_it = |path: &Path| is_at(image, path);
    let text = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    // What a server in user space mounts has no device, but often a source.
    if mount_table().iter().any(|mount| mount.device == text.as_bytes() && mount.is_of(is_it)) {
        return true;
    }
    let Ok(device) = Path::new("/sys/dev/block").join(text).canonicalize() else { return false };
    if let Some(backing) = backing_file(&device) {
        return is_it(&backing) || backing.metadata().is_ok_and(|found| is_on(found.dev(), image));
    }
    // A partition lies in the folder of its disk; what is made of other devices names them.
    let disk = device.join("partition").exists().then(|| device.parent()).flatten();
    let parts = std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut below = parts.map(|entry| entry.path()).chain(disk.map(Path::to_owned));
    below.any(|below| number_of(&below).is_some_and(|number| is_on(number, image)))
}

/// The device number of a device, according to its directory in `/sys`.
fn number_of(directory: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a path leads to the file that has this metadata.
fn is_at(file: &Metadata, path: &Path) -> bool {
    path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
}

fn shares_bytes(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// How a loop device or one of its partitions is used, according to its `directory` in `/sys`.
fn use_of_loop(directory: &Path, mounts: &[Mount]) -> Option<KernelUse> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let partitions = entries.map(|entry| entry.path());
    let numbers: Vec<Vec<u8>> = partitions
        .chain([directory.to_owned()])
        .filter_map(|device| std::fs::read(device.join("dev")).ok())
        .map(|number| number.trim_ascii().to_vec())
        .collect();
    if let Some(mount) = mounts.iter().find(|mount| numbers.contains(&mount.device)) {
        return Some(KernelUse::Mounted(mount.directory.clone()));
    }
    // Mounts in other namespaces, devices built on it, and programs that write it have claimed it.
    // If we aren't allowed to ask, it may be in use.
    let device = device_at(directory);
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_free = rustix::fs::open(&device, flags, Mode::empty()).is_ok();
    (!is_free).then_some(KernelUse::LoopDevice(device))
}

/// A line of the mount table.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// As `/sys` has it: `7:0`.
    device: Vec<u8>,
    directory: PathBuf,
    source: PathBuf,
    /// False for our own mounts: their server has locked the image, or is gone.
    is_kernels: bool,
}

impl Mount {
    /// Whether the kernel has mounted a source that `is_source` accepts. A source that isn't an
    /// absolute path names something else, such as `tmpfs`.
    fn is_of(&self, is_source: impl Fn(&Path) -> bool) -> bool {
        self.is_kernels && self.source.is_absolute() && is_source(&self.source)
    }
}

fn mount_table() -> Vec<Mount> {
    let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    mountinfo.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (device, directory) = (fields.nth(2)?.to_vec(), path(unescaped(fields.nth(1)?)));
    // Some optional fields come before the dash.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (file_system, source) = (fields.next()?, path(unescaped(fields.next()?)));
    Some(Mount { device, directory, source, is_kernels: file_system != b"fuse.drystone" })
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Spaces and some others stand there as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table() {
        let line =
            br"36 35 7:0 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - ext4 /dev/loop0 rw";
        let expected = Mount {
            device: b"7:0".to_vec(),
            directory: r"/mnt/a b\c".into(),
            source: "/dev/loop0".into(),
            is_kernels: true,
        };
        assert_eq!(mount(line), Some(expected));
        let ours = mount(b"40 35 0:50 / /mnt rw - fuse.drystone /a.img rw").unwrap();
        assert_eq!((ours.source, ours.is_kernels), ("/a.img".into(), false));
        for broken in
            [&b""[..], b"36 35 7:0", b"36 35 7:0 / /mnt rw", b"36 35 7:0 / /mnt rw - ext4"]
        {
            assert_eq!(mount(broken), None);
        }
    }

    /// The current directory may contain a file of that name.
    #[test]
    fn a_source_that_is_no_path_is_no_file() {
        let is_found = |line: &[u8]| mount(line).unwrap().is_of(|_| true);
        assert!(is_found(b"36 35 7:0 / /mnt rw - ext4 /a.img rw"));
        assert!(!is_found(b"36 35 7:0 / /mnt rw - overlay overlay rw"));
        assert!(!is_found(b"40 35 0:50 / /mnt rw - fuse.drystone /a.img rw"));
    }

    #[test]
    fn bytes_are_shared_or_not() {
        let range = 1 << 20..(1 << 20) + 4096;
        for (other, is_shared) in [
            (0..u64::MAX, true),
            (0..1 << 20, false),
            (0..(1 << 20) + 1, true),
            ((1 << 20) + 4095..2 << 20, true),
            ((1 << 20) + 4096..2 << 20, false),
        ] {
            assert_eq!(shares_bytes(&range, &other), is_shared, "{other:?}");
        }
    }

    #[test]
    fn a_file_of_its_own_is_not_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        assert_eq!(kernel_use(file.as_file(), &found, &(0..u64::MAX)), None);
    }
}
