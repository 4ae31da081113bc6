//! Places for metadata that need more room, and for the blocks of files that are in their way.
//!
//! # State
//! A block of a file moves at most once: where one has moved to, nothing else finds a place any more.

use crate::error::{Refusal, Result};
use crate::image::{Image, used_runs};
use crate::moves::{BlockMove, Moves};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Block maps lead to no block beyond it.
const TARGET_END: u64 = 1 << 32;

/// All groups, from the first of a group's flexible group on.
pub(super) fn from_flexible_group(layout: &Layout, group: GroupNumber) -> Vec<GroupNumber> {
    let start = group.get() - group.get() % layout.groups_per_flex();
    from_group(layout, GroupNumber::new(start)).collect()
}

fn from_group(layout: &Layout, start: GroupNumber) -> impl Iterator<Item = GroupNumber> + use<> {
    let groups = start.get()..layout.group_count();
    groups.chain(0..start.get()).map(GroupNumber::new)
}

/// Where there is room.
pub(super) struct Room {
    old: Layout,
    new: Layout,
    /// What superblocks and descriptors take in addition, in order.
    growths: Vec<Range<u64>>,
    /// The blocks of files that are in the way of that.
    in_the_way: Vec<Range<u64>>,
    /// Bitmaps and inode tables: their ends, by their starts.
    metadata: BTreeMap<u64, u64>,
    /// Where blocks have moved to: ends by starts.
    targets: BTreeMap<u64, u64>,
    /// Old places of metadata, which may share clusters with others: ends by starts.
    released: BTreeMap<u64, u64>,
    moves: Vec<BlockMove>,
}

impl Room {
    pub fn new(image: &Image<'_>, new: &Layout, growths: Vec<Range<u64>>) -> Room {
        let layout = image.layout;
        let metadata = layout.groups().flat_map(|group| image.group_metadata(group));
        Room {
            old: layout,
            new: *new,
            growths,
            in_the_way: Vec::new(),
            metadata: metadata.map(|run| (run.start, run.end)).collect(),
            targets: BTreeMap::new(),
            released: BTreeMap::new(),
            moves: Vec::new(),
        }
    }

    /// Takes the blocks after superblocks and descriptors into use. Returns where metadata start that have to
    /// give way.
    pub fn claim_growths(&mut self, image: &mut Image<'_>) -> Result<BTreeSet<u64>> {
        let mut displaced = BTreeSet::new();
        for growth in self.growths.clone() {
            let Some(group) = self.old.group_of_block(PhysicalBlock::new(growth.start)) else {
                continue;
            };
            let near = self.near(&self.metadata, &growth).filter(|run| run.end > growth.start);
            displaced.extend(near.map(|run| run.start));
            let fixed = self.fixed(group, &[self.old]);
            let bits = self.bits(&growth);
            let used = image.block_bitmap(group)?;
            let is_file = |&bit: &usize| bitmap::test(used, bit) && !bitmap::test(&fixed, bit);
            let files = bits.clone().filter(is_file);
            let files: Vec<_> = files.map(|bit| self.blocks_of(group, bit..bit + 1)).collect();
            files.into_iter().for_each(|run| push(&mut self.in_the_way, run));
            bitmap::set_range(used, bits);
        }
        Ok(displaced)
    }

    /// Finds a place for metadata that leave theirs, of so many blocks, in the first of these groups that has one.
    pub fn replace(
        &mut self,
        image: &mut Image<'_>,
        from: Range<u64>,
        length: u32,
        groups: &[GroupNumber],
        what: &'static str,
    ) -> Result<PhysicalBlock> {
        self.metadata.remove(&from.start);
        if self.old.blocks_per_cluster() > 1 {
            self.released.insert(from.start, from.end);
        } else {
            self.release(image, from)?;
        }
        let clusters = self.old.clusters_for(u64::from(length)) as usize;
        let place = match self.take_free(image, groups, clusters)? {
            Some(place) => place,
            None => self.take_from_files(image, groups, clusters, what)?,
        };
        self.metadata.insert(place.get(), place.get() + u64::from(length));
        Ok(place)
    }

    /// Frees the old place of metadata, except for what superblocks and descriptors have taken.
    fn release(&self, image: &mut Image<'_>, from: Range<u64>) -> Result<()> {
        image.mark(from.clone(), false)?;
        let first = self.growths.partition_point(|growth| growth.end <= from.start);
        for growth in self.growths[first..].iter().take_while(|growth| growth.start < from.end) {
            image.mark(growth.clone(), true)?;
        }
        Ok(())
    }

    fn take_free(
        &self,
        image: &mut Image<'_>,
        groups: &[GroupNumber],
        clusters: usize,
    ) -> Result<Option<PhysicalBlock>> {
        for &group in groups {
            if !may_have(image, group, clusters) {
                continue;
            }
            let end = self.whole_clusters(group);
            let free = image.current_block_bitmap(group)?;
            if let Some(first) = bitmap::find_zero_run(&free, 0..end, clusters) {
                bitmap::set_range(image.block_bitmap(group)?, first..first + clusters);
                return Ok(Some(self.old.block_of_bit(group, first as u32)));
            }
        }
        Ok(None)
    }

    /// Takes the clusters that the fewest blocks of files are in, and moves these away.
    fn take_from_files(
        &mut self,
        image: &mut Image<'_>,
        groups: &[GroupNumber],
        clusters: usize,
        what: &'static str,
    ) -> Result<PhysicalBlock> {
        for &group in groups {
            let fixed = self.fixed(group, &[self.old, self.new]);
            let end = self.whole_clusters(group);
            let used = image.current_block_bitmap(group)?;
            let Some(first) = fewest_used(&used, &fixed, end, clusters) else { continue };
            let taken = first..first + clusters;
            let files: Vec<_> =
                used_runs(&used, taken.clone()).map(|run| self.blocks_of(group, run)).collect();
            bitmap::set_range(image.block_bitmap(group)?, taken);
            self.evacuate(image, &files)?;
            return Ok(self.old.block_of_bit(group, first as u32));
        }
        Err(Refusal::NoSpace { what }.into())
    }

    /// Moves away what is in the way of superblocks and descriptors.
    pub fn evacuate_growths(&mut self, image: &mut Image<'_>) -> Result<()> {
        let files = std::mem::take(&mut self.in_the_way);
        self.evacuate(image, &files)
    }

    /// Moves blocks of files, whole clusters in order, to free ones near them.
    fn evacuate(&mut self, image: &mut Image<'_>, files: &[Range<u64>]) -> Result<()> {
        let mut moves = Vec::new();
        for run in files {
            let Some(group) = self.old.group_of_block(PhysicalBlock::new(run.start)) else {
                continue;
            };
            let mut run = run.clone();
            for target in from_group(&self.old, group) {
                if run.is_empty() {
                    break;
                }
                self.fill(image, target, &mut run, &mut moves)?;
            }
            if !run.is_empty() {
                return Err(Refusal::NoSpace { what: "files that have to move" }.into());
            }
        }
        // What was in free space may have been in use before, and is logged.
        let released = 0..u64::MAX;
        Moves::new(moves.clone()).copy(image, &[released], &mut |_, _| {})?;
        self.moves.extend(moves);
        Ok(())
    }

    /// Gives as many blocks of a run as possible places in a group.
    fn fill(
        &mut self,
        image: &mut Image<'_>,
        group: GroupNumber,
        run: &mut Range<u64>,
        moves: &mut Vec<BlockMove>,
    ) -> Result<()> {
        let end = self.blocks_of(group, 0..self.whole_clusters(group)).end;
        if !may_have(image, group, 1) || end > TARGET_END {
            return Ok(());
        }
        let cluster = u64::from(self.old.blocks_per_cluster());
        let free = image.current_block_bitmap(group)?.into_owned();
        for hole in bitmap::zero_runs(&free, 0..self.whole_clusters(group)) {
            if run.is_empty() {
                break;
            }
            let place = self.blocks_of(group, hole);
            let length = (run.end - run.start).min(place.end - place.start);
            let taken = place.start..place.start + length.next_multiple_of(cluster);
            image.mark(taken.clone(), true)?;
            self.targets.insert(taken.start, taken.end);
            moves.push(BlockMove { from: run.start, to: place.start, length });
            run.start += length;
        }
        Ok(())
    }

    /// Ends with all moves; the bitmaps then show the new places only.
    pub fn finish(mut self, image: &mut Image<'_>) -> Result<Moves> {
        let released = std::mem::take(&mut self.released);
        for (&start, &end) in &released {
            image.mark(start..end, false)?;
        }
        if !released.is_empty() {
            // Others may have shared the clusters.
            for group in self.old.groups() {
                let first = self.old.group_first_block(group).get();
                for layout in [&self.old, &self.new] {
                    let base = first + u64::from(layout.group_base(group).blocks);
                    image.mark(first..base, true)?;
                }
            }
            for (&start, &end) in &self.metadata {
                image.mark(start..end, true)?;
            }
        }
        self.moves.sort_by_key(|one| one.from);
        Ok(Moves::new(self.moves))
    }

    /// Clusters of a group that aren't cut by the end of the image.
    fn whole_clusters(&self, group: GroupNumber) -> usize {
        (self.old.group_block_count(group) >> self.old.log_cluster_ratio()) as usize
    }

    /// The bits of blocks of one group.
    fn bits(&self, blocks: &Range<u64>) -> Range<usize> {
        let bit = |block: u64| {
            let offset = block - u64::from(self.old.first_data_block());
            let within = offset % u64::from(self.old.blocks_per_group());
            (within >> self.old.log_cluster_ratio()) as usize
        };
        bit(blocks.start)..bit(blocks.end - 1) + 1
    }

    fn blocks_of(&self, group: GroupNumber, bits: Range<usize>) -> Range<u64> {
        let first = self.old.group_first_block(group).get();
        let block = |bit: usize| first + ((bit as u64) << self.old.log_cluster_ratio());
        block(bits.start)..block(bits.end).min(self.old.blocks_count())
    }

    /// Runs of these metadata that start in front of the end of some blocks, and may reach into them.
    fn near<'r>(
        &self,
        runs: &'r BTreeMap<u64, u64>,
        blocks: &Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<'r> {
        let longest = self.new.inode_table_blocks().max(self.old.inode_table_blocks());
        let start = blocks.start.saturating_sub(u64::from(longest));
        runs.range(start..blocks.end).map(|(&start, &end)| start..end)
    }

    /// What can't move in a group, as a bitmap: metadata, their old places, and blocks that have moved there.
    fn fixed(&self, group: GroupNumber, layouts: &[Layout]) -> Vec<u8> {
        let mut bits = vec![0; self.old.block_size()];
        let first = self.old.group_first_block(group).get();
        let all = first..first + u64::from(self.old.group_block_count(group));
        let targets = self.targets.range(all.clone()).map(|(&start, &end)| start..end);
        let bases =
            layouts.iter().map(|layout| first..first + u64::from(layout.group_base(group).blocks));
        let metadata = self.near(&self.metadata, &all).chain(self.near(&self.released, &all));
        for run in metadata.chain(targets).chain(bases) {
            let part = run.start.max(all.start)..run.end.min(all.end);
            if !part.is_empty() {
                bitmap::set_range(&mut bits, self.bits(&part));
            }
        }
        bits
    }
}

/// Whether so many clusters may be free in a group.
fn may_have(image: &Image<'_>, group: GroupNumber, clusters: usize) -> bool {
    image.block_bitmaps.contains_key(&group.get())
        || image.groups[group.index()].free_clusters_count as usize >= clusters
}

/// Adds a run after others, or to the last one.
fn push(runs: &mut Vec<Range<u64>>, run: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

/// Where so many bits start of which none is fixed and the fewest are in use.
fn fewest_used(used: &[u8], fixed: &[u8], end: usize, count: usize) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    // Bits in use among the last ones, and how many have come since one that is fixed.
    let (mut in_use, mut length) = (0, 0);
    for bit in 0..end {
        if bitmap::test(fixed, bit) {
            (in_use, length) = (0, 0);
            continue;
        }
        length += 1;
        in_use += usize::from(bitmap::test(used, bit));
        if length > count {
            length = count;
            in_use -= usize::from(bitmap::test(used, bit - count));
        }
        if length == count && best.is_none_or(|(fewest, _)| in_use < fewest) {
            best = Some((in_use, bit + 1 - count));
        }
    }
    best.map(|(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_avoids_what_is_fixed_and_takes_the_emptiest() {
        let used = [0b1111_0111, 0b0011_1010];
        let fixed = [0b0000_0100, 0b0000_0000];
        assert_eq!(fewest_used(&used, &fixed, 16, 3), Some(8));
        assert_eq!(fewest_used(&used, &fixed, 16, 13), Some(3));
        assert_eq!(fewest_used(&used, &fixed, 16, 14), None);
        assert_eq!(fewest_used(&used, &fixed, 16, 2), Some(14));
    }
}
