//! Group descriptors and bitmaps.
//!
//! A bitmap with a right checksum is copied. Any other may have been overwritten with text, so it is compared with what
//! files use, which is text to nobody: a mistake in a bitmap leaves a run of wrong bits, but text has wrong bits
//! everywhere. The bitmaps of some groups are compared at once, so that memory is bounded.

use super::Scrambler;
use super::records::count_nonzero;
use crate::error::Result;
use crate::map::{MapPart, walk_map};
use crate::metadata::copier::BlockCopier;
use drystone_ext4_format::bitmap_checksum::{
    block_bitmap_checksum, check_block_bitmap, check_inode_bitmap, inode_bitmap_checksum,
};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Groups whose bitmaps are compared at once.
const COMPARED_GROUPS_MAX: usize = 1 << 11;

/// Runs of wrong bits in a word that a mistake leaves. Text leaves more.
const WRONG_RUNS_MAX: u32 = 2;

/// The checksums of a group's bitmaps, before and after.
#[derive(Clone, Copy, Default)]
struct BitmapChecksums {
    block: (u32, u32),
    inode: (u32, u32),
}

/// What is known of the groups' bitmaps.
#[derive(Default)]
pub(super) struct CopiedBitmaps(HashMap<u32, BitmapChecksums>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum BitmapKind {
    Blocks,
    Inodes,
}

/// CopiedBitmaps of a group that aren't known to be right, and what they should be.
struct Compared {
    descriptor: GroupDescriptor,
    kinds: Vec<BitmapKind>,
    blocks: Vec<u8>,
    inodes: Vec<u8>,
}

impl Scrambler<'_, '_> {
    /// Copies the bitmaps of all groups.
    pub(super) fn bitmaps(&self, copier: &mut BlockCopier<'_, '_>) -> Result<CopiedBitmaps> {
        let (image, layout) = (self.image, &self.image.layout);
        let mut bitmaps = CopiedBitmaps::default();
        let mut compared = BTreeMap::new();
        image.each_descriptor(&mut |group, descriptor, _| {
            let mut kinds = Vec::new();
            for kind in [BitmapKind::Blocks, BitmapKind::Inodes] {
                if self.has_bitmap(descriptor, kind) {
                    let trusted =
                        self.copy_trusted(copier, group, descriptor, kind, &mut bitmaps)?;
                    if !trusted {
                        kinds.push(kind);
                    }
                }
            }
            if !kinds.is_empty() {
                let empty = || vec![0; layout.block_size()];
                let (descriptor, blocks, inodes) = (descriptor.clone(), empty(), empty());
                compared.insert(group.get(), Compared { descriptor, kinds, blocks, inodes });
            }
            if compared.len() == COMPARED_GROUPS_MAX {
                self.compare(copier, &mut bitmaps, std::mem::take(&mut compared))?;
            }
            Ok(true)
        })?;
        if !compared.is_empty() {
            self.compare(copier, &mut bitmaps, compared)?;
        }
        Ok(bitmaps)
    }

    /// Whether a bitmap was ever written: otherwise anything may lie in its place.
    fn has_bitmap(&self, descriptor: &GroupDescriptor, kind: BitmapKind) -> bool {
        let flag = match kind {
            BitmapKind::Blocks => GroupFlags::BLOCK_UNINIT,
            BitmapKind::Inodes => GroupFlags::INODE_UNINIT,
        };
        let knows_flags = self.image.layout.checksums() != Checksums::None;
        !(knows_flags && descriptor.flags.contains(flag))
            && self.image.layout.contains_blocks(kind.place(descriptor), 1)
    }

    /// Copies a bitmap with a right checksum; whether there was one.
    fn copy_trusted(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        kind: BitmapKind,
        bitmaps: &mut CopiedBitmaps,
    ) -> Result<bool> {
        let layout = &self.image.layout;
        let place = kind.place(descriptor);
        let Ok(mut bits) = self.image.read_block(place) else { return Ok(false) };
        let is_right = match kind {
            BitmapKind::Blocks => check_block_bitmap(&bits, group, descriptor, layout),
            BitmapKind::Inodes => check_inode_bitmap(&bits, group, descriptor, layout),
        };
        if layout.checksum_seed().is_none() || is_right.is_err() {
            return Ok(false);
        }
        self.write_bitmap(copier, place, kind, &mut bits)?;
        bitmaps.note(group, kind, (kind.stored(descriptor), self.computed(kind, &bits)));
        Ok(true)
    }

    fn computed(&self, kind: BitmapKind, bits: &[u8]) -> u32 {
        match kind {
            BitmapKind::Blocks => block_bitmap_checksum(bits, &self.new),
            BitmapKind::Inodes => inode_bitmap_checksum(bits, &self.new),
        }
    }

    fn write_bitmap(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        place: PhysicalBlock,
        kind: BitmapKind,
        bits: &mut [u8],
    ) -> Result<()> {
        let layout = &self.image.layout;
        let used = match kind {
            BitmapKind::Blocks => layout.clusters_per_group(),
            BitmapKind::Inodes => layout.inodes_per_group(),
        };
        // After the last bit are ones; anything else is a mistake.
        for byte in bits.iter_mut().skip(used as usize / 8) {
            *byte = match *byte {
                0 | u8::MAX => *byte,
                _ => u8::MAX - 1,
            };
        }
        for range in copier.claim(place.get(), 1) {
            copier.copy_range(range, &mut |_, bytes| {
                bytes.copy_from_slice(bits);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Copies bitmaps without a right checksum, as far as they agree with what files use.
    fn compare(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        bitmaps: &mut CopiedBitmaps,
        mut compared: BTreeMap<u32, Compared>,
    ) -> Result<()> {
        self.mark_used(&mut compared)?;
        for (number, group) in compared {
            for kind in group.kinds {
                let place = kind.place(&group.descriptor);
                let Ok(mut bits) = self.image.read_block(place) else { continue };
                let expected = match kind {
                    BitmapKind::Blocks => &group.blocks,
                    BitmapKind::Inodes => &group.inodes,
                };
                self.add_unclear(keep_mistakes(&mut bits, expected));
                self.write_bitmap(copier, place, kind, &mut bits)?;
                // It was wrong, if there was any.
                let checksum = (kind.stored(&group.descriptor), !self.computed(kind, &bits));
                bitmaps.note(GroupNumber::new(number), kind, checksum);
            }
        }
        Ok(())
    }

    /// Marks what the fixed metadata and the files of the image use.
    fn mark_used(&self, compared: &mut BTreeMap<u32, Compared>) -> Result<()> {
        let (image, layout) = (self.image, &self.image.layout);
        for (&number, group) in compared.iter_mut() {
            let number = GroupNumber::new(number);
            let base = u64::from(layout.group_base(number).blocks);
            let first = layout.group_first_block(number).get();
            mark_group(layout, number, &mut group.blocks, &(first..first + base));
            // After the end of the last group.
            let clusters = layout.group_cluster_count(number) as usize;
            let end = group.blocks.len() * 8;
            bitmap::set_range(&mut group.blocks, clusters.min(end)..end);
            let inodes = layout.inodes_per_group() as usize;
            bitmap::set_range(&mut group.inodes, inodes.min(end)..end);
        }
        if let Some(block) = image.superblock.mmp_block() {
            mark_blocks(layout, compared, block, 1);
        }
        image.each_descriptor(&mut |_, descriptor, _| {
            mark_blocks(layout, compared, descriptor.block_bitmap, 1);
            mark_blocks(layout, compared, descriptor.inode_bitmap, 1);
            let table_blocks = layout.inode_table_blocks();
            mark_blocks(layout, compared, descriptor.inode_table, table_blocks.into());
            Ok(true)
        })?;
        for number in 1..layout.first_inode().get() {
            mark_inode(layout, compared, number.into());
        }
        image.each_inode(&mut |stored| {
            let inode = &stored.inode;
            if inode.links_count == 0 && !image.serves_image(inode.number) {
                return Ok(true);
            }
            mark_inode(layout, compared, inode.number);
            if let Some(block) = inode.attribute_block {
                mark_blocks(layout, compared, block, 1);
            }
            walk_map(image, inode, &mut |part| {
                match part {
                    MapPart::Node { block, .. } => mark_blocks(layout, compared, block, 1),
                    MapPart::Run(run) => {
                        mark_blocks(layout, compared, run.physical, run.length.into());
                    }
                    MapPart::Problem(_) => {}
                }
                Ok(())
            })?;
            Ok(true)
        })
    }

    /// Rewrites a block of descriptors from a group on.
    pub(super) fn descriptors(&self, bitmaps: &CopiedBitmaps, first: u32, bytes: &mut [u8]) {
        let layout = &self.image.layout;
        let size = layout.descriptor_size();
        let groups = first..layout.group_count();
        let mut end = 0;
        for (group, bytes) in groups.zip(bytes.chunks_exact_mut(size)) {
            self.descriptor(bitmaps, GroupNumber::new(group), bytes);
            end += size;
        }
        let rest = &mut bytes[end..];
        self.add_unclear(count_nonzero(rest));
        rest.fill(0);
    }

    fn descriptor(&self, bitmaps: &CopiedBitmaps, group: GroupNumber, bytes: &mut [u8]) {
        let layout = &self.image.layout;
        // Its length is that of the layout.
        let Ok(old) = GroupDescriptor::read(bytes, layout) else { return };
        if bytes.iter().all(|&byte| byte == 0) {
            return;
        }
        let is_right = GroupDescriptor::check_checksum(bytes, group, layout).is_ok();
        let is_verified = is_right && layout.checksums() != Checksums::None;
        let known = bitmaps.0.get(&group.get()).copied().unwrap_or_default();
        let checksum = |stored: u32, (before, after): (u32, u32)| match stored {
            _ if layout.checksum_seed().is_none() => 0,
            0 => 0,
            stored if stored == before => after,
            // Of an older bitmap, or wrong.
            _ => !after,
        };
        let limited = |count: u32, limit: u32| {
            if is_verified || count <= limit { count } else { limit.saturating_add(1) }
        };
        let clusters = layout.group_cluster_count(group);
        let inodes = layout.inodes_per_group();
        let table = u64::from(layout.inode_table_blocks());
        let flags = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_ZEROED;
        let new = GroupDescriptor {
            block_bitmap: self.possible(old.block_bitmap, 1),
            inode_bitmap: self.possible(old.inode_bitmap, 1),
            inode_table: self.possible(old.inode_table, table),
            exclude_bitmap: PhysicalBlock::new(0),
            free_clusters_count: limited(old.free_clusters_count, clusters),
            free_inodes_count: limited(old.free_inodes_count, inodes),
            used_directories_count: limited(old.used_directories_count, inodes),
            unused_inodes_count: limited(old.unused_inodes_count, inodes),
            flags: if is_verified { old.flags } else { old.flags & flags },
            block_bitmap_checksum: checksum(old.block_bitmap_checksum, known.block),
            inode_bitmap_checksum: checksum(old.inode_bitmap_checksum, known.inode),
        };
        bytes.fill(0);
        new.encode_into(bytes, group, if is_right { &self.new } else { &self.wrong });
    }

    /// A place that lies in the image, or else one that doesn't.
    fn possible(&self, start: PhysicalBlock, count: u64) -> PhysicalBlock {
        let layout = &self.image.layout;
        if layout.contains_blocks(start, count) {
            start
        } else {
            PhysicalBlock::new(layout.blocks_count())
        }
    }
}

impl BitmapKind {
    fn place(self, descriptor: &GroupDescriptor) -> PhysicalBlock {
        match self {
            Self::Blocks => descriptor.block_bitmap,
            Self::Inodes => descriptor.inode_bitmap,
        }
    }

    fn stored(self, descriptor: &GroupDescriptor) -> u32 {
        match self {
            Self::Blocks => descriptor.block_bitmap_checksum,
            Self::Inodes => descriptor.inode_bitmap_checksum,
        }
    }
}

impl CopiedBitmaps {
    fn note(&mut self, group: GroupNumber, kind: BitmapKind, checksum: (u32, u32)) {
        let known = self.0.entry(group.get()).or_default();
        match kind {
            BitmapKind::Blocks => known.block = checksum,
            BitmapKind::Inodes => known.inode = checksum,
        }
    }
}

/// Marks blocks in the bitmaps of their groups.
fn mark_blocks(
    layout: &Layout,
    compared: &mut BTreeMap<u32, Compared>,
    start: PhysicalBlock,
    count: u64,
) {
    let range = start.get()..start.get().saturating_add(count);
    let group_of = |block: u64| layout.group_of_block(PhysicalBlock::new(block));
    let last = range.end.saturating_sub(1).max(range.start);
    let (Some(first), Some(last)) = (group_of(range.start), group_of(last)) else { return };
    for (&number, group) in compared.range_mut(first.get()..=last.get()) {
        mark_group(layout, GroupNumber::new(number), &mut group.blocks, &range);
    }
}

/// Marks an inode in the bitmap of its group.
fn mark_inode(layout: &Layout, compared: &mut BTreeMap<u32, Compared>, number: InodeNumber) {
    if let Ok((group, bit)) = layout.bit_of_inode(number)
        && let Some(group) = compared.get_mut(&group.get())
    {
        bitmap::set(&mut group.inodes, bit as usize);
    }
}

/// Marks the part of a range of blocks that lies in a group.
fn mark_group(layout: &Layout, group: GroupNumber, bits: &mut [u8], range: &Range<u64>) {
    let first = layout.group_first_block(group).get();
    let end = first + u64::from(layout.group_block_count(group));
    let (start, behind) = (range.start.max(first), range.end.min(end));
    if start >= behind {
        return;
    }
    let ratio = layout.log_cluster_ratio();
    let bit = |block: u64| ((block - first) >> ratio) as usize;
    let last = (bit(behind - 1) + 1).min(bits.len() * 8);
    bitmap::set_range(bits, bit(start).min(last)..last);
}

/// Replaces words of a bitmap that differ from what is expected in more than a mistake does. They still differ in a bit.
/// Returns how many bytes were replaced.
fn keep_mistakes(bits: &mut [u8], expected: &[u8]) -> u64 {
    let mut replaced = 0;
    for (word, expected) in bits.as_chunks_mut::<8>().0.iter_mut().zip(expected.as_chunks().0) {
        let (found, expected) = (u64::from_le_bytes(*word), u64::from_le_bytes(*expected));
        let wrong = found ^ expected;
        let runs = (wrong & !(wrong << 1)).count_ones();
        if runs > WRONG_RUNS_MAX {
            // Its first wrong bit.
            *word = (expected ^ wrong & wrong.wrapping_neg()).to_le_bytes();
            replaced += word.len() as u64;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_stay_and_text_goes() {
        let expected = [0xff; 16];
        let mut bits = expected;
        bits[1] = 0;
        bits[9] = 0xfb;
        assert_eq!(keep_mistakes(&mut bits, &expected), 0);
        assert_eq!((bits[1], bits[9]), (0, 0xfb));
        let mut text = *b"a secret, secret";
        assert_eq!(keep_mistakes(&mut text, &expected), 16);
        assert_eq!(text.iter().map(|byte| byte.count_zeros()).sum::<u32>(), 2);
    }
}
