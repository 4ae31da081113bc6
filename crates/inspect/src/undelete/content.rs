//! Finds the blocks of a deleted file: walks its extent tree or block map, whose nodes may have been overwritten.
//!
//! A node on the device is used if it still belongs to the file: if its checksum says so, or, without checksums, if its
//! block is free and looks like a node. Otherwise a copy in the log is used. If fewer blocks are found than the inode
//! counts, the walk is repeated with the copies in the log first.

use super::log::JournalLog;
use super::versions::has_sound_root;
use crate::image::InspectedImage;
use drystone_ext4_format::block_map::{self, ROOT_POINTERS};
use drystone_ext4_format::extent::{
    DEPTH_MAX, Extent, ExtentNode, NodeExpectation, NodePlace, check_checksum,
};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, LogicalBlock, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// How often a block is read as a node. Several files may have had it one after the other, but in a crafted image all
/// inodes could lead to the same nodes.
const USES_MAX: u8 = 2;
/// How many copies of a node are tried.
const COPIES_MAX: usize = 32;

/// The bitmaps of the image. The last one that was used is cached.
pub(super) struct Bitmaps<'a, 'd> {
    image: &'a InspectedImage<'d>,
    kept: Option<(GroupNumber, GroupBits)>,
}

/// The bits of a group that are in use.
enum GroupBits {
    /// Those of the bitmap.
    Stored(Vec<u8>),
    /// Only the blocks at its start: the bitmap was never written.
    StartOnly(u32),
    /// The bitmap can't be read.
    Unknown,
}

impl<'a, 'd> Bitmaps<'a, 'd> {
    pub fn new(image: &'a InspectedImage<'d>) -> Self {
        Self { image, kept: None }
    }

    /// Whether a block is free.
    pub fn is_free(&mut self, block: PhysicalBlock) -> bool {
        let end = block.get().saturating_add(1);
        !self.free_within(block.get()..end).is_empty()
    }

    /// The free parts of a range.
    pub fn free_within(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let layout = &self.image.layout;
        let (mut at, mut free) = (range.start, Vec::new());
        while at < range.end {
            let Some((group, first)) = layout.bit_of_block(PhysicalBlock::new(at)) else { break };
            let start = layout.group_first_block(group).get();
            let group_end = start + u64::from(layout.group_block_count(group));
            let end = group_end.min(range.end);
            let Some((_, last)) = layout.bit_of_block(PhysicalBlock::new(end - 1)) else { break };
            match self.of_group(group) {
                GroupBits::Stored(bits) => {
                    let bits_asked = first as usize..last as usize + 1;
                    for zeros in bitmap::zero_runs(bits, bits_asked) {
                        // The number of a bit in a group fits 32 bits.
                        let from = layout.block_of_bit(group, zeros.start as u32).get();
                        let to = layout.block_of_bit(group, zeros.end as u32).get();
                        free.push(from.max(at)..to.min(end));
                    }
                }
                GroupBits::StartOnly(blocks) => {
                    let from = at.max(start + u64::from(*blocks));
                    free.extend((from < end).then_some(from..end));
                }
                GroupBits::Unknown => {}
            }
            at = end;
        }
        free
    }

    fn of_group(&mut self, group: GroupNumber) -> &GroupBits {
        let kept = self.kept.take().filter(|(kept, _)| *kept == group);
        let bits = kept.map_or_else(|| self.read(group), |(_, bits)| bits);
        &self.kept.insert((group, bits)).1
    }

    /// Whether an inode is in use.
    pub fn has_inode(&self, inode: &Inode) -> bool {
        let Ok((group, bit)) = self.image.layout.bit_of_inode(inode.number) else { return false };
        let Ok((descriptor, _)) = self.image.descriptor(group) else { return false };
        !descriptor.flags.contains(GroupFlags::INODE_UNINIT)
            && (self.image.read_block(descriptor.inode_bitmap))
                .is_ok_and(|bits| bitmap::test(&bits, bit as usize))
    }

    fn read(&self, group: GroupNumber) -> GroupBits {
        let Ok((descriptor, bytes)) = self.image.descriptor(group) else {
            return GroupBits::Unknown;
        };
        let is_checked = GroupDescriptor::check_checksum(&bytes, group, &self.image.layout).is_ok();
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) && is_checked {
            return GroupBits::StartOnly(self.image.layout.group_base(group).blocks);
        }
        self.image.read_block(descriptor.block_bitmap).map_or(GroupBits::Unknown, GroupBits::Stored)
    }
}

/// An extent tree or block map, as far as it could be followed.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowedMap {
    /// The runs of the file's blocks, in the order of the file.
    pub runs: Vec<Extent>,
    /// How many blocks were found, nodes included.
    pub found: u64,
    /// Whether a part of it couldn't be followed.
    pub has_gap: bool,
}

/// Walks extent trees and block maps of deleted files.
pub(super) struct MapReader<'a, 'd> {
    image: &'a InspectedImage<'d>,
    log: &'a JournalLog,
    pub bitmaps: Bitmaps<'a, 'd>,
    /// How often each block was read as a node.
    uses: HashMap<u64, u8>,
}

impl<'a, 'd> MapReader<'a, 'd> {
    pub fn new(image: &'a InspectedImage<'d>, log: &'a JournalLog) -> Self {
        Self { image, log, bitmaps: Bitmaps::new(image), uses: HashMap::new() }
    }

    pub fn layout(&self) -> &'a Layout {
        &self.image.layout
    }

    /// Follows the map of an inode that counts `blocks` blocks. `is_orphan`: the blocks are still its own.
    pub fn follow(&mut self, inode: &Inode, blocks: u64, is_orphan: bool) -> FollowedMap {
        if !inode.has_block_mapping() || !has_sound_root(self.image, inode) {
            return FollowedMap { has_gap: true, ..FollowedMap::default() };
        }
        let from_disk = self.attempt(inode, is_orphan, false);
        if from_disk.found >= blocks && !from_disk.has_gap {
            return from_disk;
        }
        let from_log = self.attempt(inode, is_orphan, true);
        if from_log.found > from_disk.found { from_log } else { from_disk }
    }

    fn attempt(&mut self, inode: &Inode, is_orphan: bool, log_first: bool) -> FollowedMap {
        let mut walk = MapWalk {
            reader: self,
            inode,
            is_orphan,
            log_first,
            visited: HashSet::new(),
            map: FollowedMap::default(),
        };
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let place = NodePlace::root(inode.number);
            walk.extents(&inode.block_area, place, &NodeExpectation::ROOT, DEPTH_MAX + 1);
        } else {
            for index in 0..ROOT_POINTERS as u32 {
                let layout = &walk.reader.image.layout;
                if let Some(logical) = block_map::logical_of_root_pointer(index, layout) {
                    let levels = block_map::levels_of_root_pointer(index);
                    walk.pointer(&inode.block_area, index, None, levels, logical);
                }
            }
        }
        let mut map = walk.map;
        map.found += u64::from(inode.attribute_block.is_some());
        map.runs.sort_by_key(|run| run.logical.get());
        map
    }
}

/// One walk through a map.
struct MapWalk<'w, 'a, 'd> {
    reader: &'w mut MapReader<'a, 'd>,
    inode: &'w Inode,
    is_orphan: bool,
    log_first: bool,
    visited: HashSet<u64>,
    map: FollowedMap,
}

impl MapWalk<'_, '_, '_> {
    fn add(&mut self, run: Extent) {
        self.map.found += u64::from(run.length);
        run.append_to(&mut self.map.runs);
    }

    /// A node for which `is_sound` holds: the one on the device if it may be the file's, or else the newest copy.
    fn node(
        &mut self,
        block: PhysicalBlock,
        may_be_on_disk: bool,
        is_sound: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let MapReader { image, log, uses, .. } = &mut *self.reader;
        let count = uses.entry(block.get()).or_insert(0);
        if *count >= USES_MAX || !self.visited.insert(block.get()) {
            self.map.has_gap = true;
            return None;
        }
        *count += 1;
        let on_disk = || {
            let bytes = may_be_on_disk.then(|| image.read_block(block).ok()).flatten();
            bytes.filter(|bytes| is_sound(bytes))
        };
        let in_log = || {
            let copies = log.copies_of(block).iter().take(COPIES_MAX);
            copies.filter_map(|copy| log.read_copy(image, copy)).find(|bytes| is_sound(bytes))
        };
        let found =
            if self.log_first { in_log().or_else(on_disk) } else { on_disk().or_else(in_log) };
        self.map.found += u64::from(found.is_some());
        self.map.has_gap |= found.is_none();
        found
    }

    fn extents(
        &mut self,
        bytes: &[u8],
        place: NodePlace,
        expectation: &NodeExpectation,
        depth_above: u16,
    ) {
        let layout = self.reader.image.layout;
        let node = ExtentNode::check(bytes, place, expectation, &layout);
        let Some(node) = node.ok().filter(|node| node.depth() < depth_above) else {
            self.map.has_gap = true;
            return;
        };
        for extent in node.extents() {
            self.add(extent);
        }
        let (number, seed) = (self.inode.number, self.inode.seed(&layout));
        let indexes: Vec<_> = node.indexes().collect();
        for (position, index) in indexes.iter().enumerate() {
            let next = indexes.get(position + 1).map(|next| next.logical.as_u64());
            let end = next.unwrap_or_else(|| expectation.logical_end());
            let below = NodeExpectation::child(node.depth() - 1, index.logical, end);
            let place = NodePlace::block(number, index.child);
            let is_free = self.is_orphan || self.reader.bitmaps.is_free(index.child);
            let is_sound = |bytes: &[u8]| {
                check_checksum(bytes, number, index.child, seed).is_ok()
                    && ExtentNode::check(bytes, place, &below, &layout)
                        .is_ok_and(|node| !node.is_empty())
            };
            // The checksum depends on the number and the generation of the inode.
            if let Some(bytes) = self.node(index.child, seed.is_some() || is_free, &is_sound) {
                self.extents(&bytes, place, &below, node.depth());
            }
        }
    }

    fn pointer(
        &mut self,
        holder: &[u8],
        index: u32,
        at: Option<PhysicalBlock>,
        levels: usize,
        logical: u64,
    ) {
        let layout = self.reader.image.layout;
        let number = self.inode.number;
        let found = block_map::pointer(holder, index, number, at, &layout);
        self.map.has_gap |= found.is_err();
        let Ok(Some(block)) = found else { return };
        if levels == 0 {
            // No file has blocks beyond that.
            let Ok(logical) = u32::try_from(logical) else { return };
            let logical = LogicalBlock::new(logical);
            return self.add(Extent::of_block(logical, block));
        }
        let is_free = self.is_orphan || self.reader.bitmaps.is_free(block);
        let is_sound = |bytes: &[u8]| {
            block_map::check_pointers(bytes, number, Some(block), &layout).is_ok()
                && bytes.iter().any(|&byte| byte != 0)
        };
        // At most three levels.
        let Some(bytes) = self.node(block, is_free, &is_sound) else { return };
        let under = block_map::blocks_under(levels - 1, &layout);
        for index in 0..block_map::pointers_per_block(&layout) {
            let logical = logical + u64::from(index) * under;
            self.pointer(&bytes, index, Some(block), levels - 1, logical);
        }
    }
}
