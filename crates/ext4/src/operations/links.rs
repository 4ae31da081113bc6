//! Counting the names of an inode.

use super::Engine;
use crate::error::Result;
use crate::inode::{Fields, Inode};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::Errno;

/// The most names that an inode can have. A directory with more subdirectories than that has a count
/// of 1, which means "many" (`dir_nlink`).
pub(crate) const LINKS_MAX: u16 = 65_000;
/// The count of a directory with too many subdirectories to count.
const LINKS_MANY: u16 = 1;

/// Checks that a directory may get one more subdirectory.
pub(super) fn check_room(fs: &Engine, directory: &Inode) -> Result<()> {
    let full = directory.fields().disk.links_count >= LINKS_MAX;
    if full && !fs.volume.layout().has_unlimited_subdirectories() {
        Err(Errno::EMLINK.into())
    } else {
        Ok(())
    }
}

/// Counts one more subdirectory.
pub(crate) fn add_subdirectory(fields: &mut Fields) {
    let links = &mut fields.disk.links_count;
    *links = match *links {
        LINKS_MANY => LINKS_MANY,
        count if count >= LINKS_MAX => LINKS_MANY,
        count => count + 1,
    };
}

/// Counts one subdirectory less.
pub(crate) fn remove_subdirectory(fields: &mut Fields) {
    let links = &mut fields.disk.links_count;
    if *links > 2 {
        *links -= 1;
    }
}

/// Takes one name from `inode`, which goes on the orphan record if it was the last. A directory
/// has one name, whatever its count says.
pub(super) fn drop_name(fs: &Engine, handle: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let now = fs.now();
    let last = inode.is_directory() || inode.fields().disk.links_count <= 1;
    if last && !drystone_sync::planted!("unlink-without-orphan") {
        fs.orphans.add(fs, handle, inode)?;
    }
    inode.update(fs, handle, |fields| {
        fields.disk.links_count = if last { 0 } else { fields.disk.links_count - 1 };
        fields.disk.change_time = now;
        if inode.is_directory() {
            fields.disk.size_bytes = 0;
        }
        Ok(())
    })
}
