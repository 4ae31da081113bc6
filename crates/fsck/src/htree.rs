//! The index of a hashed directory: its shape, and the ranges of hashes that it gives leaves.

use crate::checker::DirectoryPass;
use crate::directory::{DirectoryContext, MappedBlock, casefold_of};
use crate::image::Error;
use crate::issue::{IndexIssue, Issue};
use drystone_ext4_format::casefold::Casefold;
use drystone_ext4_format::dir::{DirectoryLayout, Entry};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::hash::{HashVersion, NameHasher};
use drystone_ext4_format::htree::{self, IndexBlock, IndexKind, IndexLimits};
use drystone_ext4_format::superblock::SuperblockFlags;
use drystone_ext4_format::{InodeNumber, LogicalBlock};
use std::collections::{HashMap, HashSet};

/// Hashes that a block of the directory may hold, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashRange {
    pub low: u32,
    pub high: u32,
}

const ALL_HASHES: HashRange = HashRange { low: 0, high: u32::MAX };

/// What the index of a directory says.
#[derive(Default)]
pub(crate) struct Index {
    nodes: HashSet<u32>,
    leaves: HashMap<u32, HashRange>,
    hasher: Option<NameHasher>,
    casefold: Option<Casefold>,
    /// What `..` in the root names.
    pub parent: InodeNumber,
}

impl Index {
    /// Whether there is an index, with a root that holds.
    pub fn is_usable(&self) -> bool {
        self.hasher.is_some()
    }

    pub fn is_node(&self, block: LogicalBlock) -> bool {
        self.nodes.contains(&block.get())
    }

    pub fn leads_to(&self, block: LogicalBlock) -> bool {
        self.leaves.contains_key(&block.get()) || self.is_node(block)
    }

    /// The range that an entry should be in and its hash, if it is not.
    pub fn outside(
        &self,
        block: LogicalBlock,
        entry: &Entry<'_>,
        layout: &DirectoryLayout,
    ) -> Option<(HashRange, u32)> {
        let range = *self.leaves.get(&block.get())?;
        let hash = match entry.hash {
            Some(stored) if layout.stores_hashes() => stored.major,
            _ => {
                let hasher = self.hasher?;
                match &self.casefold {
                    Some(casefold) => hasher.hash(&casefold.key(entry.name)).major,
                    None => hasher.hash(entry.name).major,
                }
            }
        };
        let hash = hash & !htree::CONTINUATION;
        (hash < range.low || hash > range.high).then_some((range, hash))
    }
}

/// Checks the index of a directory that has one.
pub(crate) fn check(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    blocks: &[MappedBlock],
) -> Result<Index, Error> {
    let features = pass.image.layout.features();
    if !features.compat.contains(Compat::DIR_INDEX) {
        // The flag itself was reported with the inode; a reader goes by names alone.
        return Ok(Index::default());
    }
    let Some(root) = blocks.first().filter(|block| block.logical == LogicalBlock::FIRST) else {
        return Ok(Index::default());
    };
    let limits = IndexLimits {
        directory_blocks: blocks.last().map_or(0, |block| block.logical.get()).saturating_add(1),
        large_directory: features.incompat.contains(Incompat::LARGE_DIR),
    };
    let bytes = pass.image.read_block(root.physical)?;
    let place = context.place(root.logical);
    if let Err(corrupt) = htree::verify(&bytes, IndexKind::Root, &context.layout, place) {
        pass.reporter.report(corrupt);
    }
    let view = match IndexBlock::check_root(&bytes, &context.layout, place, &limits) {
        Ok(view) => view,
        Err(corrupt) => {
            pass.reporter.report(corrupt);
            return Ok(Index::default());
        }
    };
    let unsigned = pass.image.superblock.flags().contains(SuperblockFlags::UNSIGNED_HASH);
    let version = view.hash_version().map(|version| version.with_unsigned_chars(unsigned));
    // Only names that can't be hashed from what is stored use a function of their own.
    let is_sip = version == Some(HashVersion::SipHash);
    let version = version.filter(|_| is_sip == context.layout.stores_hashes());
    let Some(version) = version else {
        let version = bytes.get(28).copied().unwrap_or(0);
        let issue = IndexIssue::HashVersion { version };
        let inode = context.inode.number;
        pass.reporter.report(Issue::Index { inode, block: root.logical, issue });
        return Ok(Index::default());
    };
    let folds = context.layout.casefolded && !context.layout.encrypted;
    let index = Index {
        nodes: HashSet::from([0]),
        leaves: HashMap::new(),
        hasher: Some(NameHasher::new(version, pass.image.superblock.hash_seed())),
        casefold: if folds { casefold_of(pass.image) } else { None },
        parent: view.parent().unwrap_or(InodeNumber::new(0)),
    };
    let levels = view.levels().unwrap_or(0);
    let mut walk = HtreeWalk { pass, context, blocks, limits, index };
    walk.children(root.logical, &view, ALL_HASHES, levels)?;
    Ok(walk.index)
}

struct HtreeWalk<'a, 'c, 'r, 'b> {
    pass: &'a mut DirectoryPass<'c, 'r>,
    context: &'b DirectoryContext,
    blocks: &'b [MappedBlock],
    limits: IndexLimits,
    index: Index,
}

impl HtreeWalk<'_, '_, '_, '_> {
    fn report(&mut self, block: LogicalBlock, issue: IndexIssue) {
        let inode = self.context.inode.number;
        self.pass.reporter.report(Issue::Index { inode, block, issue });
    }

    /// Goes through what a node refers to; `levels` of nodes are below it.
    fn children(
        &mut self,
        own: LogicalBlock,
        view: &IndexBlock<'_>,
        range: HashRange,
        levels: u8,
    ) -> Result<(), Error> {
        for position in 0..view.count() {
            let Some(entry) = view.get(position) else { break };
            let low = if position == 0 { range.low } else { entry.hash_value() };
            let next = position.checked_add(1).and_then(|next| view.get(next));
            let high = match next {
                // Names of the next one's first hash may still be here.
                Some(next) if next.continues() => next.hash_value(),
                Some(next) => next.hash_value().saturating_sub(1),
                None => range.high,
            };
            if low < range.low || low > range.high {
                let HashRange { low, high } = range;
                let hash = entry.hash_value();
                self.report(own, IndexIssue::NodeRange { hash, low, high });
            }
            self.child(own, entry.block, HashRange { low, high }, levels)?;
        }
        Ok(())
    }

    fn child(
        &mut self,
        own: LogicalBlock,
        target: LogicalBlock,
        range: HashRange,
        levels: u8,
    ) -> Result<(), Error> {
        let found = self.blocks.binary_search_by_key(&target, |block| block.logical);
        let Ok(found) = found else {
            self.report(own, IndexIssue::Missing { target });
            return Ok(());
        };
        if self.index.leads_to(target) {
            self.report(target, IndexIssue::Twice);
            return Ok(());
        }
        let Some(below) = levels.checked_sub(1) else {
            self.index.leaves.insert(target.get(), range);
            return Ok(());
        };
        self.index.nodes.insert(target.get());
        let bytes = self.pass.image.read_block(self.blocks[found].physical)?;
        let place = self.context.place(target);
        let layout = &self.context.layout;
        if let Err(corrupt) = htree::verify(&bytes, IndexKind::Node, layout, place) {
            self.pass.reporter.report(corrupt);
        }
        match IndexBlock::check_node(&bytes, layout, place, &self.limits) {
            Ok(view) => self.children(target, &view, range, below),
            Err(corrupt) => {
                self.pass.reporter.report(corrupt);
                Ok(())
            }
        }
    }
}

/// Reports a block that the index does not lead to.
pub(crate) fn report_unreferenced(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    block: LogicalBlock,
) {
    let inode = context.inode.number;
    pass.reporter.report(Issue::Index { inode, block, issue: IndexIssue::Unreferenced });
}
