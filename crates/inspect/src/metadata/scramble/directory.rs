//! Directories: new names in the same records, in leaves of the same index.
//!
//! A directory is read once to see which names its leaves need, and once more to write them, some leaves at a time.

use super::deal::{Deal, Draw};
use super::index::{DirectoryBlocks, DirectoryIndex};
use super::intervals::Intervals;
use super::key::Purpose;
use super::names::{NameCounters, NameSupply};
use super::records::{self, Replacement};
use super::{Scrambler, Seeds};
use crate::error::Result;
use crate::image::StoredInode;
use crate::map::runs_of;
use crate::metadata::copier::BlockCopier;
use drystone_ext4_format::casefold::Casefold;
use drystone_ext4_format::dir::{self, DirectoryBlock, DirectoryLayout, DirectoryPlace, Entry};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::hash::{NameHash, NameHasher};
use drystone_ext4_format::htree::{self, CONTINUATION, IndexKind};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::HashMap;

/// The name that e2fsck looks for in the root.
pub(super) const LOST_FOUND: &[u8] = b"lost+found";

/// How many names are found at once, at least.
const DEAL_NAMES_MIN: usize = 1 << 18;

/// How many names are found at once for each block of the directory, at least: for huge directories, where each deal
/// takes as many draws as there are leaves.
const DEAL_NAMES_PER_BLOCK_MIN: usize = 8;

/// How many names are compared to find those that a directory has twice. In a larger directory, a name that is twice
/// after these is twice no more.
const NOTED_NAMES_MAX: usize = 1 << 22;

/// Blocks that are rewritten at once, at most.
const BATCH_BLOCKS_MAX: usize = 1 << 14;

/// What replaces the names of one directory.
pub(super) struct DirectoryNames<'a> {
    inode: InodeNumber,
    layout: DirectoryLayout,
    casefold: Option<Casefold>,
    supply: NameSupply,
    counters: NameCounters,
    /// Whether there should be an index.
    is_indexed: bool,
    index: Option<(DirectoryIndex, Intervals, NameHasher)>,
    deal: Deal,
    /// Numbers of the names that were met so far.
    noted: Vec<u64>,
    /// Names that are there more than once.
    repeated: HashMap<u64, Repeated>,
    scrambler: &'a Scrambler<'a, 'a>,
}

/// A name that a directory has more than once.
#[derive(Default)]
struct Repeated {
    is_wanted: bool,
    /// What it becomes.
    name: Option<Vec<u8>>,
}

impl<'a> DirectoryNames<'a> {
    /// Names for a directory whose blocks, if it has any, have an index.
    pub fn new(
        scrambler: &'a Scrambler<'_, '_>,
        stored: &StoredInode,
        index: Option<(DirectoryIndex, Intervals, NameHasher)>,
    ) -> Self {
        let layout = scrambler.image.directory_layout(&stored.inode);
        let inode = stored.inode.number;
        let folds = layout.casefolded && !layout.encrypted;
        Self {
            inode,
            layout,
            casefold: if folds { scrambler.image.casefold() } else { None },
            supply: NameSupply::new(scrambler.key, Purpose::Names, inode.get(), layout.casefolded),
            counters: NameCounters::default(),
            is_indexed: stored.inode.flags.contains(InodeFlags::INDEX),
            index,
            deal: Deal::default(),
            noted: Vec::new(),
            repeated: HashMap::new(),
            scrambler,
        }
    }

    fn is_kept(&self, entry: &Entry<'_>) -> bool {
        entry.is_dot() || self.inode == InodeNumber::ROOT && entry.name == LOST_FOUND
    }

    /// Notes the names of a block, so that [`find_repeated`](Self::find_repeated) finds those that are there twice.
    pub fn note(&mut self, bytes: &[u8]) {
        let layout = records::readable_layout(bytes, &self.layout);
        for (entry, _) in DirectoryBlock::trusted(bytes, &layout).salvage() {
            if !self.is_kept(&entry) && self.noted.len() < NOTED_NAMES_MAX {
                self.noted.push(self.identity_of(entry.name));
            }
        }
    }

    /// Finds the names that a damaged directory has twice, which are the same afterwards.
    pub fn find_repeated(&mut self) {
        let mut noted = std::mem::take(&mut self.noted);
        noted.sort_unstable();
        let pairs = noted.windows(2).filter(|pair| pair[0] == pair[1]);
        self.repeated = pairs.map(|pair| (pair[0], Repeated::default())).collect();
    }

    /// A number that names have in common if they are one.
    fn identity_of(&self, name: &[u8]) -> u64 {
        self.scrambler.key.number(Purpose::Names, &self.key_of(name)[..])
    }

    /// What makes two names one.
    fn key_of(&self, name: &[u8]) -> Vec<u8> {
        match &self.casefold {
            Some(casefold) => casefold.key(name).into_owned(),
            None => name.to_vec(),
        }
    }

    /// Notes which names a leaf needs.
    fn want(&mut self, block: LogicalBlock, bytes: &[u8]) {
        let Some((index, intervals, _)) = &self.index else { return };
        if index.stores_hashes() || index.is_node(block) {
            return;
        }
        let layout = records::readable_layout(bytes, &self.layout);
        for (entry, _) in DirectoryBlock::trusted(bytes, &layout).salvage() {
            if self.is_kept(&entry) {
                continue;
            }
            let identity = self.identity_of(entry.name);
            if let Some(repeated) = self.repeated.get_mut(&identity)
                && std::mem::replace(&mut repeated.is_wanted, true)
            {
                continue;
            }
            let shape = records::shape_of(entry.name, &self.layout, self.casefold.as_ref());
            self.deal.want(shape, index.interval(intervals, block, &entry));
        }
    }

    /// Finds the names that are wanted.
    fn fill(&mut self) {
        if let Some((_, intervals, hasher)) = &self.index {
            let draw = Draw { supply: &self.supply, hasher, intervals };
            self.deal.fill(&draw, &mut self.counters);
        }
    }

    /// Replaces the names of a block or of a piece of an inline directory. The checksum is still to be sealed. Returns
    /// how many bytes were cleared because they are in no record.
    pub fn rewrite(&mut self, block: LogicalBlock, bytes: &mut [u8]) -> u64 {
        let layout = self.layout;
        records::rewrite(bytes, &layout, &mut |entry| {
            if self.repeated.is_empty() {
                return self.replacement(block, entry);
            }
            let identity = self.identity_of(entry.name);
            // A name that equals another but for its case may be longer.
            let room = entry.record_length - dir::record_length(&[], &layout);
            let known = self.repeated.get(&identity).and_then(|repeated| repeated.name.clone());
            let hash = entry.hash.map(|_| self.stored_hash(block, entry));
            if let Some(name) = known.filter(|name| name.len() <= room) {
                return Replacement { name, hash };
            }
            let new = self.replacement(block, entry);
            if let Some(repeated) = self.repeated.get_mut(&identity) {
                repeated.name = Some(new.name.clone());
            }
            new
        })
    }

    fn replacement(&mut self, block: LogicalBlock, entry: &Entry<'_>) -> Replacement {
        let hash = entry.hash.map(|_| self.stored_hash(block, entry));
        if self.is_kept(entry) {
            return Replacement { name: entry.name.to_vec(), hash };
        }
        let shape = records::shape_of(entry.name, &self.layout, self.casefold.as_ref());
        if shape.length == 0 {
            return Replacement { name: Vec::new(), hash };
        }
        if let Some((index, intervals, _)) = self.index.as_ref().filter(|_| hash.is_none()) {
            let interval = index.interval(intervals, block, entry);
            if let Some(name) = self.deal.take(shape, interval, &self.supply) {
                return Replacement { name, hash };
            }
            self.scrambler.misplaced.set(self.scrambler.misplaced.get() + 1);
        }
        Replacement { name: self.supply.next(shape, &mut self.counters), hash }
    }

    /// A random hash, in the new interval of the old one.
    fn stored_hash(&self, block: LogicalBlock, entry: &Entry<'_>) -> NameHash {
        let place = (self.inode.get(), block.get(), entry.offset as u64);
        let mut random = self.scrambler.key.stream(Purpose::StoredHash, place);
        let (first, second) = (random.number(), random.number() as u32);
        let major = match &self.index {
            Some((index, intervals, _)) => {
                let interval = index.interval(intervals, block, entry);
                let length = u64::from(intervals.new_length(interval)).max(1);
                intervals.new_start(interval) + (first % length) as u32
            }
            None => first as u32,
        };
        NameHash { major: major & !CONTINUATION, minor: second }
    }
}

impl<'d> Scrambler<'_, 'd> {
    /// The index of a directory with the intervals of its new names.
    fn index_of(
        &self,
        stored: &StoredInode,
        layout: &DirectoryLayout,
        blocks: &DirectoryBlocks,
    ) -> Result<Option<(DirectoryIndex, Intervals, NameHasher)>> {
        if !stored.inode.flags.contains(InodeFlags::INDEX) {
            return Ok(None);
        }
        let number = stored.inode.number;
        let Some(mut index) = DirectoryIndex::read(self.image, number, layout, blocks)? else {
            return Ok(None);
        };
        let new = NameHasher::new(index.hasher().version(), self.hash_seed.1);
        let kept = (number == InodeNumber::ROOT).then(|| {
            let hash = |hasher: &NameHasher| hasher.hash(LOST_FOUND).major;
            (hash(&index.hasher()), hash(&new))
        });
        let intervals = index.intervals(kept);
        Ok(Some((index, intervals, new)))
    }

    /// Copies the blocks of a directory.
    pub(super) fn directory(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        stored: &StoredInode,
    ) -> Result<()> {
        let runs = runs_of(self.image, &stored.inode)?;
        let mut new_runs = copier.copied.insert_runs(&runs);
        new_runs.sort_by_key(|run| run.logical);
        let blocks = DirectoryBlocks::new(runs);
        let layout = self.image.directory_layout(&stored.inode);
        let index = self.index_of(stored, &layout, &blocks)?;
        let has_deal = index.as_ref().is_some_and(|(index, ..)| !index.stores_hashes());
        let deal_names = DEAL_NAMES_MIN.max(blocks.end() as usize * DEAL_NAMES_PER_BLOCK_MIN);
        let mut names = DirectoryNames::new(self, stored, index);
        self.image.each_block(new_runs.iter().copied(), &mut |_, _, bytes| names.note(bytes));
        names.find_repeated();
        let rewriting =
            DirectoryRewriting { seeds: self.seeds_of(stored), directory_blocks: blocks.end() };
        let mut batch = Vec::new();
        let mut cursor = BlockCursor { runs: &new_runs, run: 0, by: 0 };
        loop {
            let next = cursor.next(copier);
            if let Some((logical, physical)) = next {
                if has_deal && let Ok(bytes) = self.image.read_block(physical) {
                    names.want(logical, &bytes);
                }
                batch.push((logical, physical));
            }
            if next.is_some() && batch.len() < BATCH_BLOCKS_MAX && names.deal.len() < deal_names {
                continue;
            }
            names.fill();
            for (logical, physical) in batch.drain(..) {
                let range = physical.get()..physical.get() + 1;
                copier.copy_range(range, &mut |_, bytes| {
                    self.directory_block(&mut names, &rewriting, logical, bytes);
                    Ok(())
                })?;
            }
            names.deal = Deal::default();
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn directory_block(
        &self,
        names: &mut DirectoryNames<'_>,
        rewriting: &DirectoryRewriting,
        logical: LogicalBlock,
        bytes: &mut [u8],
    ) {
        let old = names.layout;
        let place = DirectoryPlace { inode: names.inode, block: logical };
        let sealed =
            |is_right| DirectoryLayout { checksum: rewriting.seeds.choose(is_right), ..old };
        let kind = match &names.index {
            Some((index, ..)) if index.is_node(logical) && logical != LogicalBlock::FIRST => {
                Some(IndexKind::Node)
            }
            Some(_) if logical == LogicalBlock::FIRST => Some(IndexKind::Root),
            // The root of a damaged index.
            None if names.is_indexed && logical == LogicalBlock::FIRST => Some(IndexKind::Root),
            _ => None,
        };
        if let Some(kind) = kind {
            let is_right = htree::verify(bytes, kind, &old, place).is_ok();
            let replace = &mut |hash| match &names.index {
                Some((_, intervals, _)) => intervals.replace(hash),
                None => hash & CONTINUATION,
            };
            if htree::rehash(bytes, kind, &old, rewriting.directory_blocks, replace) {
                htree::seal(bytes, kind, &sealed(is_right));
                return;
            }
        }
        let is_right = dir::verify(bytes, &old, place).is_ok();
        let unclear = names.rewrite(logical, bytes);
        self.add_unclear(unclear);
        dir::seal(bytes, &sealed(is_right));
    }
}

/// What the rewriting of a directory's blocks needs besides its names.
struct DirectoryRewriting {
    seeds: Seeds,
    directory_blocks: u32,
}

/// Goes through the blocks of runs, except holes of the device.
struct BlockCursor<'a> {
    runs: &'a [Extent],
    run: usize,
    by: u32,
}

impl BlockCursor<'_> {
    fn next(&mut self, copier: &BlockCopier<'_, '_>) -> Option<(LogicalBlock, PhysicalBlock)> {
        while let Some(run) = self.runs.get(self.run) {
            let at = run.physical.get() + u64::from(self.by);
            let skipped = copier.data_from(at).saturating_sub(at);
            self.by = self.by.saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
            if self.by < run.length && at + skipped < copier.blocks {
                let by = self.by;
                self.by += 1;
                let logical = LogicalBlock::new(run.logical.get() + by);
                return Some((logical, PhysicalBlock::new(run.physical.get() + u64::from(by))));
            }
            (self.run, self.by) = (self.run + 1, 0);
        }
        None
    }
}
