//! The mount table of `/proc/self`.
//!
//! It is parsed here because the crate `procfs` fails on paths that aren't UTF-8 and leaves blanks in paths
//! escaped. Here paths are compared as bytes.

use drystone_vfs::DeviceNumber;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// True if something with a type that begins with `fuse` is mounted on `target`.
pub fn is_mounted(target: &Path) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mounts") else { return false };
    table.split(|byte| *byte == b'\n').any(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let (path, kind) = (words.nth(1), words.next());
        let named = path.is_some_and(|path| unescaped(path) == target.as_os_str());
        named && kind.is_some_and(|kind| kind.starts_with(b"fuse"))
    })
}

/// The device number of the mount on `target`: of the visible one, if there are several. No other file
/// system has the number while this one is mounted.
pub fn device_on(target: &Path) -> Option<DeviceNumber> {
    seen_on(target, &std::fs::read("/proc/self/mountinfo").ok()?)
}

/// True if a mount with this device number is on `target`; another one may hide it.
pub fn is_on(target: &Path, device: DeviceNumber) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    all_on(target, &table).iter().any(|mount| mount.device == device)
}

/// A mount in the table.
struct ListedMount<'t> {
    number: &'t [u8],
    parent: &'t [u8],
    device: DeviceNumber,
}

/// The mounts on `target` from the text of `mountinfo`.
fn all_on<'t>(target: &Path, table: &'t [u8]) -> Vec<ListedMount<'t>> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [number, parent, device, _root, path, ..] = words[..] else { return None };
        let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
        let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
        (unescaped(path) == target.as_os_str()).then_some(ListedMount { number, parent, device })
    });
    mounts.collect()
}

/// [`device_on`] from the text of `mountinfo`.
fn seen_on(target: &Path, table: &[u8]) -> Option<DeviceNumber> {
    let mounts = all_on(target, table);
    // A later mount on the same directory hides an earlier one.
    let is_seen =
        |mount: &&ListedMount<'_>| mounts.iter().all(|other| other.parent != mount.number);
    mounts.iter().rfind(is_seen).map(|mount| mount.device)
}

/// Decodes a path in which blanks and backslashes are octal numbers.
fn unescaped(path: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| tail.first_chunk::<3>()).flatten();
        let octal = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        (rest, _) = match octal {
            Some(byte) => (&tail[3..], plain.push(byte)),
            None => (tail, plain.push(*first)),
        };
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn paths_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(br"/a\040b\134c\1"), OsString::from(r"/a b\c\1"));
    }

    #[test]
    fn the_mount_that_is_seen_is_found() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            90 22 0:52 / /mnt/a\\040b rw - fuse.drystone /a.img rw\n\
            93 22 0:57 / /mnt/\xff rw - fuse.drystone /\xff.img rw\n\
            92 91 0:54 / /mnt/a\\040b rw - fuse.drystone /c.img rw\n\
            91 90 0:53 / /mnt/a\\040b rw - fuse.drystone /b.img rw\n";
        let seen = |path: &[u8]| {
            seen_on(Path::new(OsStr::from_bytes(path)), table).map(|device| device.minor)
        };
        assert_eq!(seen(b"/mnt/a b"), Some(54));
        assert_eq!(seen(b"/mnt/\xff"), Some(57));
        assert_eq!(seen(b"/"), Some(1));
        assert_eq!(seen(b"/mnt"), None);
        let all = all_on(Path::new("/mnt/a b"), table);
        assert_eq!(all.iter().map(|mount| mount.device.minor).collect::<Vec<_>>(), [52, 54, 53]);
    }
}
