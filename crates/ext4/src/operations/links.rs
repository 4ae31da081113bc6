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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::credits;
    use crate::testing::TestImage;
    use drystone_vfs::{FileSystem, NewNode, RenameFlags, RequestContext};

    #[test]
    fn an_exchange_gives_a_full_directory_no_subdirectory() {
        let Some(image) = TestImage::new("ext3", 16) else { return };
        let fs = image.open();
        let (me, root) = (RequestContext::superuser(), fs.root());
        let make = |parent, name: &[u8], node| fs.create(&me, parent, name, node, 0o755);
        let full = make(root, b"full", NewNode::Directory).expect("a directory").inode;
        make(full, b"file", NewNode::Regular).expect("a file");
        make(full, b"old", NewNode::Directory).expect("a directory");
        make(root, b"file", NewNode::Regular).expect("a file");
        make(root, b"new", NewNode::Directory).expect("a directory");
        let directory = fs.held(full).expect("a directory");
        let set_links = |links| {
            let mut handle = fs.volume.start(credits::INODE).expect("a handle");
            let set = directory.update(&fs, &mut handle, |fields| {
                fields.disk.links_count = links;
                Ok(())
            });
            fs.settle(handle, set).expect("a count of names");
        };
        set_links(LINKS_MAX);
        let exchange = |from: &[u8], to: &[u8]| {
            let flags = RenameFlags::EXCHANGE;
            fs.rename(&me, root, from, full, to, flags).map_err(|error| error.errno)
        };
        let back = |from: &[u8], to: &[u8]| {
            let flags = RenameFlags::EXCHANGE;
            fs.rename(&me, full, from, root, to, flags).map_err(|error| error.errno)
        };
        assert_eq!(exchange(b"new", b"file"), Err(Errno::EMLINK));
        assert_eq!(back(b"file", b"new"), Err(Errno::EMLINK));
        assert_eq!(exchange(b"new", b"old"), Ok(()));
        assert_eq!(exchange(b"file", b"old"), Ok(()));
        assert_eq!(directory.links_count(), LINKS_MAX - 1);
        set_links(2);
        drop(directory);
        fs.close().expect("a clean end");
        image.check("after exchanges");
    }
}
