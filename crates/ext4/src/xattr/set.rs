//! One attribute changed in a handle of its own.

use super::change::{self, AttributeRequest};
use super::garbage::ValueGarbage;
use super::get;
use super::stored::StoredAttributes;
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::xattr::AttributeName;
use drystone_sync::Arc;
use drystone_vfs::{Errno, RequestContext, XattrMode};

/// Removes a file's capabilities, before its content or its owner changes: they were granted to the old
/// content. Called without locks.
pub(crate) fn drop_capability(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    if inode.is_directory() || !inode.has_xattrs() {
        return Ok(());
    }
    let name = AttributeName { index: AttributeName::SECURITY, suffix: b"capability".to_vec() };
    if get(fs, inode, &name)?.is_none() {
        return Ok(());
    }
    let context = RequestContext::superuser();
    match change_one(fs, &context, inode, &name, None, XattrMode::Replace) {
        // Another thread removed them first.
        Err(Error::Errno(Errno::ENODATA)) => Ok(()),
        done => done,
    }
}

/// Changes one attribute in a handle of its own.
pub(crate) fn change_one(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    name: &AttributeName,
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<()> {
    let mut garbage = ValueGarbage::default();
    let changed = {
        let _content = lock_content(fs, inode);
        let _xattrs = inode.xattrs.write();
        let before = StoredAttributes::load(fs, inode)?;
        let exists = before.area.get(name).is_some() || before.in_block.get(name).is_some();
        match (mode, exists) {
            (XattrMode::Create, true) => return Err(Errno::EEXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        let wish = AttributeRequest { context, name, value, may_use_inode: true };
        let length = value.map_or(0, <[u8]>::len);
        let credits = change::credits(&fs.volume, length, before.value_inodes().len());
        with_space_retry(&fs.volume, || {
            let mut handle = fs.volume.start(credits)?;
            let changed = change::store(fs, &mut handle, inode, &before, &wish, &mut garbage);
            fs.settle(handle, changed)
        })
    };
    garbage.dispose(fs);
    changed
}

/// Keeps the content from moving into or within the inode's record, if the image has inline data.
pub(crate) fn lock_content<'a>(
    fs: &ContentStore,
    inode: &'a Inode,
) -> Option<drystone_sync::RwLockReadGuard<'a, ()>> {
    let may_move = fs.volume.features.incompat.contains(Incompat::INLINE_DATA);
    may_move.then(|| inode.content().read())
}
