//! The order of inodes, and what the identity of the image is derived from.
//!
//! The root comes first and lost+found second, as in every image; then, directory by directory and
//! each before its subdirectories, what is in them by name. So the order depends on the names alone,
//! files of a directory have inodes and data beside each other, and a file with several names has the
//! place of the first.

use crate::error::{Error, Result};
use crate::tree::{
    FileTree, InodeTimestamp, Node, NodeKind, NodeMetadata, NodeToInsert, TreeNodeId,
};
use drystone_ext4_format::InodeNumber;
use sha2::{Digest, Sha256};

/// The name that checkers look for.
const LOST_FOUND: &[u8] = b"lost+found";
/// The place of nodes without a name.
const UNREACHABLE: u32 = u32::MAX;

/// The nodes of a tree in the order of their inodes.
#[derive(Debug)]
pub struct InodeOrder {
    nodes: Vec<TreeNodeId>,
    /// Place in `nodes` by index of node.
    places: Vec<u32>,
    /// Users of each set of attributes.
    pub(super) attribute_users: Vec<u32>,
    /// The latest time of all.
    pub latest: InodeTimestamp,
    digest: [u8; 32],
}

impl InodeOrder {
    /// Orders a tree, after adding lost+found where it has none.
    pub(super) fn with_lost_found(tree: &mut FileTree) -> Result<InodeOrder> {
        if tree.child(TreeNodeId::ROOT, LOST_FOUND).is_none() {
            let metadata = NodeMetadata::new(0o700, 0, 0);
            let time = tree.node(TreeNodeId::ROOT).modified();
            tree.insert_in(TreeNodeId::ROOT, LOST_FOUND, NodeToInsert::Directory, &metadata, time)?;
        }
        if tree.child(TreeNodeId::ROOT, LOST_FOUND).is_some_and(|node| tree.parent(node).is_none())
        {
            let problem = "has to be a directory: checkers put what they find there".to_string();
            return Err(Error::File { path: b"/lost+found".to_vec(), problem });
        }
        Ok(InodeOrder::new(tree))
    }

    /// Orders a tree.
    #[must_use]
    pub fn new(tree: &FileTree) -> InodeOrder {
        let mut order = InodeOrder {
            nodes: Vec::with_capacity(tree.node_count()),
            places: vec![UNREACHABLE; tree.node_count()],
            attribute_users: vec![0; tree.attribute_sets().len()],
            latest: InodeTimestamp::default(),
            digest: [0; 32],
        };
        let mut hasher = Sha256::new();
        let mut line = Vec::new();
        let describe = |line: &mut Vec<u8>, node: Node<'_>| {
            line.clear();
            describe_node(line, node);
        };
        order.add(tree, TreeNodeId::ROOT);
        describe(&mut line, tree.node(TreeNodeId::ROOT));
        hasher.update(&line);
        if let Some(node) = tree.child(TreeNodeId::ROOT, LOST_FOUND) {
            order.add(tree, node);
        }
        let mut waiting = vec![TreeNodeId::ROOT];
        while let Some(directory) = waiting.pop() {
            let mut children: Vec<(&[u8], TreeNodeId)> = tree.children(directory).collect();
            children.sort_unstable_by_key(|&(name, _)| name);
            let first = waiting.len();
            hasher.update(order.place(directory).to_le_bytes());
            hasher.update((children.len() as u64).to_le_bytes());
            for (name, node) in children {
                let is_new = order.places[node.index()] == UNREACHABLE;
                if is_new {
                    order.add(tree, node);
                }
                if tree.parent(node).is_some() {
                    waiting.push(node);
                }
                describe(&mut line, tree.node(node));
                line.extend_from_slice(&order.place(node).to_le_bytes());
                line.extend_from_slice(&(name.len() as u32).to_le_bytes());
                line.extend_from_slice(name);
                hasher.update(&line);
            }
            waiting[first..].reverse();
        }
        order.digest = hasher.finalize().into();
        order
    }

    fn add(&mut self, tree: &FileTree, node: TreeNodeId) {
        let stored = tree.node(node);
        // There are fewer nodes than numbers of 32 bits.
        self.places[node.index()] = self.nodes.len() as u32;
        self.nodes.push(node);
        self.attribute_users[stored.attributes().index()] += 1;
        self.latest = self.latest.max(stored.modified());
    }

    /// The nodes in order.
    #[must_use]
    pub fn nodes(&self) -> &[TreeNodeId] {
        &self.nodes
    }

    /// The place of a reachable node.
    pub(super) fn place(&self, node: TreeNodeId) -> u32 {
        self.places[node.index()]
    }

    /// 16 bytes that depend on the names, the metadata and the sizes of all files, and on `purpose`.
    #[must_use]
    pub fn derived(&self, purpose: &[u8]) -> [u8; 16] {
        let mut hasher = Sha256::new();
        hasher.update(self.digest);
        hasher.update(purpose);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize()[..16]);
        bytes
    }
}

/// Inode numbers by place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The inode of lost+found.
    pub lost_found: u32,
    /// The inode of the third place.
    pub first: u32,
}

impl Numbers {
    /// Nodes outside the main order.
    pub const SPECIAL: u32 = 2;

    pub fn of_place(self, place: u32) -> InodeNumber {
        match place {
            0 => InodeNumber::ROOT,
            1 => InodeNumber::new(self.lost_found),
            _ => InodeNumber::new(self.first + (place - Self::SPECIAL)),
        }
    }
}

/// Everything about a node except its data.
fn describe_node(line: &mut Vec<u8>, node: Node<'_>) {
    let (letter, numbers): (u8, [u64; 2]) = match node.kind() {
        NodeKind::Directory => (b'd', [0; 2]),
        NodeKind::File { size } => (b'f', [size, 0]),
        NodeKind::Symlink(target) => (b'l', [target.len() as u64, 0]),
        NodeKind::CharacterDevice { major, minor } => (b'c', [major.into(), minor.into()]),
        NodeKind::BlockDevice { major, minor } => (b'b', [major.into(), minor.into()]),
        NodeKind::Fifo => (b'p', [0; 2]),
        NodeKind::Socket => (b's', [0; 2]),
    };
    line.push(letter);
    for number in numbers {
        line.extend_from_slice(&number.to_le_bytes());
    }
    if let NodeKind::Symlink(target) = node.kind() {
        line.extend_from_slice(target);
    }
    let metadata = node.metadata();
    line.extend_from_slice(&metadata.permissions.to_le_bytes());
    line.extend_from_slice(&metadata.user.to_le_bytes());
    line.extend_from_slice(&metadata.group.to_le_bytes());
    line.extend_from_slice(&node.modified().seconds.to_le_bytes());
    line.extend_from_slice(&node.modified().nanoseconds.to_le_bytes());
    for xattr in &metadata.xattrs {
        for part in [&xattr.name, &xattr.value] {
            line.extend_from_slice(&(part.len() as u32).to_le_bytes());
            line.extend_from_slice(part);
        }
    }
}
