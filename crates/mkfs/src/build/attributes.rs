//! Where extended attributes go: into the inode as long as there is room, then into a block.
//!
//! Inodes whose attributes are the same share a block, up to as many as Linux lets share one.

use super::order::InodeOrder;
use crate::error::{Error, Result};
use crate::tree::{FileTree, NodeMetadata};
use drystone_ext4_format::acl::Acl;
use drystone_ext4_format::xattr::{
    AttributeName, AttributeSet, AttributeValue, set_reference_count,
};
use std::collections::HashMap;

/// Inodes that may share a block, as Linux has it.
const SHARED_BY_MAX: u32 = 1024;

/// How one set of attributes is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredAttributes {
    /// The bytes after the fields of the inode; empty for none.
    pub in_inode: Vec<u8>,
    /// Which block holds the rest.
    pub block: Option<usize>,
}

/// A block that inodes share, without its place and its checksum.
#[derive(Debug)]
struct SharedBlock {
    bytes: Vec<u8>,
    users: u32,
}

/// How all sets of attributes of a tree are stored.
#[derive(Debug, Default)]
pub(super) struct AttributePlan {
    sets: Vec<StoredAttributes>,
    blocks: Vec<SharedBlock>,
}

impl AttributePlan {
    /// Decides it for inodes with this much room after their fields.
    pub fn new(
        tree: &FileTree,
        order: &InodeOrder,
        inode_room: usize,
        block_size: usize,
    ) -> Result<AttributePlan> {
        let mut plan = AttributePlan::default();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        for (index, metadata) in tree.attribute_sets().iter().enumerate() {
            let users = order.attribute_users.get(index).copied().unwrap_or(0);
            if users == 0 || metadata.xattrs.is_empty() {
                plan.sets.push(StoredAttributes::default());
                continue;
            }
            let problem = |problem| Error::File { path: user(tree, order, index), problem };
            let (in_inode, in_block) = split(metadata, inode_room).map_err(problem)?;
            let mut stored = StoredAttributes::default();
            if !in_inode.is_empty() {
                stored.in_inode = vec![0; inode_room];
                // The attributes were chosen so that they fit.
                in_inode
                    .encode_in_inode(&mut stored.in_inode)
                    .map_err(|error| problem(error.to_string()))?;
            }
            if !in_block.is_empty() {
                let mut bytes = vec![0; block_size];
                in_block.encode_block(&mut bytes, 0).map_err(|error| {
                    problem(format!("its extended attributes don't fit one block: {error}"))
                })?;
                let blocks = &mut plan.blocks;
                let block = *places.entry(bytes).or_insert_with_key(|bytes| {
                    blocks.push(SharedBlock { bytes: bytes.clone(), users: 0 });
                    blocks.len() - 1
                });
                plan.blocks[block].users += users;
                stored.block = Some(block);
            }
            plan.sets.push(stored);
        }
        Ok(plan)
    }

    pub fn set(&self, index: usize) -> &StoredAttributes {
        &self.sets[index]
    }

    /// Begins to hand out places for blocks.
    pub fn uses(&self) -> SharedBlockUses<'_> {
        SharedBlockUses { plan: self, states: vec![BlockUse::default(); self.blocks.len()] }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct BlockUse {
    block: u64,
    left: u32,
    done: u32,
}

/// The state of the shared blocks while inodes are placed one after the other.
#[derive(Debug)]
pub(super) struct SharedBlockUses<'a> {
    plan: &'a AttributePlan,
    states: Vec<BlockUse>,
}

impl SharedBlockUses<'_> {
    /// The block for the next inode that uses this one; `place` says where a new copy goes, and gets
    /// its bytes.
    pub fn next(&mut self, index: usize, place: impl FnOnce(Vec<u8>) -> u64) -> u64 {
        let state = &mut self.states[index];
        let shared = &self.plan.blocks[index];
        if state.left == 0 {
            state.left = (shared.users - state.done).min(SHARED_BY_MAX);
            let mut bytes = shared.bytes.clone();
            set_reference_count(&mut bytes, state.left);
            state.block = place(bytes);
        }
        state.left -= 1;
        state.done += 1;
        state.block
    }
}

/// What goes into the inode, and what into a block.
fn split(
    metadata: &NodeMetadata,
    inode_room: usize,
) -> std::result::Result<(AttributeSet, AttributeSet), String> {
    let mut all: Vec<(AttributeName, Vec<u8>)> = Vec::new();
    for xattr in &metadata.xattrs {
        let shown = || xattr.name.escape_ascii().to_string();
        let name = AttributeName::parse(&xattr.name)
            .ok_or_else(|| format!("ext4 has no extended attribute of the name {}", shown()))?;
        let is_acl = matches!(name.index, AttributeName::ACL_ACCESS | AttributeName::ACL_DEFAULT);
        let value = if is_acl {
            let acl = Acl::from_attribute(&xattr.value)
                .map_err(|error| format!("{}: {error}", shown()))?;
            let is_access = name.index == AttributeName::ACL_ACCESS;
            if acl.entries().is_empty() || is_access && acl.equivalent_mode().is_some() {
                continue;
            }
            acl.to_packed()
        } else {
            xattr.value.clone()
        };
        all.push((name, value));
    }
    all.sort_unstable();
    let (mut in_inode, mut in_block) = (AttributeSet::new(), AttributeSet::new());
    for (name, value) in all {
        let mut larger = in_inode.clone();
        larger.set(name.clone(), AttributeValue::Inline(value.clone()));
        if larger.length_in_inode() <= inode_room / 4 * 4 {
            in_inode = larger;
        } else {
            in_block.set(name, AttributeValue::Inline(value));
        }
    }
    Ok((in_inode, in_block))
}

/// The path of a file that has the set, for a message.
fn user(tree: &FileTree, order: &InodeOrder, index: usize) -> Vec<u8> {
    let mut nodes = order.nodes().iter().copied();
    let node = nodes.find(|&node| tree.node(node).attributes().index() == index);
    node.map_or_else(Vec::new, |node| tree.path_of(node))
}
