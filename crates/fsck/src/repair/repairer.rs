//! What all rules of the repair write with.

use crate::checker::Checker;
use crate::image::Error;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_ondisk::bitmap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// How a problem was repaired; nothing if it can't be.
pub(super) type Done = Option<&'static str>;

/// Fields of an inode that can't be, from which on nothing of it is believed.
const GARBAGE_WEIGHT: u32 = 4;

/// How often a round looks for an inode table in the whole image.
const SEARCHES_MAX: u32 = 16;

/// How much these searches read in all. One of them reads a full image of this size.
const SEARCH_BYTES_MAX: u64 = 1 << 40;

/// Repairs problems of an image that was checked.
pub(super) struct Repairer<'m, 'i> {
    /// What the check has found. It isn't brought up to date: a rule reads again what it changes.
    pub checker: &'m mut Checker<'i>,
    /// In seconds since 1970, as inodes store it.
    pub now: u32,
    /// Inodes that had problems of their own.
    pub suspects: BTreeSet<u32>,
    /// How many fields of an inode can't be.
    pub garbled: HashMap<u32, u32>,
    /// Groups whose bitmaps and counts are right by now.
    pub rebuilt_groups: BTreeSet<u32>,
    /// Inodes whose maps were made anew in this round.
    pub rebuilt_maps: BTreeSet<u32>,
    /// Inodes that were to share no blocks any more in this round, and what came of it.
    pub unshared: BTreeMap<u32, Done>,
    /// Directories that have lost their index in this round.
    pub unindexed: BTreeSet<u32>,
    /// Directories whose blocks were.
    pub rebuilt_directories: BTreeSet<u32>,
    /// Whether attribute blocks outside of the image were taken from all inodes.
    pub is_swept: bool,
    /// How often inode tables may still be looked for in the whole image.
    pub searches_left: u32,
    /// How much they may still read.
    pub search_bytes_left: u64,
    /// Groups whose inode tables were looked for, and not found.
    pub lost_tables: BTreeSet<u32>,
    /// `lost+found`, once it was looked for, and whether it can be had.
    pub lost_and_found: Option<Option<InodeNumber>>,
    /// The block of it that got the last name.
    pub lost_and_found_block: Option<PhysicalBlock>,
    /// Groups that may have room, first by their bitmaps, and then whatever their bitmaps say.
    free_groups: Range<u32>,
    /// Clusters behind the last that was taken, which were free then.
    free_run: Range<u64>,
    /// First blocks of clusters that were taken, and weren't needed. They stay claimed.
    given_back: Vec<PhysicalBlock>,
}

impl<'m, 'i> Repairer<'m, 'i> {
    pub fn new(checker: &'m mut Checker<'i>, now_seconds: u64, suspects: BTreeSet<u32>) -> Self {
        // Inodes have 32 bits.
        let now = now_seconds as u32;
        let groups = checker.image.layout.group_count();
        Self {
            checker,
            now,
            suspects,
            garbled: HashMap::new(),
            rebuilt_groups: BTreeSet::new(),
            rebuilt_maps: BTreeSet::new(),
            unshared: BTreeMap::new(),
            rebuilt_directories: BTreeSet::new(),
            unindexed: BTreeSet::new(),
            is_swept: false,
            searches_left: SEARCHES_MAX,
            search_bytes_left: SEARCH_BYTES_MAX,
            lost_tables: BTreeSet::new(),
            lost_and_found: None,
            lost_and_found_block: None,
            free_groups: 0..groups.saturating_mul(2),
            free_run: 0..0,
            given_back: Vec::new(),
        }
    }

    pub fn device(&self) -> &'i dyn BlockDevice {
        self.checker.image.device
    }

    /// Writes a whole block, which lies in the image.
    pub fn write_block(&self, block: PhysicalBlock, bytes: &[u8]) -> Result<(), Error> {
        let offset = block.get() << self.checker.image.layout.log_block_size();
        Ok(self.device().write_at(offset, bytes)?)
    }

    /// Takes a cluster that nothing uses; its first block. What a damaged inode has lost is marked in
    /// the stored bitmaps still, so that clusters which are free there as well come first.
    pub fn allocate(&mut self) -> Result<Option<PhysicalBlock>, Error> {
        if let Some(block) = self.given_back.pop() {
            return Ok(Some(block));
        }
        let claims = &mut self.checker.found.claims;
        if let Some(cluster) = self.free_run.next()
            && !claims.used.has_any(cluster..cluster + 1)
        {
            claims.used.add_range(cluster..cluster + 1);
            return Ok(Some(claims.block(cluster)));
        }
        self.free_run = 0..0;
        let layout = self.checker.image.layout;
        while self.free_groups.start < self.free_groups.end {
            let group = GroupNumber::new(self.free_groups.start % layout.group_count());
            let believes_bitmap = self.free_groups.start < layout.group_count();
            if let Some((block, rest)) = self.take_run(group, 1, believes_bitmap)? {
                self.free_run = rest;
                return Ok(Some(block));
            }
            self.free_groups.start += 1;
        }
        Ok(None)
    }

    /// Takes back clusters of [`allocate`](Self::allocate) that nothing was written to yet, in the order in which they
    /// were taken. They are the next that it gives.
    pub fn give_back(&mut self, blocks: Vec<PhysicalBlock>) {
        self.given_back.extend(blocks.into_iter().rev());
    }

    /// Takes so many blocks in a row for a part of a group: in the group, where its parts have to be there.
    pub fn allocate_part(
        &mut self,
        group: GroupNumber,
        count: u64,
    ) -> Result<Option<PhysicalBlock>, Error> {
        let layout = self.checker.image.layout;
        let is_flexible = layout.features().incompat.contains(Incompat::FLEX_BG);
        if is_flexible && count == 1 {
            return self.allocate();
        }
        for believes_bitmap in [true, false] {
            if let Some((block, _)) = self.take_run(group, count, believes_bitmap)? {
                return Ok(Some(block));
            }
            for other in layout.groups().filter(|_| is_flexible) {
                if let Some((block, _)) = self.take_run(other, count, believes_bitmap)? {
                    return Ok(Some(block));
                }
            }
        }
        Ok(None)
    }

    /// Takes so many free blocks in a row of a group; the first, and the clusters behind them that are free too. If its
    /// bitmap is to be believed, it must have one.
    fn take_run(
        &mut self,
        group: GroupNumber,
        count: u64,
        believes_bitmap: bool,
    ) -> Result<Option<(PhysicalBlock, Range<u64>)>, Error> {
        let layout = self.checker.image.layout;
        let per_group = u64::from(layout.clusters_per_group());
        let first = u64::from(group.get()) * per_group;
        let mut used = self.checker.found.claims.used.bytes(first, per_group);
        let state = &self.checker.image.groups[group.index()];
        if believes_bitmap && !state.has_block_bitmap {
            return Ok(None);
        }
        if believes_bitmap && !state.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let stored = self.checker.image.read_block(state.descriptor.block_bitmap)?;
            used.iter_mut().zip(stored).for_each(|(used, stored)| *used |= stored);
        }
        let clusters = layout.group_cluster_count(group) as usize;
        let wanted = count.div_ceil(u64::from(layout.blocks_per_cluster()));
        let mut from = 0;
        while let Some(bit) = bitmap::find_zero(&used, from..clusters) {
            let end = bitmap::find_one(&used, bit..clusters).unwrap_or(clusters);
            if (end - bit) as u64 >= wanted {
                let cluster = first + bit as u64;
                self.checker.found.claims.used.add_range(cluster..cluster + wanted);
                let rest = cluster + wanted..first + end as u64;
                return Ok(Some((self.checker.found.claims.block(cluster), rest)));
            }
            from = end;
        }
        Ok(None)
    }

    /// Takes a block for the next block of a file that has `extents`: in the same cluster, if that goes on.
    pub fn allocate_for(
        &mut self,
        extents: &[Extent],
        logical: LogicalBlock,
    ) -> Result<Option<PhysicalBlock>, Error> {
        let ratio = u64::from(self.checker.image.layout.blocks_per_cluster());
        let within = logical.as_u64() % ratio;
        match extents.last() {
            Some(last) if within > 0 => Ok(Some(last.physical_end())),
            _ => Ok(self.allocate()?.and_then(|block| block.checked_add(within))),
        }
    }

    /// Whether nobody has claimed the blocks of an extent.
    pub fn is_unclaimed(&self, extent: &Extent) -> bool {
        let claims = &self.checker.found.claims;
        let clusters = claims.clusters(extent.physical.get(), extent.physical_end().get());
        !claims.used.has_any(clusters)
    }

    /// Whether the stored bitmap calls a block used.
    pub fn is_marked(&self, block: PhysicalBlock) -> Result<bool, Error> {
        let image = &self.checker.image;
        let Some((group, bit)) = image.layout.bit_of_block(block) else { return Ok(false) };
        let state = &self.checker.image.groups[group.index()];
        if !state.has_block_bitmap || state.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(false);
        }
        Ok(bitmap::test(&image.read_block(state.descriptor.block_bitmap)?, bit as usize))
    }

    /// Whether a block is in the image and has one owner at most.
    pub fn is_alone(&self, block: PhysicalBlock) -> bool {
        self.are_alone(block, 1)
    }

    /// Whether blocks are in the image and each has one owner at most.
    pub fn are_alone(&self, start: PhysicalBlock, count: u32) -> bool {
        let claims = &self.checker.found.claims;
        let end = start.get().saturating_add(count.into());
        self.checker.image.layout.contains_blocks(start, count.into())
            && !claims.twice.has_any(claims.clusters(start.get(), end))
    }

    /// Whether an inode had problems of its own.
    pub fn is_suspect(&self, inode: InodeNumber) -> bool {
        self.suspects.contains(&inode.get())
    }

    /// Whether several fields of an inode can't be.
    pub fn is_garbled(&self, inode: InodeNumber) -> bool {
        self.garbled.get(&inode.get()).is_some_and(|&weight| weight > 1)
    }

    /// Whether so many fields of an inode can't be that it never was one.
    pub fn is_garbage(&self, inode: InodeNumber) -> bool {
        self.garbled.get(&inode.get()).is_some_and(|&weight| weight >= GARBAGE_WEIGHT)
    }

    /// Whether an inode is in a part of its table that readers look at.
    pub fn can_use(&self, number: InodeNumber) -> bool {
        let layout = self.checker.image.layout;
        let Ok((group, bit)) = layout.bit_of_inode(number) else { return false };
        let state = &self.checker.image.groups[group.index()];
        let unused = match layout.checksums() {
            Checksums::None => 0,
            _ => state.descriptor.unused_inodes_count,
        };
        state.has_inode_table
            && !state.flags.contains(GroupFlags::INODE_UNINIT)
            && bit < layout.inodes_per_group().saturating_sub(unused)
    }

    /// Whether an inode holds an attribute's value of a length.
    pub fn holds_value(&self, number: InodeNumber, length: u64) -> bool {
        let Ok(Some((inode, _))) = self.checker.image.inode(number) else { return false };
        inode.flags.contains(InodeFlags::EA_INODE)
            && !inode.flags.contains(InodeFlags::INLINE_DATA)
            && inode.is_regular()
            && inode.links_count > 0
            && inode.size_bytes == length
    }

    /// Changes the superblock, and seals it.
    pub fn edit_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<Done, Error> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.device().read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
        let Ok(mut superblock) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
        change(&mut superblock);
        self.device().write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
        Ok(Some("the superblock was corrected"))
    }

    /// Changes bytes of the superblock, if what comes out is one.
    pub fn edit_superblock_bytes(&self, offset: usize, new: &[u8]) -> Result<Done, Error> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.device().read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
        bytes[offset..offset + new.len()].copy_from_slice(new);
        let Ok(superblock) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
        self.device().write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
        Ok(Some("the superblock was corrected"))
    }

    /// Changes the bytes of an inode, and seals them.
    pub fn edit_inode(
        &self,
        number: InodeNumber,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<Done, Error> {
        let layout = self.checker.image.layout;
        let Some((place, mut bytes)) = self.inode_place(number)? else { return Ok(None) };
        change(&mut bytes);
        // An inode of zeros was never used and has no checksum.
        if bytes.iter().any(|&byte| byte != 0) {
            Inode::seal(&mut bytes, number, &layout);
        }
        self.device().write_at(place, &bytes)?;
        Ok(Some("the inode was corrected"))
    }

    /// Changes the fields of an inode that can be read, and seals it.
    pub fn edit_fields(
        &self,
        number: InodeNumber,
        change: impl FnOnce(&mut Inode),
    ) -> Result<Done, Error> {
        let layout = self.checker.image.layout;
        let Some((place, mut bytes)) = self.inode_place(number)? else { return Ok(None) };
        let Ok(mut inode) = Inode::read(&bytes, number, &layout) else { return Ok(None) };
        change(&mut inode);
        if inode.encode_into(&mut bytes, &layout).is_err() {
            return Ok(None);
        }
        self.device().write_at(place, &bytes)?;
        Ok(Some("the inode was corrected"))
    }

    /// Makes an inode one that was never used. What it had becomes free, or loses its owner.
    pub fn clear_inode(&self, number: InodeNumber) -> Result<Done, Error> {
        let cleared = self.edit_inode(number, |bytes| bytes.fill(0))?;
        Ok(cleared.map(|_| "the inode was cleared"))
    }

    /// Where an inode lies on the device, and its bytes.
    fn inode_place(&self, number: InodeNumber) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let layout = self.checker.image.layout;
        let Ok(group) = layout.group_of_inode(number) else { return Ok(None) };
        let table = self.checker.image.groups[group.index()].descriptor.inode_table;
        let Some(bytes) = self.checker.image.inode_bytes(number)? else { return Ok(None) };
        let Ok((block, offset)) = layout.inode_location(number, table) else { return Ok(None) };
        Ok(Some(((block.get() << layout.log_block_size()) + offset as u64, bytes)))
    }

    /// Changes a group's descriptor, and seals it.
    pub fn edit_descriptor(
        &mut self,
        group: GroupNumber,
        change: impl FnOnce(&mut drystone_ext4_format::group::GroupDescriptor),
    ) -> Result<Done, Error> {
        let layout = self.checker.image.layout;
        let Some((block, offset)) = layout.descriptor_location(group) else { return Ok(None) };
        let mut bytes = self.checker.image.read_block(block)?;
        let descriptor = &mut self.checker.image.groups[group.index()].descriptor;
        change(descriptor);
        descriptor.encode_into(&mut bytes[offset..], group, &layout);
        self.write_block(block, &bytes)?;
        Ok(Some("the group descriptor was corrected"))
    }
}
