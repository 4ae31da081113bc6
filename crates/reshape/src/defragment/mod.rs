//! Moves the blocks of each file together.
//!
//! A defragmentation is a series of rounds. Each finds the files that are fragmented, gives those with the most
//! fragments new places, `places` of free space, and moves them. What a round frees is room for the next.
//!
//! A file moves as a whole, and only if it has fewer fragments afterwards. Nodes of extent trees and block maps
//! stay where they are.

mod places;

use crate::error::Result;
use crate::image::{Image, ReshapeDevice};
use crate::moves::{BlockMove, Moves};
use crate::progress::ReshapeProgress;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::extent::entries_per_block;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{GroupNumber, InodeNumber};
use places::{FreePlaces, Wanted};
use std::cmp::Reverse;
use std::ops::Range;

/// A defragmentation ends after this many rounds, whatever is left.
const ROUNDS_MAX: u32 = 8;

/// Levels of nodes that an extent tree has at most.
const NODE_LEVELS_MAX: u64 = 5;

/// Fragments of this size on average are read as fast as one.
const LARGE_BYTES: u64 = 32 << 20;

/// What was fragmented, and is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Files and directories that were in several fragments.
    pub files_before: u64,
    /// Those that are still.
    pub files: u64,
    /// The fragments of all files and directories before.
    pub fragments_before: u64,
    /// Their fragments now.
    pub fragments: u64,
    /// Bytes that were moved.
    pub bytes_moved: u64,
}

/// A file, and where its data is: runs of whole clusters, in its order.
struct FragmentedFile {
    inode: InodeNumber,
    fragments: Vec<Range<u64>>,
    /// Extents that map it at most.
    extents: u64,
    /// The end of what its map can lead to.
    limit: u64,
    /// Boot loaders know where such a file is.
    is_fixed: bool,
}

impl FragmentedFile {
    fn blocks(&self) -> u64 {
        self.fragments.iter().map(|run| run.end - run.start).sum()
    }
}

/// What a look at all files has found.
#[derive(Default)]
struct Fragmentation {
    files: Vec<FragmentedFile>,
    fragments: u64,
}

/// Moves the blocks of each file of the image on `device` together, as far as free space allows. `now` is in seconds
/// since 1970.
///
/// # Errors
/// A refusal, or an error of the device. The device has to be rolled back.
pub fn defragment(
    device: &dyn ReshapeDevice,
    now: u64,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<Defragmented> {
    let mut image = Image::open(device)?;
    let mut report = Defragmented::default();
    for round in 0..=ROUNDS_MAX {
        let found = find(&mut image, progress)?;
        if round == 0 {
            report.files_before = found.files.len() as u64;
            report.fragments_before = found.fragments;
        }
        (report.files, report.fragments) = (found.files.len() as u64, found.fragments);
        if round == ROUNDS_MAX {
            break;
        }
        let moves = plan(&mut image, found.files)?;
        if moves.blocks() == 0 {
            break;
        }
        if round == 0 {
            image.note_write(now)?;
        }
        report.bytes_moved += moves.blocks() << image.layout.log_block_size();
        // A later round writes where files and their nodes were: a rollback needs what is there.
        let released = if round == 0 { 0..0 } else { 0..u64::MAX };
        carry_out(&mut image, &moves, released, progress)?;
    }
    Ok(report)
}

/// Looks at the data of all files.
fn find(image: &mut Image<'_>, progress: &mut dyn FnMut(ReshapeProgress)) -> Result<Fragmentation> {
    let layout = image.layout;
    let superblock = &image.superblock;
    // They serve the image.
    let hidden = [
        superblock.journal_inode(),
        superblock.orphan_file_inode(),
        superblock.user_quota_inode(),
        superblock.group_quota_inode(),
        superblock.project_quota_inode(),
    ];
    let mut found = Fragmentation::default();
    let total = u64::from(layout.group_count());
    for group in layout.groups() {
        let used = image.used_inodes(group)?;
        let count = match used.last() {
            Some(last) => layout.bit_of_inode(*last)?.1 + 1,
            None => 0,
        };
        let table = image.read_inodes(group, 0..count)?;
        for number in used {
            let is_reserved = number < layout.first_inode() && number != InodeNumber::ROOT;
            if is_reserved || hidden.contains(&Some(number)) {
                continue;
            }
            let start = layout.bit_of_inode(number)?.1 as usize * layout.inode_size();
            let inode = Inode::read(&table[start..][..layout.inode_size()], number, &layout)?;
            let (fragments, extents) = fragments_of(image, &inode)?;
            found.fragments += fragments.len() as u64;
            if fragments.len() > 1 {
                let has_pointers = !inode.flags.contains(InodeFlags::EXTENTS);
                let limit = if has_pointers { 1 << 32 } else { u64::MAX };
                let is_fixed = inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
                let inode = number;
                found.files.push(FragmentedFile { inode, fragments, extents, limit, is_fixed });
            }
        }
        let done = u64::from(group.get()) + 1;
        progress(ReshapeProgress { step: "looking for fragments", done, total });
    }
    Ok(found)
}

/// The data of an inode in whole clusters, as blocks of the same cluster never part; and the number of runs in its map.
fn fragments_of(image: &mut Image<'_>, inode: &Inode) -> Result<(Vec<Range<u64>>, u64)> {
    if !inode.has_block_mapping() {
        return Ok((Vec::new(), 0));
    }
    let layout = image.layout;
    let (first, ratio) =
        (u64::from(layout.first_data_block()), u64::from(layout.blocks_per_cluster()));
    let cluster_start = |block: u64| (block - first) / ratio * ratio + first;
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    let runs = Rewriter::new(image, layout, &moves, &numbers).data_runs(inode)?;
    let mut fragments: Vec<Range<u64>> = Vec::new();
    for run in &runs {
        let start = run.physical.get();
        let end = (cluster_start(run.end() - 1) + ratio).min(layout.blocks_count());
        match fragments.last_mut() {
            Some(last) if (last.start..=last.end).contains(&cluster_start(start)) => {
                last.end = last.end.max(end);
            }
            _ => fragments.push(cluster_start(start)..end),
        }
    }
    Ok((fragments, runs.len() as u64))
}

/// Gives files with many fragments new places. The bitmaps show the new ones in use, and the old ones still.
fn plan(image: &mut Image<'_>, mut files: Vec<FragmentedFile>) -> Result<Moves> {
    let layout = image.layout;
    let (first, ratio) =
        (u64::from(layout.first_data_block()), u64::from(layout.blocks_per_cluster()));
    let per_node = u64::from(entries_per_block(layout.block_size()));
    let mut places = FreePlaces::of(image)?;
    let mut moves = Vec::new();
    // Blocks for nodes of extent trees that grow.
    let mut kept = 0;
    files.sort_by_key(|file| (Reverse(file.fragments.len()), file.inode));
    for file in files {
        let (blocks, count) = (file.blocks(), file.fragments.len());
        let is_large = blocks / count as u64 >= LARGE_BYTES >> layout.log_block_size();
        // The last cluster of an image may be cut.
        let is_cut = file.fragments.iter().any(|run| (run.end - first) % ratio != 0);
        if is_large || is_cut || file.is_fixed {
            continue;
        }
        let group = layout.group_of_inode(file.inode)?;
        let near = layout.group_first_block(group).get();
        let near = near..near + u64::from(layout.blocks_per_group());
        // Extents are cut where a place ends.
        let nodes = ((file.extents + count as u64) / per_node + NODE_LEVELS_MAX) * ratio;
        let limit = file.limit;
        let wanted = Wanted { blocks, near, limit, count_max: count - 1, nodes };
        let Some(targets) = places.take(&wanted, kept) else { continue };
        kept += if targets.len() > 1 { nodes } else { 0 };
        for target in &targets {
            image.mark(target.clone(), true)?;
        }
        assign(&file.fragments, &targets, &mut moves);
    }
    moves.sort_by_key(|one: &BlockMove| one.from);
    Ok(Moves::new(moves))
}

/// Moves runs of blocks, in their order, to places that hold as many.
fn assign(runs: &[Range<u64>], places: &[Range<u64>], moves: &mut Vec<BlockMove>) {
    let mut places = places.iter().cloned();
    let mut place = 0..0;
    for run in runs {
        let mut from = run.start;
        while from < run.end {
            if place.is_empty() {
                let Some(next) = places.next() else { return };
                place = next;
            }
            let length = (run.end - from).min(place.end - place.start);
            moves.push(BlockMove { from, to: place.start, length });
            from += length;
            place.start += length;
        }
    }
}

/// Copies what moves, corrects the maps, and frees the old places. What was in `released` is logged.
fn carry_out(
    image: &mut Image<'_>,
    moves: &Moves,
    released: Range<u64>,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    moves.copy(image, &[released], &mut |done, total| {
        progress(ReshapeProgress { step: "moving blocks", done, total });
    })?;
    let numbers = InodeNumbers::default();
    let layout = image.layout;
    let total = u64::from(layout.group_count());
    let mut rewriter = Rewriter::new(image, layout, moves, &numbers);
    for group in 0..layout.group_count() {
        rewriter.group(GroupNumber::new(group))?;
        let done = u64::from(group) + 1;
        progress(ReshapeProgress { step: "correcting inodes", done, total });
    }
    rewriter.finish()?;
    for run in moves.sources() {
        image.mark(run, false)?;
    }
    image.store(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_fill_places_in_their_order() {
        let mut moves = Vec::new();
        assign(&[100..103, 50..54], &[10..12, 20..25], &mut moves);
        let expected = [(100, 10, 2), (102, 20, 1), (50, 21, 4)];
        let expected = expected.map(|(from, to, length)| BlockMove { from, to, length });
        assert_eq!(moves, expected);
    }
}
