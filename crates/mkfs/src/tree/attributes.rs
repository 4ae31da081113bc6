//! Modes, owners and extended attributes, each distinct set kept once.

use hashbrown::HashTable;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xattr {
    /// The whole name, `user.comment` say.
    pub name: Vec<u8>,
    /// The value as `getxattr` returns it: ACLs (`system.posix_acl_access`) in the kernel's form,
    /// capabilities as they are.
    pub value: Vec<u8>,
}

/// A file's metadata except its time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeMetadata {
    /// The lower 12 bits of the mode: permissions, setuid, setgid, sticky.
    pub permissions: u16,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// Extended attributes; the order doesn't matter.
    pub xattrs: Vec<Xattr>,
}

impl NodeMetadata {
    /// These permissions and owners, no extended attributes.
    #[must_use]
    pub fn new(permissions: u16, user: u32, group: u32) -> NodeMetadata {
        NodeMetadata { permissions, user, group, xattrs: Vec::new() }
    }
}

impl Default for NodeMetadata {
    /// Mode 755, owned by root.
    fn default() -> NodeMetadata {
        NodeMetadata::new(0o755, 0, 0)
    }
}

/// Names a distinct set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributesId(u32);

impl AttributesId {
    /// Its place among [`FileTree::attribute_sets`](super::FileTree::attribute_sets).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The distinct sets.
#[derive(Debug, Default)]
pub(super) struct AttributesTable {
    all: Vec<NodeMetadata>,
    /// Index by content.
    places: HashTable<AttributesId>,
    hasher: RandomState,
}

impl AttributesTable {
    pub fn all(&self) -> &[NodeMetadata] {
        &self.all
    }

    pub fn get(&self, id: AttributesId) -> &NodeMetadata {
        &self.all[id.index()]
    }

    /// Interns a set, with its attributes sorted by name; the last of two with the same name counts.
    pub fn intern(&mut self, metadata: &NodeMetadata) -> AttributesId {
        if let Some(id) = self.find(metadata) {
            return id;
        }
        let mut normal = metadata.clone();
        normal.permissions &= 0o7777;
        normal.xattrs.reverse();
        normal.xattrs.sort_by(|left, right| left.name.cmp(&right.name));
        normal.xattrs.dedup_by(|later, first| later.name == first.name);
        if let Some(id) = self.find(&normal) {
            return id;
        }
        // There are no more sets than nodes, which are counted in 32 bits.
        let id = AttributesId(self.all.len() as u32);
        self.all.push(normal);
        self.enter(id);
        id
    }

    fn find(&self, metadata: &NodeMetadata) -> Option<AttributesId> {
        let is_it = |id: &AttributesId| self.get(*id) == metadata;
        self.places.find(self.hasher.hash_one(metadata), is_it).copied()
    }

    fn enter(&mut self, id: AttributesId) {
        let AttributesTable { all, places, hasher } = self;
        let hash = |id: &AttributesId| hasher.hash_one(&all[id.index()]);
        places.insert_unique(hash(&id), id, hash);
    }

    /// Replaces every set by what `change` makes of it; sets that become equal stay apart.
    pub fn change(&mut self, mut change: impl FnMut(&mut NodeMetadata)) {
        self.places.clear();
        for index in 0..self.all.len() {
            change(&mut self.all[index]);
            self.enter(AttributesId(index as u32));
        }
    }
}
