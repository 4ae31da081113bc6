//! What an examination keeps for the next one of the same image, so that a repair doesn't examine the whole image in
//! each of its rounds.
//!
//! The passes over inodes and over directories examine pieces. The next examination reuses the findings of a piece
//! that would find the same again, and examines the others again. What concerns the whole image is derived from all
//! findings together, reused or not: owners of blocks, links, bitmaps, quota. So its report is that of an examination
//! from the start.
//!
//! # State
//! - For a piece of inodes without problems: what they claim and count. The states of all inodes.
//! - For a piece of directories: its problems, the inodes that its entries name, and the clusters that it was read
//!   from.
//!
//! Everything is in memory, and part of what the caller allows for the check. A piece for which there is no room isn't
//! kept. Problems with paths, and what rules have noted, belong to the repair and not here.
//!
//! # Locking
//! None. Only the thread that takes the results of pieces changes what is kept, between the pieces that others examine.
//!
//! # Invariants
//! A piece is dropped before it could be reused if anything may have changed that its findings depend on:
//! - the superblock, except for its counts and its state: then all pieces are dropped;
//! - the inodes of the piece: their bytes, whether they are orphans, where their table is or how much of it is in use;
//! - for inodes the clusters that they claim: nodes of maps, attributes and targets of links lie there;
//! - for directories the clusters that they were read from, and whether the inodes that they name are in use, and as
//!   what.
//!
//! So every write of a repair has to be noted: it goes through a [`WatchedDevice`](crate::watched::WatchedDevice).
//!
//! Never kept, as they depend on other pieces: the first piece of inodes, whose reserved inodes are compared with the
//! superblock; inodes with values of attributes in other inodes; a piece that shares a node of a map or a block of a
//! directory with another; directories whose encryption policy was compared with that of their files.

#[cfg(test)]
mod tests;

use super::{DirectoryPart, Findings, Orphans};
use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::image::Image;
use crate::inode_runs::{InodeRun, InodeRuns};
use crate::inode_states::InodeStates;
use crate::memory::{Memory, MemoryShare};
use crate::report::CheckSummary;
use drystone_ext4_format::superblock::{StateFlags, Superblock};
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What was found in some inodes without problems.
#[derive(Debug)]
pub(crate) struct KeptInodes {
    pub run: InodeRun,
    pub found: Findings,
    pub summary: CheckSummary,
}

impl KeptInodes {
    fn memory_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.found.memory_bytes()
    }
}

/// What the findings of all pieces depend on, beside what each of them reads.
#[derive(PartialEq, Eq)]
struct SharedInputs {
    /// Without counts and state.
    superblock: Vec<u8>,
    /// Of each group.
    tables: Vec<InodeTable>,
    orphans: BTreeSet<u32>,
}

#[derive(PartialEq, Eq)]
struct InodeTable {
    place: PhysicalBlock,
    is_there: bool,
    /// Inodes that may be in use.
    initialised: u32,
}

impl SharedInputs {
    fn of(image: &Image<'_>, orphans: &Orphans) -> Self {
        let table = |group: GroupNumber| {
            let state = &image.groups[group.index()];
            InodeTable {
                place: state.descriptor.inode_table,
                is_there: state.has_inode_table,
                initialised: image.initialised_inodes(group),
            }
        };
        Self {
            superblock: without_counts(&image.superblock),
            tables: image.layout.groups().map(table).collect(),
            orphans: orphans.inodes.clone(),
        }
    }
}

/// A superblock's bytes without what neither inodes nor directories are compared with.
fn without_counts(superblock: &Superblock) -> Vec<u8> {
    let mut superblock = superblock.clone();
    superblock.set_free_blocks_count(0);
    superblock.set_free_inodes_count(0);
    superblock.set_state(StateFlags::CLEAN);
    superblock.clear_errors();
    superblock.set_last_orphan(None);
    superblock.set_orphan_present(false);
    superblock.set_needs_recovery(false);
    superblock.encode().to_vec()
}

/// What is kept.
#[derive(Default)]
pub(crate) struct Kept {
    inputs: Option<SharedInputs>,
    states: Option<InodeStates>,
    /// By their first inodes. Boxed, as half of the map's own room is empty.
    inodes: BTreeMap<u32, Box<KeptInodes>>,
    directories: BTreeMap<u32, Box<DirectoryPart>>,
    /// What the pieces take of the memory of the check; nothing before the first.
    memory: Option<MemoryShare>,
    bytes_max: u64,
    /// Ranges of the device that were written since, in order.
    written: Vec<Range<u64>>,
    /// Inodes that may have changed since, and what directories saw of them.
    changed: Vec<(InodeRun, Vec<u8>)>,
}

impl Kept {
    /// Notes ranges of the device that were written since the last examination, in order.
    pub fn note_written(&mut self, written: Vec<Range<u64>>) {
        self.written = written;
    }

    /// Begins an examination, whose tables share this memory. The pieces may take so many bytes of it in all. Returns
    /// the states of the last examination if the image has the same superblock; all pieces are dropped otherwise.
    pub fn begin(
        &mut self,
        image: &Image<'_>,
        memory: &Memory,
        bytes_max: u64,
    ) -> Option<InodeStates> {
        let now = without_counts(&image.superblock);
        if self.inputs.as_ref().is_none_or(|inputs| inputs.superblock != now) {
            *self = Self::default();
        }
        self.bytes_max = bytes_max;
        let mut share = memory.share();
        let bytes = self.memory_bytes();
        if bytes > bytes_max || !share.grow(bytes) {
            self.inodes.clear();
            self.directories.clear();
        }
        self.memory = Some(share);
        self.states.take()
    }

    /// Bytes that all pieces take, about.
    fn memory_bytes(&self) -> u64 {
        let inodes = self.inodes.values().map(|piece| piece.memory_bytes());
        let directories = self.directories.values().map(|piece| piece.memory_bytes());
        inodes.chain(directories).sum()
    }

    /// Gives back what dropped pieces have taken.
    fn release_dropped(&mut self) {
        let bytes = self.memory_bytes();
        if let Some(memory) = &mut self.memory {
            memory.shrink(memory.bytes().saturating_sub(bytes));
        }
    }

    pub fn set_states(&mut self, states: InodeStates) {
        self.states = Some(states);
    }

    /// Drops the pieces that may have changed, and the inodes that aren't in one of these runs.
    pub fn drop_changed(
        &mut self,
        image: &Image<'_>,
        orphans: &Orphans,
        states: &InodeStates,
        claims: &Claims,
        runs: &[InodeRun],
    ) {
        let inputs = SharedInputs::of(image, orphans);
        let changed = match &self.inputs {
            Some(before) => changed_inodes(image, before, &inputs, &self.written),
            None => InodeRuns::default(),
        };
        let mut clusters = BlockSet::new(claims.bound());
        let log_block_size = image.layout.log_block_size();
        for range in &self.written {
            let blocks = range.start >> log_block_size..((range.end - 1) >> log_block_size) + 1;
            clusters.add_range(claims.clusters(blocks.start, blocks.end));
        }
        self.inputs = Some(inputs);
        self.inodes.retain(|_, piece| {
            let is_piece = runs.binary_search_by_key(&piece.run.first, |run| run.first);
            is_piece.is_ok_and(|at| runs[at] == piece.run)
                && !changed.meet(piece.run)
                && !piece.found.claim_any(&clusters)
        });
        self.directories.retain(|_, piece| {
            !piece.is_in_any(&clusters)
                && !piece.inodes.iter().any(|inode| changed.contain(*inode))
                && !changed.have_any(&piece.uncounted)
        });
        self.changed = changed.iter().map(|run| (run, states.seen_of(run))).collect();
        self.release_dropped();
    }

    /// The inodes that look different to directories now.
    fn look_different(&self, states: &InodeStates) -> InodeRuns {
        let mut changed = Vec::new();
        for (run, before) in &self.changed {
            let pairs = before.iter().zip(states.seen_of(*run));
            let numbers = (run.first..).zip(pairs).filter(|(_, (before, now))| *before != now);
            changed.extend(numbers.map(|(inode, _)| InodeRun { first: inode, last: inode }));
        }
        InodeRuns::new(changed)
    }

    /// Which of these pieces of directories are reused: those that share no clusters, and name no inode that looks
    /// different now. The others are dropped.
    pub fn reuse_directories(
        &mut self,
        pieces: &[&[u32]],
        states: &InodeStates,
        shared: &BlockSet,
    ) -> Vec<bool> {
        let changed = self.look_different(states);
        let mut before = std::mem::take(&mut self.directories);
        let mut is_reused = |piece: &[u32]| {
            let kept = before.remove(piece.first()?)?;
            let is_same =
                *kept.inodes == *piece && !kept.is_in_any(shared) && !changed.have_any(&kept.names);
            is_same.then(|| self.directories.insert(kept.inodes[0], kept))
        };
        let reused = pieces.iter().map(|piece| is_reused(piece).is_some()).collect();
        self.release_dropped();
        reused
    }

    /// A piece of directories that is kept.
    pub fn directories(&self, piece: &[u32]) -> &DirectoryPart {
        &self.directories[&piece[0]]
    }

    /// The inodes that are kept.
    pub fn runs(&self) -> InodeRuns {
        InodeRuns::new(self.inodes.values().map(|piece| piece.run).collect())
    }

    /// The inodes that are kept and claim none of these clusters.
    pub fn runs_without(&self, clusters: &BlockSet) -> InodeRuns {
        let without = self.inodes.values().filter(|piece| !piece.found.claim_any(clusters));
        InodeRuns::new(without.map(|piece| piece.run).collect())
    }

    pub fn inodes(&self, run: InodeRun) -> Option<&KeptInodes> {
        self.inodes.get(&run.first).map(|piece| &**piece)
    }

    /// Of directories in order, those that may name one of these inodes.
    pub fn that_may_name(&self, directories: &[u32], inodes: &InodeRuns) -> Vec<u32> {
        let mut possible = Vec::new();
        let mut rest = directories;
        while let Some(first) = rest.first() {
            let kept = self.directories.get(first);
            let count = match kept.filter(|kept| rest.starts_with(&kept.inodes)) {
                Some(kept)
                    if !inodes.have_any(&kept.names) && !inodes.have_any(&kept.uncounted) =>
                {
                    kept.inodes.len()
                }
                _ => {
                    possible.push(*first);
                    1
                }
            };
            rest = &rest[count..];
        }
        possible
    }

    pub fn drop_inodes(&mut self, run: InodeRun) {
        let dropped = self.inodes.remove(&run.first);
        if let Some((piece, memory)) = dropped.zip(self.memory.as_mut()) {
            memory.shrink(piece.memory_bytes());
        }
    }

    pub fn keep_inodes(&mut self, mut piece: KeptInodes) {
        piece.found.directories.all.shrink_to_fit();
        if self.has_room(piece.memory_bytes()) {
            self.inodes.insert(piece.run.first, Box::new(piece));
        }
    }

    pub fn keep_directories(&mut self, piece: DirectoryPart) {
        if !piece.needs_policies
            && self.has_room(piece.memory_bytes())
            && let Some(first) = piece.inodes.first()
        {
            self.directories.insert(*first, Box::new(piece));
        }
    }

    /// Whether there is room for so many more bytes, which are taken then.
    fn has_room(&mut self, bytes: u64) -> bool {
        let bytes_max = self.bytes_max;
        self.memory
            .as_mut()
            .is_some_and(|memory| memory.bytes() + bytes <= bytes_max && memory.grow(bytes))
    }
}

/// The inodes that may have changed, in order.
fn changed_inodes(
    image: &Image<'_>,
    before: &SharedInputs,
    now: &SharedInputs,
    written: &[Range<u64>],
) -> InodeRuns {
    let layout = &image.layout;
    let inode_size = layout.inode_size() as u64;
    let per_group = layout.inodes_per_group();
    let mut changed: Vec<InodeRun> = before
        .orphans
        .symmetric_difference(&now.orphans)
        .map(|&inode| InodeRun { first: inode, last: inode })
        .collect();
    for group in layout.groups() {
        let before_first = group.get() * per_group;
        let table = &now.tables[group.index()];
        if before.tables[group.index()] != *table {
            let (first, last) = (before_first + 1, before_first + per_group);
            changed.push(InodeRun { first, last });
            continue;
        }
        if !table.is_there {
            continue;
        }
        let start = table.place.get() << layout.log_block_size();
        let end = start + u64::from(per_group) * inode_size;
        let from = written.partition_point(|range| range.end <= start);
        for range in written[from..].iter().take_while(|range| range.start < end) {
            // Below the number of inodes of the group.
            let first = (range.start.max(start) - start) / inode_size;
            let last = (range.end.min(end) - 1 - start) / inode_size;
            let number = |bit: u64| before_first + 1 + bit as u32;
            changed.push(InodeRun { first: number(first), last: number(last) });
        }
    }
    InodeRuns::new(changed)
}
