//! Converts a directory that outgrows its form.

use super::block::Directory;
use super::htree::plan_split;
use super::{DirectoryForm, inline};
use crate::error::{Error, Result};
use crate::inode::inline::InlineState;
use crate::mapping;
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::dir::{DirectoryBlock, NoRoom};
use drystone_ext4_format::htree::{IndexBlockMut, IndexEntry, IndexKind, init_root};
use drystone_ext4_format::inline::expand;
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_vfs::FileType;

/// Turns the one block of a linear directory into the root of an index over two leaves.
pub(super) fn linear_to_hashed(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
) -> Result<()> {
    let (layout, own) = (directory.layout, directory.inode.number);
    let full = directory.leaf(LogicalBlock::FIRST)?;
    let parent = super::parent(directory.fs, directory.inode)?;
    let hasher = directory.fs.names.hasher();
    let entries = full.buffer.snapshot();
    let split = plan_split(directory, &full, &entries, hasher)?;
    let [lower, upper] = directory.append(handle)?;
    full.forget_room(directory);
    directory.fill(handle, upper, |bytes| split.fill_upper(&entries, bytes))?;
    directory.fill(handle, lower, |bytes| {
        bytes.copy_from_slice(&entries);
        split.keep_lower(bytes);
    })?;
    // While the snapshot lives, a writer would have to copy the block.
    drop(entries);
    {
        let mut bytes = directory.write(handle, &full.buffer)?;
        init_root(&mut bytes, &layout, own, parent, hasher.version(), lower.block);
        let second = IndexEntry { hash: split.hash, block: upper.block };
        let inserted = IndexBlockMut::trusted(&mut bytes, IndexKind::Root).insert_after(0, second);
        assert!(inserted.is_ok(), "a root has room for two entries");
    }
    directory.inode.update(directory.fs, handle, |fields| {
        fields.disk.flags |= InodeFlags::INDEX;
        Ok(())
    })?;
    directory.shape = DirectoryForm::Hashed;
    Ok(())
}

/// Moves the entries of an inline directory to a block.
pub(super) fn inline_to_linear(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
) -> Result<()> {
    let (fs, inode, layout) = (directory.fs, directory.inode, directory.layout);
    let contents = inline::contents(directory)?;
    // The entries must leave the block area before it can hold a mapping.
    let before = inode.update(fs, handle, |fields| {
        let before = InlineState::of(fields);
        inline::clear(fields)?;
        fields.disk.flags -= InodeFlags::INLINE_DATA;
        fields.disk.size_bytes = 0;
        fields.disk.block_area.fill(0);
        mapping::initialise(fs, &mut fields.disk, FileType::Directory);
        Ok(before)
    })?;
    directory.shape = DirectoryForm::Linear;
    let new = match directory.append(handle) {
        Ok([new]) => new,
        Err(error) => {
            inode.update(fs, handle, |fields| {
                before.restore(fields);
                Ok(())
            })?;
            return Err(error);
        }
    };
    let mut expanded = Ok(());
    directory.fill(handle, new, |bytes| {
        expanded = expand(&contents.head, &contents.rest, bytes, &layout, inode.number);
    })?;
    // The content of an inode fits a block: even the smallest block is large enough for it and the
    // 36 bytes more that it takes there.
    expanded.map_err(|NoRoom| Error::NoSpace)?;
    debug_assert!(
        directory.leaf(new.block)?.look(|view: &DirectoryBlock<'_>| view.parent().is_some()),
        "an expanded block starts with its dots"
    );
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::credits;
    use crate::testing::{TestImage, fill};
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    #[test]
    fn a_move_that_finds_no_space_changes_nothing() {
        let Some(image) = TestImage::new("inline-data-1k", 8) else { return };
        let fs = image.open();
        let (context, root) = (RequestContext::superuser(), fs.root());
        let made = fs.create(&context, root, b"d", NewNode::Directory, 0o755);
        let made = made.expect("a directory").inode;
        let name = [b'n'; 100];
        fs.create(&context, made, &name, NewNode::Fifo, 0o644).expect("a name");
        fill(&fs);
        let inode = fs.held(made).expect("an inode");
        {
            let _content = inode.content().write();
            let mut directory = Directory::open(&fs, &inode).expect("a directory");
            assert_eq!(directory.shape, DirectoryForm::Inline);
            let mut handle = fs.volume.start(credits::WRITE).expect("a handle");
            let moved = inline_to_linear(&mut directory, &mut handle);
            assert!(matches!(fs.settle(handle, moved), Err(Error::NoSpace)));
        }
        drop(inode);
        fs.close().expect("a clean end");
        image.check("full");
        let fs = image.open();
        let made = fs.lookup(&context, root, b"d").expect("the directory").inode;
        fs.lookup(&context, made, &name).expect("the name is there");
    }
}
