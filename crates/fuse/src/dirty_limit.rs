//! How much written content the kernel may gather for a mount.
//!
//! It distrusts servers and lets only a hundredth of what may be dirty in all wait for each FUSE
//! mount, so that whoever writes some tens of MiB soon has to sleep until the server has taken them.
//! A mount of root's is served by a program that root trusts, and needs no such limit: those hold
//! that all file systems have.
//!
//! # Reference
//! "sysfs-class-bdi" in the kernel's `Documentation/ABI/testing`.

use crate::attach::unescaped;
use std::path::Path;

/// Where the kernel lists what it writes back to.
const DEVICES: &str = "/sys/class/bdi";

/// Lifts the limit of the mount on `target`, as far as the kernel can (Linux 6.2) and lets the caller.
/// Otherwise the mount is as it was.
pub(crate) fn lift(target: &Path) {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return };
    let Some(device) = device_of(&table, target) else { return };
    let folder = Path::new(DEVICES).join(device);
    for (file, value) in [("strict_limit", "0"), ("max_ratio", "100")] {
        if let Err(error) = std::fs::write(folder.join(file), value) {
            tracing::debug!(
                "the limit of unwritten content stays: {}/{file}: {error}",
                folder.display()
            );
        }
    }
}

/// The number of what is mounted on `target`, as `major:minor`: the last one hides the others.
fn device_of<'t>(table: &'t [u8], target: &Path) -> Option<&'t str> {
    let lines = table.split(|byte| *byte == b'\n').rev();
    lines
        .map(|line| line.split(|byte| *byte == b' '))
        .find_map(|mut words| {
            let (device, path) = (words.nth(2)?, words.nth(1)?);
            (unescaped(path) == target.as_os_str()).then_some(device)
        })
        .and_then(|device| std::str::from_utf8(device).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_on_a_directory_counts() {
        let table = b"22 1 0:5 / /a\\040b rw - fuse x rw\n23 22 0:41 / /a\\040b rw - fuse x rw\n\
                      24 1 0:6 / /c rw - tmpfs x rw\n";
        assert_eq!(device_of(table, Path::new("/a b")), Some("0:41"));
        assert_eq!(device_of(table, Path::new("/c")), Some("0:6"));
        assert_eq!(device_of(table, Path::new("/d")), None);
    }
}
