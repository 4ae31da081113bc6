//! Files with inline data, which is stored in the inode (`inline_data`).
//!
//! # Crash
//! Inline data is part of the inode, and changes with it in one handle. To move it out, the block
//! is written before it is mapped, in the handle that removes the data from the inode.

use super::blocks::write_blocks;
use super::{is_inline, touch};
use crate::alloc::with_space_retry;
use crate::content::ContentStore;
use crate::credits;
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::inline::{self, InlineState};
use crate::mapping;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::Arc;
use drystone_vfs::RequestContext;

/// Whether the data may be stored in the inode: it is already, or the file is still empty.
pub(super) fn may_hold(fs: &ContentStore, inode: &Inode) -> Result<bool> {
    let fields = inode.fields();
    if fields.disk.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(true);
    }
    Ok(fs.volume.features.incompat.contains(Incompat::INLINE_DATA)
        && fields.disk.size_bytes == 0
        && fields.disk.sectors == 0
        && mapping::is_empty_root(&fields.disk))
}

/// Writes into the inode. False if the file would be too long for that.
pub(super) fn write(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    offset: u64,
    data: &[u8],
) -> Result<bool> {
    let end = offset + data.len() as u64;
    change(
        fs,
        context,
        inode,
        |content| {
            let length = content.len().max(end as usize);
            content.resize(length, 0);
            content[offset as usize..end as usize].copy_from_slice(data);
        },
        end,
    )
}

/// Sets the size. False if the file would be too long for the inode.
pub(super) fn set_size(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    size: u64,
) -> Result<bool> {
    change(fs, context, inode, |content| content.resize(size as usize, 0), size)
}

/// Applies `edit` to the content, which then ends at `end` or after it. False if the inode can't
/// hold that much.
fn change(
    fs: &ContentStore,
    context: &RequestContext,
    inode: &Arc<Inode>,
    edit: impl FnOnce(&mut Vec<u8>),
    end: u64,
) -> Result<bool> {
    let mut content = {
        let fields = inode.fields();
        if end > inline::capacity(&fields)? as u64 {
            return Ok(false);
        }
        let is_inline = fields.disk.flags.contains(InodeFlags::INLINE_DATA);
        if is_inline { inline::content(&fields)? } else { Vec::new() }
    };
    edit(&mut content);
    let mut handle = fs.volume.start(credits::WRITE_RECORD)?;
    let changed = inode.update(fs, &mut handle, |fields| {
        if !inline::set_content(fields, &content)? {
            return Ok(false);
        }
        fields.disk.flags -= InodeFlags::EXTENTS;
        fields.disk.flags |= InodeFlags::INLINE_DATA;
        touch(fs, context, fields);
        Ok(true)
    });
    inode.note_data_change(&handle);
    fs.settle(handle, changed)
}

/// Moves the content to blocks. The content lock is held exclusively.
pub(super) fn move_out(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    if !is_inline(inode) {
        return Ok(());
    }
    let content = inline::content(&inode.fields())?;
    with_space_retry(&fs.volume, || {
        let mut handle = fs.volume.start(credits::WRITE)?;
        let before = InlineState::of(&inode.fields());
        let mut moved = inode
            .update(fs, &mut handle, |fields| {
                inline::set_rest(fields, None)?;
                fields.disk.flags -= InodeFlags::INLINE_DATA;
                mapping::initialise_root(fs, &mut fields.disk);
                Ok(())
            })
            .and_then(|()| {
                let context = RequestContext::superuser();
                write_blocks(fs, &context, &mut handle, inode, &content)
            });
        if moved.is_err() {
            let restored = inode.update(fs, &mut handle, |fields| {
                before.restore(fields);
                Ok(())
            });
            // An inode that couldn't be restored is the graver error: it stops the journal.
            moved = restored.and(moved);
        }
        inode.note_data_change(&handle);
        fs.settle(handle, moved)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::testing::{TestImage, fill};
    use drystone_vfs::{FileSystem, NewNode};

    #[test]
    fn a_move_that_finds_no_space_changes_nothing() {
        let Some(image) = TestImage::new("inline-data-1k", 8) else { return };
        let fs = image.open();
        let (context, root) = (RequestContext::superuser(), fs.root());
        let file = fs.create(&context, root, b"f", NewNode::Regular, 0o644).expect("a file").inode;
        let data: Vec<u8> = (0..150).collect();
        fs.write(&context, file, 0, &data).expect("a write");
        fill(&fs);
        let inode = fs.held(file).expect("an inode");
        {
            let _content = inode.content().write();
            assert!(is_inline(&inode));
            assert!(matches!(move_out(&fs, &inode), Err(Error::NoSpace)));
        }
        let mut found = [0; 150];
        assert_eq!(fs.read(file, 0, &mut found).expect("a read"), 150);
        assert_eq!(found[..], data);
        drop(inode);
        fs.close().expect("a clean end");
        image.check("full");
    }
}
