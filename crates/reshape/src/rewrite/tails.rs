//! Gives the blocks of directories room for checksums, or takes that room away.
//!
//! Most blocks have room where they are. A directory with one that hasn't is rebuilt as a whole, which may take
//! more blocks.

use super::Rewriter;
use super::extents::extents_of_runs;
use super::map::{MappedRun, ReadTree};
use crate::error::{Refusal, Result};
use drystone_ext4_format::casefold::{Casefold, ENCODING_FLAG_STRICT, Encoding};
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryLayout, NewEntry, NoRoom};
use drystone_ext4_format::extent::{DEPTH_MAX, NodePlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::hash::{NameHash, NameHasher};
use drystone_ext4_format::htree::{
    self, DirectoryPlan, IndexBlock, IndexBlockMut, IndexKind, build_hashed, build_linear,
};
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::superblock::{Superblock, SuperblockFlags};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use std::collections::BTreeMap;
use std::ops::Range;

impl Rewriter<'_, '_> {
    /// Whether directories get or lose the room for checksums.
    pub(super) fn changes_tails(&self) -> bool {
        self.old.checksum_seed().is_some() != self.image.layout.checksum_seed().is_some()
    }

    /// Rewrites a directory with or without room for checksums, as the image is to have it.
    pub(super) fn change_tails(
        &mut self,
        inode: &mut Inode,
        runs: &[MappedRun],
        seed: Option<InodeSeed>,
    ) -> Result<()> {
        let places: Vec<_> = runs.iter().flat_map(MappedRun::blocks).collect();
        let mut blocks = Vec::with_capacity(places.len());
        for &place in &places {
            blocks.push(self.image.read_block(place)?);
        }
        let Some(before) = self.old.checksum_seed() else {
            let layout = self.directory_layout(inode, seed);
            return self.add_tails(inode, &layout, &places, blocks);
        };
        let seed = before.inode(inode.number, inode.generation);
        let layout = self.directory_layout(inode, Some(seed));
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        for (&place, bytes) in places.iter().zip(&mut blocks) {
            match IndexKind::of(bytes).filter(|_| is_indexed) {
                // There is more room for entries than before.
                Some(kind) => drop(IndexBlockMut::trusted(bytes, kind).set_checksummed(false)),
                None => dir::remove_tail(bytes, &layout),
            }
            self.image.write_block(place, bytes)?;
        }
        Ok(())
    }

    fn add_tails(
        &mut self,
        inode: &mut Inode,
        layout: &DirectoryLayout,
        places: &[PhysicalBlock],
        blocks: Vec<Vec<u8>>,
    ) -> Result<()> {
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        let index = if is_indexed { index_blocks(&blocks) } else { BTreeMap::new() };
        if let Ok(sealed) = with_tails(blocks.clone(), &index, layout) {
            for (&place, bytes) in places.iter().zip(&sealed) {
                self.image.write_block(place, bytes)?;
            }
            return Ok(());
        }
        let built = match is_indexed {
            true => self.built_hashed(inode, layout, &blocks, &index)?,
            false => {
                let bare = layout.without_tail();
                let (parent, entries) = entries(&blocks, &index, &bare);
                let plan = self.plan(inode, parent, layout);
                build_linear(&plan, entries)
            }
        };
        let places = self.lay_out(inode, places, built.len())?;
        for (place, bytes) in places.into_iter().zip(&built) {
            self.image.write_block(place, bytes)?;
        }
        Ok(())
    }

    fn plan<'l>(
        &self,
        inode: &Inode,
        parent: InodeNumber,
        layout: &'l DirectoryLayout,
    ) -> DirectoryPlan<'l> {
        let block_size = self.image.layout.block_size();
        DirectoryPlan { own: inode.number, parent, layout, block_size }
    }

    fn built_hashed(
        &self,
        inode: &Inode,
        layout: &DirectoryLayout,
        blocks: &[Vec<u8>],
        index: &BTreeMap<usize, IndexKind>,
    ) -> Result<Vec<Vec<u8>>> {
        let superblock = &self.image.superblock;
        let root = blocks.first().map(|root| IndexBlock::trusted(root, IndexKind::Root));
        // The root has the signed one of a pair.
        let version = root.and_then(|root| root.hash_version()).ok_or(Refusal::HasErrors)?;
        let is_unsigned = superblock.flags().contains(SuperblockFlags::UNSIGNED_HASH);
        let version = version.with_unsigned_chars(is_unsigned);
        let hasher = NameHasher::new(version, superblock.hash_seed());
        let casefold = casefold(superblock).filter(|_| layout.casefolded);
        let bare = layout.without_tail();
        let (parent, entries) = entries(blocks, index, &bare);
        let mut hashed: Vec<(NameHash, NewEntry<'_>)> = entries
            .map(|entry| {
                let hash = match (entry.hash, &casefold) {
                    (Some(hash), _) => hash,
                    (None, Some(casefold)) => hasher.hash(&casefold.key(entry.name)),
                    (None, None) => hasher.hash(entry.name),
                };
                (hash, entry)
            })
            .collect();
        let is_large = superblock.features().incompat.contains(Incompat::LARGE_DIR);
        let plan = self.plan(inode, parent, layout);
        build_hashed(&plan, version, is_large, &mut hashed).map_err(|NoRoom| {
            let number = inode.number;
            let problem = format!("the index of directory {number} has no room for checksums");
            Refusal::Value(problem).into()
        })
    }

    /// Gives a directory so many blocks: of those that it has the first ones, and new ones. Its map is rebuilt.
    fn lay_out(
        &mut self,
        inode: &mut Inode,
        places: &[PhysicalBlock],
        count: usize,
    ) -> Result<Vec<PhysicalBlock>> {
        let layout = self.image.layout;
        let ratio = layout.blocks_per_cluster() as usize;
        let per_cluster = ratio as u64 * layout.sectors_per_block();
        let mut clusters: Vec<u64> =
            places.iter().step_by(ratio).map(|place| place.get()).collect();
        let before = clusters.len();
        for &cluster in clusters.iter().skip(count.div_ceil(ratio)) {
            self.image.mark(cluster..cluster + ratio as u64, false)?;
        }
        clusters.truncate(count.div_ceil(ratio));
        while clusters.len() < count.div_ceil(ratio) {
            let groups = 0..layout.group_count();
            clusters.push(self.image.take_contiguous(groups, 1, "directories")?.get());
        }
        let blocks: Vec<u64> =
            (0..count).map(|block| clusters[block / ratio] + (block % ratio) as u64).collect();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &block in &blocks {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        inode.size_bytes = (count as u64) << layout.log_block_size();
        inode.sectors =
            inode.sectors + clusters.len() as u64 * per_cluster - before as u64 * per_cluster;
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let mut tree = ReadTree::default();
            let area = inode.block_area;
            self.read_tree(&area, NodePlace::root(inode.number), DEPTH_MAX + 1, &mut tree)?;
            tree.extents = extents_of_runs(&runs);
            let seed = inode.seed(&layout);
            self.build_tree(inode, &tree, seed)?;
        } else {
            let nodes = self.read_pointers(inode)?.nodes;
            for node in &nodes {
                self.image.mark(node.get()..node.get() + 1, false)?;
            }
            inode.block_area = [0; BLOCK_AREA_BYTES];
            let added = self.build_pointers(inode, &runs)?;
            inode.sectors = inode.sectors + added * per_cluster - nodes.len() as u64 * per_cluster;
        }
        Ok(blocks.into_iter().map(PhysicalBlock::new).collect())
    }
}

/// Adds room for a checksum to each block, and the checksum.
fn with_tails(
    mut blocks: Vec<Vec<u8>>,
    index: &BTreeMap<usize, IndexKind>,
    layout: &DirectoryLayout,
) -> std::result::Result<Vec<Vec<u8>>, NoRoom> {
    for (number, bytes) in blocks.iter_mut().enumerate() {
        match index.get(&number) {
            Some(&kind) => {
                IndexBlockMut::trusted(bytes, kind).set_checksummed(true)?;
                htree::seal(bytes, kind, layout);
            }
            None => {
                dir::add_tail(bytes, layout)?;
                dir::seal(bytes, layout);
            }
        }
    }
    Ok(blocks)
}

/// The index blocks of a hashed directory, by their numbers.
fn index_blocks(blocks: &[Vec<u8>]) -> BTreeMap<usize, IndexKind> {
    let mut index = BTreeMap::from([(0, IndexKind::Root)]);
    let Some(root) = blocks.first().map(|root| IndexBlock::trusted(root, IndexKind::Root)) else {
        return index;
    };
    let mut level = vec![0];
    for _ in 0..root.levels().unwrap_or(0) {
        let mut below = Vec::new();
        for number in level {
            let Some(bytes) = blocks.get(number) else { continue };
            let kind = index.get(&number).copied().unwrap_or(IndexKind::Node);
            let entries = IndexBlock::trusted(bytes, kind).entries();
            below.extend(entries.map(|entry| entry.block.get() as usize));
        }
        index.extend(below.iter().map(|&number| (number, IndexKind::Node)));
        level = below;
    }
    index
}

/// The parent that a directory names, and its other entries.
fn entries<'b>(
    blocks: &'b [Vec<u8>],
    index: &'b BTreeMap<usize, IndexKind>,
    bare: &'b DirectoryLayout,
) -> (InodeNumber, impl Iterator<Item = NewEntry<'b>>) {
    let first = blocks.first().and_then(|first| DirectoryBlock::trusted(first, bare).parent());
    let leaves = blocks.iter().enumerate().filter(|(number, _)| !index.contains_key(number));
    let all = leaves.flat_map(|(_, bytes)| DirectoryBlock::trusted(bytes, bare).entries());
    let entries = all.filter(|entry| !entry.is_dot()).map(NewEntry::from);
    (first.unwrap_or(InodeNumber::ROOT), entries)
}

fn casefold(superblock: &Superblock) -> Option<Casefold> {
    let encoding = Encoding::from_raw(superblock.encoding())?;
    let strict = superblock.encoding_flags() & ENCODING_FLAG_STRICT != 0;
    Some(Casefold { encoding, strict })
}
