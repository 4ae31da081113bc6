//! How much written content the kernel may gather for a mount.
//!
//! The kernel distrusts FUSE servers: each mount may hold only a hundredth of the dirty pages that all
//! file systems together may have. A program that writes some tens of MiB soon sleeps until the server
//! has taken them. A mount of root's is served by a program that root trusts, so its limit is lifted to
//! the one that every file system has.
//!
//! # Reference
//! "sysfs-class-bdi" in the kernel's `Documentation/ABI/testing`.

use drystone_vfs::DeviceNumber;
use std::path::Path;

/// Where the kernel lists what it writes back to.
const DEVICES: &str = "/sys/class/bdi";

/// Lifts the limit of the mount with this device number, if the kernel supports that (Linux 6.2) and
/// allows it to the caller. Otherwise nothing changes.
pub(crate) fn lift(mount: DeviceNumber) {
    let folder = Path::new(DEVICES).join(format!("{}:{}", mount.major, mount.minor));
    for (file, value) in [("strict_limit", "0"), ("max_ratio", "100")] {
        if let Err(error) = std::fs::write(folder.join(file), value) {
            tracing::debug!(
                "the limit of unwritten content stays: {}/{file}: {error}",
                folder.display()
            );
        }
    }
}
