//! The files of an image to be built: a tree in memory, without their data.
//!
//! A reader of a source fills a [`FileTree`] and hands it to the builder. Names are inserted by path and
//! the last one wins, as when a tar is unpacked: a file replaces what had its name, a directory joins
//! one that is there. Missing parents are made.
//!
//! # State
//! Nodes are in an arena and have a [`TreeNodeId`]; a node is a file, whatever its number of names. Names
//! are in a byte arena, found through one hash table by directory and name, and chained by directory.
//! Modes, owners and extended attributes are interned. A file takes about 100 bytes and its name.
//! Replaced nodes stay in the arenas, unreachable.
//!
//! The tree holds no data: a file's content is a list of pieces of a [`ContentSource`], which many
//! threads read from while the image is written.

mod attributes;
mod change;
mod error;
mod node;
mod path;
mod source;
#[cfg(test)]
mod tests;

pub use attributes::{AttributesId, NodeMetadata, Xattr};
pub use drystone_ext4_format::inode::InodeTimestamp;
pub use error::{TreeError, TreeResult};
pub use node::{Node, NodeContent, NodeKind, NodeToInsert, Segment, TreeNodeId};
pub use source::{ContentSource, SourceError, SourceId};

use attributes::AttributesTable;
use hashbrown::HashTable;
use node::Payload;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The end of a chain of entries.
const NONE: u32 = u32::MAX;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    directory: TreeNodeId,
    /// What has the name; `None` after its removal.
    node: Option<TreeNodeId>,
    /// The next entry of the directory, in order of insertion.
    next: u32,
    name: Bytes,
}

/// A piece of the byte arena: 40 bits of place, 24 of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes(u64);

impl Bytes {
    const LENGTH_BITS: u32 = 24;

    fn range(self) -> std::ops::Range<usize> {
        let start = (self.0 >> Self::LENGTH_BITS) as usize;
        start..start + (self.0 & ((1 << Self::LENGTH_BITS) - 1)) as usize
    }
}

/// The files of an image to be built.
#[derive(Debug)]
pub struct FileTree {
    nodes: Vec<node::StoredNode>,
    entries: Vec<Entry>,
    /// Live entries by directory and name.
    index: HashTable<u32>,
    hasher: RandomState,
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    attributes: AttributesTable,
    sources: Vec<Box<dyn ContentSource>>,
    /// The metadata of directories that are made because something lies in them.
    parents: NodeMetadata,
    parents_time: InodeTimestamp,
}

impl Default for FileTree {
    fn default() -> FileTree {
        FileTree::new()
    }
}

impl FileTree {
    /// A tree with an empty root, of mode 755 and owned by root, at the start of 1970.
    #[must_use]
    pub fn new() -> FileTree {
        let mut tree = FileTree {
            nodes: Vec::new(),
            entries: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            bytes: Vec::new(),
            segments: Vec::new(),
            attributes: AttributesTable::default(),
            sources: Vec::new(),
            parents: NodeMetadata::default(),
            parents_time: InodeTimestamp::default(),
        };
        let attributes = tree.attributes.intern(&tree.parents);
        tree.nodes.push(node::StoredNode {
            attributes,
            modified: InodeTimestamp::default(),
            links: 1,
            payload: Payload::Directory { parent: TreeNodeId::ROOT, first: NONE, last: NONE },
        });
        tree
    }

    /// Adds a source, whose pieces may then be named by files.
    ///
    /// # Errors
    /// There are 65,536 already.
    pub fn add_source(&mut self, source: Box<dyn ContentSource>) -> TreeResult<SourceId> {
        let id = SourceId::new(self.sources.len())?;
        self.sources.push(source);
        Ok(id)
    }

    /// The source with this number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn source(&self, id: SourceId) -> &dyn ContentSource {
        &*self.sources[id.index()]
    }

    /// Sets what directories get that are made because something lies in them; by default mode 755,
    /// owned by root, at the start of 1970.
    pub fn set_parent_metadata(&mut self, metadata: NodeMetadata, modified: InodeTimestamp) {
        self.parents = metadata;
        self.parents_time = modified;
    }

    /// How many nodes were ever made: the bound of [`TreeNodeId::index`]. Not all are reachable.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Entries that were ever made; a measure of how much there is.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: TreeNodeId) -> Node<'_> {
        Node { tree: self, id, stored: &self.nodes[id.index()] }
    }

    /// The directory that a directory is in; the root is in itself.
    #[must_use]
    pub fn parent(&self, directory: TreeNodeId) -> Option<TreeNodeId> {
        match self.nodes[directory.index()].payload {
            Payload::Directory { parent, .. } => Some(parent),
            _ => None,
        }
    }

    /// What has this name in a directory.
    #[must_use]
    pub fn child(&self, directory: TreeNodeId, name: &[u8]) -> Option<TreeNodeId> {
        self.find(directory, name).and_then(|entry| self.entries[entry as usize].node)
    }

    /// The names in a directory in order of insertion; none for anything else.
    pub fn children(
        &self,
        directory: TreeNodeId,
    ) -> impl Iterator<Item = (&[u8], TreeNodeId)> + Clone {
        let first = match self.nodes[directory.index()].payload {
            Payload::Directory { first, .. } => first,
            _ => NONE,
        };
        let live = |at: u32| (at != NONE).then_some(at);
        let following = move |at: &u32| live(self.entries[*at as usize].next);
        std::iter::successors(live(first), following).filter_map(|at| {
            let entry = &self.entries[at as usize];
            Some((&self.bytes[entry.name.range()], entry.node?))
        })
    }

    /// The path of a directory from the root, with a slash in front; for messages.
    #[must_use]
    pub fn directory_path(&self, directory: TreeNodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = directory;
        while let Some(parent) = self.parent(at).filter(|_| at != TreeNodeId::ROOT) {
            let named = self.children(parent).find(|&(_, node)| node == at);
            names.push(named.map_or(&b"?"[..], |(name, _)| name));
            at = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// The path of a name in a directory.
    #[must_use]
    pub fn entry_path(&self, directory: TreeNodeId, name: &[u8]) -> Vec<u8> {
        let mut path = self.directory_path(directory);
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// The path of some name of a node, for messages: it takes long to find.
    #[must_use]
    pub fn path_of(&self, node: TreeNodeId) -> Vec<u8> {
        if self.parent(node).is_some() {
            return self.directory_path(node);
        }
        let entry = self.entries.iter().find(|entry| entry.node == Some(node));
        entry.map_or_else(Vec::new, |entry| {
            self.entry_path(entry.directory, &self.bytes[entry.name.range()])
        })
    }

    /// All interned sets, indexed by [`AttributesId::index`].
    #[must_use]
    pub fn attribute_sets(&self) -> &[NodeMetadata] {
        self.attributes.all()
    }

    fn find(&self, directory: TreeNodeId, name: &[u8]) -> Option<u32> {
        let is_it = |&at: &u32| {
            let entry = &self.entries[at as usize];
            entry.directory == directory && &self.bytes[entry.name.range()] == name
        };
        self.index.find(self.hash(directory, name), is_it).copied()
    }

    fn hash(&self, directory: TreeNodeId, name: &[u8]) -> u64 {
        hash_name(&self.hasher, directory, name)
    }

    /// Copies bytes into the arena.
    fn store(&mut self, bytes: &[u8]) -> TreeResult<Bytes> {
        let full = self.bytes.len() + bytes.len() >= 1 << (64 - Bytes::LENGTH_BITS);
        if full || bytes.len() >= 1 << Bytes::LENGTH_BITS {
            return Err(TreeError::TooMuch { what: "bytes of names and small files" });
        }
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        Ok(Bytes(start << Bytes::LENGTH_BITS | bytes.len() as u64))
    }
}

fn hash_name(hasher: &RandomState, directory: TreeNodeId, name: &[u8]) -> u64 {
    hasher.hash_one((directory, name))
}
