//! Building a whole directory from its entries.

use super::edit::{IndexBlockMut, init_node, init_root};
use super::view::{IndexBlock, IndexEntry, IndexKind};
use super::{CONTINUATION, IndexLimits, seal};
use crate::dir::{
    self, DirectoryBlockBuilder, DirectoryLayout, EntryType, NewEntry, NoRoom, record_length,
};
use crate::hash::{HashVersion, NameHash};
use crate::ids::{InodeNumber, LogicalBlock};

/// A directory that is to be built.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryPlan<'a> {
    /// Its own inode.
    pub own: InodeNumber,
    /// Its parent's inode.
    pub parent: InodeNumber,
    /// How its blocks are laid out.
    pub layout: &'a DirectoryLayout,
    /// Bytes of a block.
    pub block_size: usize,
}

/// The sealed blocks of a linear directory: `.` and `..`, then the entries in the order given.
///
/// # Panics
/// If a name is empty or longer than 255 bytes, or the block size is impossible.
#[must_use]
pub fn build_linear<'a>(
    plan: &DirectoryPlan<'_>,
    entries: impl IntoIterator<Item = NewEntry<'a>>,
) -> Vec<Vec<u8>> {
    let dots = [(&b"."[..], plan.own), (b"..", plan.parent)].map(|(name, inode)| NewEntry {
        name,
        inode,
        entry_type: EntryType::Directory,
        hash: None,
    });
    pack(plan, dots.into_iter().chain(entries)).into_iter().map(|leaf| leaf.bytes).collect()
}

/// The sealed blocks of a hashed directory: the root, then leaves, then index nodes.
///
/// # Errors
/// The entries need more levels of index than the filesystem allows.
///
/// # Panics
/// If a name is empty or longer than 255 bytes, or the block size is impossible.
pub fn build_hashed(
    plan: &DirectoryPlan<'_>,
    hash_version: HashVersion,
    large_directory: bool,
    entries: &mut [(NameHash, NewEntry<'_>)],
) -> Result<Vec<Vec<u8>>, NoRoom> {
    entries.sort_unstable_by_key(|&(hash, entry)| (hash, entry.name));
    let leaves = pack(plan, entries.iter().map(|&(_, entry)| entry));
    let mut level = Vec::with_capacity(leaves.len());
    for (number, leaf) in (1..).zip(&leaves) {
        let major = |position: usize| entries.get(position).map(|(hash, _)| hash.major);
        let first = major(leaf.first);
        let continued = leaf.first > 0 && first == major(leaf.first - 1);
        let hash = first.unwrap_or(0) | if continued { CONTINUATION } else { 0 };
        level.push(IndexEntry { hash, block: LogicalBlock::new(number) });
    }
    let mut blocks = vec![Vec::new()];
    blocks.extend(leaves.into_iter().map(|leaf| leaf.bytes));

    let with_checksum = plan.layout.checksum.is_some();
    let limit = |kind: IndexKind| kind.limit(plan.block_size, with_checksum);
    let limits = IndexLimits { directory_blocks: 0, large_directory };
    let mut levels = 0;
    while level.len() > limit(IndexKind::Root) {
        if levels == limits.levels_max() {
            return Err(NoRoom);
        }
        levels += 1;
        let mut above = Vec::new();
        for part in level.chunks(limit(IndexKind::Node)) {
            // A part of a slice is never empty.
            let Some((first, rest)) = part.split_first() else { continue };
            let mut node = vec![0; plan.block_size];
            init_node(&mut node, plan.layout, first.block);
            fill(&mut node, IndexKind::Node, rest)?;
            seal(&mut node, IndexKind::Node, plan.layout);
            let block = LogicalBlock::new(u32::try_from(blocks.len()).map_err(|_| NoRoom)?);
            above.push(IndexEntry { hash: first.hash, block });
            blocks.push(node);
        }
        level = above;
    }
    let (first, rest) = level.split_first().ok_or(NoRoom)?;
    let mut root = vec![0; plan.block_size];
    init_root(&mut root, plan.layout, plan.own, plan.parent, hash_version, first.block);
    fill(&mut root, IndexKind::Root, rest)?;
    IndexBlockMut::trusted(&mut root, IndexKind::Root).set_levels(levels);
    seal(&mut root, IndexKind::Root, plan.layout);
    blocks[0] = root;
    Ok(blocks)
}

/// The size of a directory that is to be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectorySize {
    /// Blocks of the directory.
    pub blocks: u64,
    /// Levels of index nodes below the root; may be more than an image allows.
    pub levels: u8,
}

/// What [`build_linear`] needs for these names.
#[must_use]
pub fn measure_linear<'a>(
    layout: &DirectoryLayout,
    block_size: usize,
    names: impl IntoIterator<Item = &'a [u8]>,
) -> DirectorySize {
    let dots = [&b"."[..], b".."];
    let blocks = measure_leaves(layout, block_size, dots.into_iter().chain(names));
    DirectorySize { blocks, levels: 0 }
}

/// What [`build_hashed`] needs for names in the order of their hashes.
#[must_use]
pub fn measure_hashed<'a>(
    layout: &DirectoryLayout,
    block_size: usize,
    names: impl IntoIterator<Item = &'a [u8]>,
) -> DirectorySize {
    let with_checksum = layout.checksum.is_some();
    let limit = |kind: IndexKind| kind.limit(block_size, with_checksum) as u64;
    let mut level = measure_leaves(layout, block_size, names);
    let mut blocks = level + 1;
    let mut levels = 0;
    while level > limit(IndexKind::Root) {
        level = level.div_ceil(limit(IndexKind::Node));
        blocks += level;
        levels += 1;
    }
    DirectorySize { blocks, levels }
}

/// Blocks that [`pack`] fills.
fn measure_leaves<'a>(
    layout: &DirectoryLayout,
    block_size: usize,
    names: impl IntoIterator<Item = &'a [u8]>,
) -> u64 {
    let end = layout.records_end(block_size);
    let mut leaves = 1;
    let mut used = 0;
    for name in names {
        let needed = record_length(name, layout);
        if used + needed > end {
            leaves += 1;
            used = 0;
        }
        used += needed;
    }
    leaves
}

/// Appends entries to a fresh index block.
fn fill(bytes: &mut [u8], kind: IndexKind, entries: &[IndexEntry]) -> Result<(), NoRoom> {
    let mut block = IndexBlockMut::trusted(bytes, kind);
    for &entry in entries {
        let last = IndexBlock::count(&block.view()) - 1;
        block.insert_after(last, entry)?;
    }
    Ok(())
}

/// A packed, sealed block and the position of its first entry.
struct Leaf {
    first: usize,
    bytes: Vec<u8>,
}

/// Packs entries into as few blocks as their order allows; at least one.
fn pack<'a>(
    plan: &DirectoryPlan<'_>,
    entries: impl IntoIterator<Item = NewEntry<'a>>,
) -> Vec<Leaf> {
    let mut entries = entries.into_iter().enumerate().peekable();
    let mut leaves = Vec::new();
    loop {
        let first = entries.peek().map_or(0, |&(position, _)| position);
        let mut bytes = vec![0; plan.block_size];
        let mut builder = DirectoryBlockBuilder::new(&mut bytes, plan.layout);
        while entries.next_if(|(_, entry)| builder.push(entry).is_ok()).is_some() {}
        builder.finish();
        dir::seal(&mut bytes, plan.layout);
        leaves.push(Leaf { first, bytes });
        if entries.peek().is_none() {
            return leaves;
        }
    }
}
