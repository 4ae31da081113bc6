//! Records a change of content in the inode: size and times.

use super::touch;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::features::{FILE_BYTES_MAX_WITHOUT_LARGE_FILE, ReadOnlyCompat};
use drystone_jbd2::Handle;
use drystone_vfs::RequestContext;

/// Raises the size to `end` if it is smaller.
pub(super) fn grow(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    end: u64,
) -> Result<()> {
    if end <= inode.size_bytes() {
        return Ok(());
    }
    ensure_large(fs, handle, end)?;
    inode.update(fs, handle, |fields| {
        fields.disk.size_bytes = end;
        Ok(())
    })?;
    inode.note_data_change(handle);
    Ok(())
}

/// Sets `large_file` in the superblock if a file of this size needs it.
pub(crate) fn ensure_large(fs: &ContentStore, handle: &mut Handle<'_>, size: u64) -> Result<()> {
    if size <= FILE_BYTES_MAX_WITHOUT_LARGE_FILE {
        return Ok(());
    }
    fs.volume.ensure_feature(
        handle,
        |superblock| superblock.features().read_only_compat.contains(ReadOnlyCompat::LARGE_FILE),
        |superblock| superblock.set_large_file(),
    )
}

/// Raises the size on disk to `end`, or to the file's size if that is smaller.
pub(super) fn raise_durable(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    end: u64,
) -> Result<()> {
    let (size, durable) = {
        let fields = inode.fields();
        (fields.disk.size_bytes, fields.durable_size)
    };
    let Some(durable) = durable.filter(|durable| *durable < end) else { return Ok(()) };
    let end = end.min(size).max(durable);
    ensure_large(fs, handle, end)?;
    inode.update(fs, handle, |fields| {
        fields.durable_size = (end < size).then_some(end);
        Ok(())
    })?;
    inode.note_data_change(handle);
    Ok(())
}

/// Stamps the inode, and raises its size to `size` if given.
pub(super) fn record(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Inode,
    size: Option<u64>,
) -> Result<()> {
    let size = size.filter(|size| *size > inode.size_bytes());
    if let Some(size) = size {
        ensure_large(fs, handle, size)?;
    }
    inode.note_data_change(handle);
    inode.update(fs, handle, |fields| {
        if let Some(size) = size {
            fields.disk.size_bytes = size;
        }
        touch(fs, context, fields);
        Ok(())
    })
}
