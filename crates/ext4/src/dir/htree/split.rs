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

/// Room for one more entry behind that of a leaf.
pub(super) struct ReservedEntry {
    pub leaf: LogicalBlock,
    /// The index block above the leaf, in which entries may be added meanwhile.
    pub parent: IndexNode,
    /// The position in the root of the entry that leads to that block, if it isn't the root.
    above: Option<u16>,
}

/// Reserves room for one more entry in the index block above the leaf for a hash. `None` if there may be no room.
pub(super) fn reserve(
    directory: &Directory<'_>,
    index: &DirectoryIndexLock,
    hash: u32,
) -> Result<Option<ReservedEntry>> {
    let mut index = index.write();
    let path = HtreePath::to(directory, hash)?;
    let Some(parent) = path.steps.last().filter(|step| step.has_room(1 + index.reserved())) else {
        return Ok(None);
    };
    // In a damaged image one block may have two uses, and only the other one was checked.
    directory.check_index(&parent.node)?;
    let leaf = path.leaf(directory)?;
    let parent = parent.node.clone();
    index.reserve();
    Ok(Some(ReservedEntry { leaf, parent, above: path.above() }))
}

/// Adds the entry for which room was reserved. The index is locked exclusively. In a sound image this succeeds if the
/// handle has got access to the index block before.
pub(super) fn insert_reserved(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    reserved: ReservedEntry,
    hash: u32,
    new: IndexEntry,
) -> Result<()> {
    let ReservedEntry { leaf, parent: node, above } = reserved;
    let parent = HtreeStep::to(node, hash);
    // Only a split of this leaf, which is locked, could have changed that.
    if parent.entry().map(|entry| entry.block) != Some(leaf) {
        return Err(corrupt(directory, leaf, DirectoryProblem::Shared));
    }
    insert_leaf(directory, handle, above, &parent, new)
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
    let new = move_upper(directory, handle, &parent.node, leaf, hasher)?;
    insert_leaf(directory, handle, path.above(), parent, new)
}

/// Moves the upper half of a full leaf to a new one, for which it returns the index entry.
pub(super) fn move_upper(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    parent: &IndexNode,
    leaf: &EntryBlock,
    hasher: NameHasher,
) -> Result<IndexEntry> {
    // Were the journal to stop between the changes of these two, names would be missing in memory.
    for buffer in [&leaf.buffer, &parent.buffer] {
        handle.access(buffer, directory.inode.directory_seal())?;
    }
    let full = leaf.buffer.snapshot();
    let split = plan_split(directory, leaf, &full, hasher)?;
    let [new] = directory.append(handle)?;
    leaf.forget_room(directory);
    directory.fill(handle, new, |bytes| split.fill_upper(&full, bytes))?;
    let mut bytes = directory.write(handle, &leaf.buffer)?;
    // The leaf is locked by its number. In a damaged image its block may have another number too.
    if bytes[..] != full[..] {
        return Err(corrupt(directory, leaf.block, DirectoryProblem::Shared));
    }
    split.keep_lower(&mut bytes);
    Ok(IndexEntry { hash: split.hash, block: new.block })
}

/// Adds a leaf to the lowest index block, to which the entry of the root at `above` leads if it isn't the root.
fn insert_leaf(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    above: Option<u16>,
    parent: &HtreeStep,
    new: IndexEntry,
) -> Result<()> {
    insert_after(directory, handle, parent, new.hash, new.block)?;
    if let Some(index) = directory.inode.index_cache() {
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
