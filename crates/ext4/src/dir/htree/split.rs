//! Makes room for an entry: splits the leaf, or first a full index block above it.

use super::super::block::{Directory, EntryBlock, IndexNode};
use super::super::corrupt;
use super::path::{HtreePath, HtreeStep};
use crate::directory_index_lock::DirectoryIndexLock;
use crate::error::{Error, Result};
use drystone_ext4_format::dir::{DirectoryBlock, Entry, NoRoom};
use drystone_ext4_format::error::{DirectoryProblem, IndexProblem};
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::htree::{IndexBlock, IndexBlockMut, IndexEntry, IndexKind, LeafSplit};
use drystone_ext4_format::{Corrupt, LogicalBlock};
use drystone_jbd2::Handle;

/// Reserves room for one more entry in the index block above the leaf for a hash, and returns the leaf. `None` if
/// there may be no room.
pub(super) fn reserve(
    directory: &Directory<'_>,
    index: &DirectoryIndexLock,
    hash: u32,
) -> Result<Option<LogicalBlock>> {
    let mut index = index.write();
    let path = HtreePath::to(directory, hash)?;
    let Some(parent) = path.steps.last().filter(|step| step.has_room(1 + index.reserved())) else {
        return Ok(None);
    };
    // In a damaged image one block may have two uses, and only the other one was checked.
    directory.check_index(&parent.node)?;
    let leaf = path.leaf(directory)?;
    index.reserve();
    Ok(Some(leaf))
}

/// Adds the entry for which room was reserved behind that of the leaf for a hash. The index is locked exclusively.
pub(super) fn insert_reserved(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    hash: u32,
    leaf: LogicalBlock,
    new: IndexEntry,
) -> Result<()> {
    let path = HtreePath::to(directory, hash)?;
    match path.steps.last() {
        Some(parent) if path.leaf(directory)? == leaf => {
            insert_leaf(directory, handle, &path, parent, new)
        }
        // Only a split of this leaf, which is locked, could have changed that.
        _ => Err(corrupt(directory, leaf, DirectoryProblem::Shared)),
    }
}

/// Takes one step towards room in a leaf, which adds one block to the directory.
pub(super) fn make_room(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    path: &HtreePath,
    leaf: &EntryBlock,
    hasher: NameHasher,
) -> Result<()> {
    // In a damaged image one block may have two uses, and only the other one was checked.
    for step in &path.steps {
        directory.check_index(&step.node)?;
    }
    match path.steps.iter().rposition(|step| !step.is_full()) {
        Some(lowest) if lowest + 1 == path.steps.len() => {
            split_full_leaf(directory, handle, path, &path.steps[lowest], leaf, hasher)
        }
        Some(parent) => split_node(directory, handle, &path.steps[parent], &path.steps[parent + 1]),
        None if path.steps.len() <= usize::from(directory.levels_max()) => {
            raise(directory, handle, &path.steps[0])
        }
        None => Err(Error::NoSpace),
    }
}

fn split_full_leaf(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    path: &HtreePath,
    parent: &HtreeStep,
    leaf: &EntryBlock,
    hasher: NameHasher,
) -> Result<()> {
    let new = move_upper(directory, handle, leaf, hasher)?;
    insert_leaf(directory, handle, path, parent, new)
}

/// Moves the upper half of a full leaf to a new one, for which it returns the index entry.
pub(super) fn move_upper(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    leaf: &EntryBlock,
    hasher: NameHasher,
) -> Result<IndexEntry> {
    let full = leaf.buffer.snapshot();
    let split = plan_split(directory, leaf, &full, hasher)?;
    let [new] = directory.append(handle)?;
    leaf.forget_room(directory);
    directory.fill(handle, new, |bytes| split.fill_upper(&full, bytes))?;
    // While the snapshot lives, a writer would have to copy the block.
    drop(full);
    split.keep_lower(&mut directory.write(handle, &leaf.buffer)?);
    Ok(IndexEntry { hash: split.hash, block: new.block })
}

/// Adds a leaf to the lowest index block on a path.
fn insert_leaf(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    path: &HtreePath,
    parent: &HtreeStep,
    new: IndexEntry,
) -> Result<()> {
    insert_after(directory, handle, parent, new.hash, new.block)?;
    if let Some(index) = directory.inode.index_cache() {
        let above = (path.steps.len() > 1).then(|| path.steps[0].position);
        index.insert_after(above, parent.position, new);
    }
    Ok(())
}

/// Plans how the entries of a full block are divided among two.
pub(crate) fn plan_split(
    directory: &Directory<'_>,
    full: &EntryBlock,
    bytes: &[u8],
    hasher: NameHasher,
) -> Result<LeafSplit> {
    let layout = &directory.layout;
    let view = DirectoryBlock::trusted(bytes, layout);
    let names = &directory.fs.names;
    let hash_of = |entry: &Entry<'_>| names.hash_of(layout, hasher, entry);
    // A block without room for one more entry holds at least two.
    LeafSplit::plan(&view, directory.place(full.block), hash_of)?.ok_or(Error::NoSpace)
}

/// Drops cached index blocks, because entries move from one to another.
fn clear_cached(directory: &Directory<'_>) {
    if let Some(index) = directory.inode.index_cache() {
        index.clear();
    }
}

/// Moves the upper half of a full index block, not the root, to a new block. The content lock is held exclusively.
fn split_node(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    parent: &HtreeStep,
    full: &HtreeStep,
) -> Result<()> {
    clear_cached(directory);
    let [new] = directory.append(handle)?;
    let mut upper = vec![0; directory.fs.volume.block_size()];
    let hash = {
        let mut bytes = directory.write(handle, &full.node.buffer)?;
        let mut node = IndexBlockMut::trusted(&mut bytes, IndexKind::Node);
        node.split_into(&mut upper, &directory.layout).map_err(|NoRoom| Error::NoSpace)?
    };
    directory.fill(handle, new, |bytes| bytes.copy_from_slice(&upper))?;
    insert_after(directory, handle, parent, hash, new.block)
}

/// Moves all entries of the root to a new block below it. The content lock is held exclusively.
fn raise(directory: &mut Directory<'_>, handle: &mut Handle<'_>, root: &HtreeStep) -> Result<()> {
    clear_cached(directory);
    let [new] = directory.append(handle)?;
    let mut node = vec![0; directory.fs.volume.block_size()];
    {
        let mut bytes = directory.write(handle, &root.node.buffer)?;
        let mut root = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
        root.raise_into(&mut node, &directory.layout, new.block)
            .map_err(|NoRoom| Error::NoSpace)?;
    }
    directory.fill(handle, new, |bytes| bytes.copy_from_slice(&node))
}

fn insert_after(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    parent: &HtreeStep,
    hash: u32,
    block: LogicalBlock,
) -> Result<()> {
    let mut bytes = directory.write(handle, &parent.node.buffer)?;
    let IndexNode { block: number, kind, .. } = parent.node;
    let entry = IndexEntry { hash, block };
    let inserted = IndexBlockMut::trusted(&mut bytes, kind).insert_after(parent.position, entry);
    inserted.map_err(|NoRoom| {
        // The block was seen to have room, and no other thread takes that: the block has two uses.
        let view = IndexBlock::trusted(&bytes, kind);
        let problem = IndexProblem::Count { count: view.count(), limit: view.limit() };
        Corrupt::DirectoryIndex { inode: directory.inode.number, block: number, problem }.into()
    })
}
