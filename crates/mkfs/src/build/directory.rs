//! Directories: their sizes and blocks.

use super::Builder;
use super::order::{InodeOrder, Numbers};
use crate::error::{Error, Result};
use crate::tree::{FileTree, NodeKind, TreeNodeId};
use drystone_ext4_format::dir::{self, DirectoryLayout, EntryType, NewEntry};
use drystone_ext4_format::hash::{NameHash, NameHasher};
use drystone_ext4_format::htree::{
    self, DirectoryPlan, DirectorySize, measure_hashed, measure_linear,
};

/// How all directories of an image are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryFormat {
    pub block_size: usize,
    pub hasher: NameHasher,
    /// Whether directories of several blocks are hashed.
    pub hashed: bool,
    /// Whether the index may have a level more.
    pub large: bool,
    /// Least blocks of lost+found: a checker must be able to put names there without taking space.
    pub lost_found_blocks: u64,
}

/// The size of a directory. `layout` says only whether there are types and checksums.
pub(super) fn measure(
    tree: &FileTree,
    order: &InodeOrder,
    directory: TreeNodeId,
    layout: &DirectoryLayout,
    shape: &DirectoryFormat,
) -> DirectorySize {
    let names = tree.children(directory).map(|(name, _)| name);
    let is_lost_found = order.place(directory) == 1;
    let linear = measure_linear(layout, shape.block_size, names.clone());
    if linear.blocks == 1 && !is_lost_found {
        return linear;
    }
    if !shape.hashed || is_lost_found {
        // Linear directories are in the order of names.
        let mut names: Vec<&[u8]> = names.collect();
        names.sort_unstable();
        let size = measure_linear(layout, shape.block_size, names);
        let least = if is_lost_found { shape.lost_found_blocks } else { 1 };
        return DirectorySize { blocks: size.blocks.max(least), ..size };
    }
    let mut hashed: Vec<(NameHash, &[u8])> =
        names.map(|name| (shape.hasher.hash(name), name)).collect();
    hashed.sort_unstable();
    measure_hashed(layout, shape.block_size, hashed.into_iter().map(|(_, name)| name))
}

/// A directory as it is written.
pub(super) struct Built {
    /// Its blocks, sealed.
    pub blocks: Vec<Vec<u8>>,
    pub is_hashed: bool,
    pub subdirectories: u32,
}

/// The blocks of a directory, which has as many as [`measure`] said.
pub(super) fn build(
    builder: &Builder<'_>,
    numbers: Numbers,
    directory: TreeNodeId,
    layout: &DirectoryLayout,
    blocks: u64,
) -> Result<Built> {
    let Builder { tree, order, shape, .. } = builder;
    let number = |node| numbers.of_place(order.place(node));
    let parent = tree.parent(directory).unwrap_or(TreeNodeId::ROOT);
    let plan = DirectoryPlan {
        own: number(directory),
        parent: number(parent),
        layout,
        block_size: shape.block_size,
    };
    let mut subdirectories = 0;
    let entries = tree.children(directory).map(|(name, node)| {
        let entry_type = entry_type(tree.node(node).kind());
        subdirectories += u32::from(entry_type == EntryType::Directory);
        NewEntry { name, inode: number(node), entry_type, hash: None }
    });
    let is_lost_found = order.place(directory) == 1;
    if shape.hashed && blocks > 1 && !is_lost_found {
        let mut hashed: Vec<(NameHash, NewEntry<'_>)> =
            entries.map(|entry| (shape.hasher.hash(entry.name), entry)).collect();
        let version = shape.hasher.version();
        let built = htree::build_hashed(&plan, version, shape.large, &mut hashed);
        let blocks = built.map_err(|_| too_large(tree, directory))?;
        return Ok(Built { blocks, is_hashed: true, subdirectories });
    }
    let mut entries: Vec<NewEntry<'_>> = entries.collect();
    entries.sort_unstable_by_key(|entry| entry.name);
    let mut built = htree::build_linear(&plan, entries);
    while (built.len() as u64) < blocks {
        let mut empty = vec![0; shape.block_size];
        dir::init_empty(&mut empty, layout);
        dir::seal(&mut empty, layout);
        built.push(empty);
    }
    Ok(Built { blocks: built, is_hashed: false, subdirectories })
}

pub(super) fn too_large(tree: &FileTree, directory: TreeNodeId) -> Error {
    let problem = "the directory has more names than its index can hold".to_string();
    Error::File { path: tree.directory_path(directory), problem }
}

pub(super) fn subdirectories(tree: &FileTree, directory: TreeNodeId) -> u32 {
    let is_directory = |&(_, node): &(&[u8], TreeNodeId)| tree.parent(node).is_some();
    tree.children(directory).filter(is_directory).count() as u32
}

fn entry_type(kind: NodeKind<'_>) -> EntryType {
    match kind {
        NodeKind::Directory => EntryType::Directory,
        NodeKind::File { .. } => EntryType::Regular,
        NodeKind::Symlink(_) => EntryType::Symlink,
        NodeKind::CharacterDevice { .. } => EntryType::CharacterDevice,
        NodeKind::BlockDevice { .. } => EntryType::BlockDevice,
        NodeKind::Fifo => EntryType::Fifo,
        NodeKind::Socket => EntryType::Socket,
    }
}
