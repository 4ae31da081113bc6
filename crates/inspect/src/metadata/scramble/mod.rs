//! A copy of the metadata without private text, but with the same structure and the same problems.
//!
//! Nothing is copied as it is: each block is made again from what is known of its kind, and whatever has no meaning there
//! is zero. Names, attributes, targets of links and other text become random letters, of the same lengths and in the same
//! places. What can't be right becomes something else that can't be, and a checksum that was wrong is wrong again. If it
//! isn't clear what a block is, it is zeros.
//!
//! # Hashes
//! The hash of a name would let anybody try which name it is. So the names of a hashed directory get other hashes, with
//! another seed, but each stays in its leaf: `intervals` has the hashes that leaves get, and `deal` finds names with such
//! hashes.
//!
//! # Memory
//! A few blocks; for a directory 8 bytes for each of its names, of which there may be 4 million, and for a hashed one about
//! 20 bytes for each of its leaves and of the names that are dealt at once. CopiedBitmaps of 2048 groups are compared at once. A
//! replay of the journal takes as much as was logged.
//!
//! # Structure
//! `key` makes random bytes, `names` names. `blocks` finds the blocks of inodes. `superblock`, `groups`, `inode`, `map`,
//! `attributes`, `directory` (with `index` and `records`) and `special` each rewrite a kind of block.

mod attributes;
mod blocks;
mod deal;
mod directory;
mod fields;
mod groups;
mod index;
mod inode;
mod intervals;
mod key;
mod map;
mod names;
mod records;
mod special;
mod superblock;

pub use key::ScrambleKey;

use super::copier::BlockCopier;
use super::{MetadataSummary, ScrambleSummary};
use crate::error::{InspectError, Result};
use crate::image::{InspectedImage, StoredInode};
use crate::map::runs_of;
use crate::undelete::JournalLog;
use drystone_blockdev::{BlockDevice, Overlay};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::inode::{FIELDS, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::orphan_file::{OrphanBlock, OrphanPlace};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_ext4_format::{ChecksumSeed, GroupNumber, InodeNumber, InodeSeed, PhysicalBlock};
use groups::CopiedBitmaps;
use index::{DirectoryBlocks, DirectoryIndex};
use std::cell::Cell;

/// Seeds of hashes that are tried, so that the name that stays in the root is about where it was.
const HASH_SEEDS: u64 = 64;

/// Copies the metadata of an image as [`copy_metadata`](super::copy_metadata) does, but without private text. If the
/// journal has to be replayed, the copy shows the image as it is afterwards.
///
/// # Errors
/// `copy` can't be written. Blocks of the image that can't be read are counted.
pub fn copy_scrambled(
    image: &InspectedImage<'_>,
    copy: &dyn BlockDevice,
    key: ScrambleKey,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MetadataSummary> {
    if image.layout.features().incompat.contains(Incompat::RECOVER) {
        let log = JournalLog::read(image)?;
        if log.is_usable() {
            let view = Overlay::new(image.device);
            log.replay(image, &view)?;
            let replayed = InspectedImage::open(&view)?;
            return Scrambler::new(&replayed, key, true)?.run(copy, progress);
        }
    }
    Scrambler::new(image, key, false)?.run(copy, progress)
}

/// The seeds of the checksums of what belongs to an inode; none if there are no checksums.
#[derive(Clone, Copy)]
struct Seeds {
    old: Option<InodeSeed>,
    new: Option<InodeSeed>,
    /// One that makes a checksum wrong.
    wrong: Option<InodeSeed>,
}

impl Seeds {
    /// The seed of a checksum that was right or wrong.
    const fn choose(&self, is_right: bool) -> Option<InodeSeed> {
        if is_right { self.new } else { self.wrong }
    }
}

/// What all parts of a scrambled copy have in common.
struct Scrambler<'a, 'd> {
    image: &'a InspectedImage<'d>,
    key: ScrambleKey,
    /// The layout of the copy: with other seeds of checksums.
    new: Layout,
    /// One whose checksums are wrong in the copy.
    wrong: Layout,
    /// The seeds of hashes of names, before and after.
    hash_seed: ([u32; 4], [u32; 4]),
    /// The seeds of hashes of values in inodes of their own, before and after.
    value_seeds: (ChecksumSeed, ChecksumSeed),
    /// When the image was made.
    created_seconds: u64,
    is_replayed: bool,
    /// Whether the orphan file has any.
    has_orphans: bool,
    unclear: Cell<u64>,
    misplaced: Cell<u64>,
}

impl<'a, 'd> Scrambler<'a, 'd> {
    fn new(image: &'a InspectedImage<'d>, key: ScrambleKey, is_replayed: bool) -> Result<Self> {
        let old_seed = image.superblock.hash_seed();
        let mut scrambler = Self {
            image,
            key,
            new: image.layout,
            wrong: image.layout,
            hash_seed: (old_seed, old_seed),
            value_seeds: (
                value_seed(image.superblock.uuid(), &image.layout),
                ChecksumSeed::from_stored(0),
            ),
            created_seconds: image.superblock.creation_time_seconds() & u64::from(u32::MAX),
            is_replayed,
            has_orphans: has_orphans(image)?,
            unclear: Cell::new(0),
            misplaced: Cell::new(0),
        };
        let geometry = image.superblock.geometry();
        let with_identity = |uuid, checksum_seed| {
            let mut geometry = geometry;
            (geometry.uuid, geometry.checksum_seed) = (uuid, checksum_seed);
            Layout::new(&geometry).map_err(InspectError::NoSuperblock)
        };
        let uuid = scrambler.uuid(geometry.uuid);
        let seed = scrambler.checksum_seed(geometry.checksum_seed);
        scrambler.new = with_identity(uuid, seed)?;
        scrambler.wrong = with_identity(scrambler.uuid(uuid), !seed)?;
        scrambler.value_seeds.1 = value_seed(uuid, &scrambler.new);
        scrambler.hash_seed.1 = scrambler.choose_hash_seed()?;
        Ok(scrambler)
    }

    /// Draws a seed with which the name that stays in the root falls close to its leaf.
    fn choose_hash_seed(&self) -> Result<[u32; 4]> {
        let old = self.hash_seed.0;
        let first = self.drawn_hash_seed(old, 0);
        let Ok(root) = self.image.inode(InodeNumber::ROOT) else { return Ok(first) };
        if !root.inode.is_directory() || !root.inode.flags.contains(InodeFlags::INDEX) {
            return Ok(first);
        }
        let blocks = DirectoryBlocks::new(runs_of(self.image, &root.inode)?);
        let layout = self.image.directory_layout(&root.inode);
        let index = DirectoryIndex::read(self.image, InodeNumber::ROOT, &layout, &blocks)?;
        let Some(mut index) = index else { return Ok(first) };
        let intervals = index.intervals(None);
        let hash = |seed| {
            NameHasher::new(index.hasher().version(), seed).hash(directory::LOST_FOUND).major
        };
        let before = hash(old);
        let drawn = (0..HASH_SEEDS).map(|number| self.drawn_hash_seed(old, number));
        let distance = |seed: &[u32; 4]| intervals.distance(before, hash(*seed));
        Ok(drawn.min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap_or(first))
    }

    fn run(
        &self,
        copy: &dyn BlockDevice,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<MetadataSummary> {
        let mut copier = BlockCopier::new(self.image, copy);
        self.fixed(&mut copier)?;
        let total = u64::from(self.image.layout.inodes_count());
        self.image.each_inode(&mut |stored| {
            progress(u64::from(stored.inode.number.get()), total);
            self.blocks_of(&mut copier, &stored)?;
            Ok(true)
        })?;
        copy.flush()?;
        let mut summary = copier.summary;
        summary.scrambled = Some(ScrambleSummary {
            unclear_bytes: self.unclear.get(),
            misplaced_names: self.misplaced.get(),
            replayed: self.is_replayed,
        });
        Ok(summary)
    }

    fn add_unclear(&self, bytes: u64) {
        self.unclear.set(self.unclear.get() + bytes);
    }

    /// Copies metadata with fixed places, or places that a descriptor names.
    fn fixed(&self, copier: &mut BlockCopier<'_, '_>) -> Result<()> {
        let image = self.image;
        let bases = self.claim_bases(copier);
        if let Some(block) = image.superblock.mmp_block() {
            copier.run(block.get(), 1, &mut |block, bytes| {
                self.mmp_block(bytes, block);
                Ok(())
            })?;
        }
        let bitmaps = self.bitmaps(copier)?;
        for base in bases {
            self.base(copier, &bitmaps, &base)?;
        }
        image.each_descriptor(&mut |group, descriptor, bytes| {
            let count = image.used_table_length(group, descriptor, bytes);
            self.inode_table(copier, group, descriptor, count)?;
            Ok(true)
        })
    }

    /// Notes superblocks and descriptors, with their copies in all groups that were written to, as copied.
    fn claim_bases(&self, copier: &mut BlockCopier<'_, '_>) -> Vec<ClaimedBase> {
        let layout = &self.image.layout;
        let mut bases = Vec::new();
        copier.claim(0, u64::from(layout.first_data_block()) + 1);
        bases.push(ClaimedBase::Superblock(SUPERBLOCK_OFFSET_BYTES));
        let mut number = 0;
        while let Some(group) = copier.written_group_from(number) {
            number = group.get() + 1;
            if let Some((block, offset)) = layout.superblock_location(group)
                && !copier.claim(block.get(), 1).is_empty()
            {
                let offset = self.image.offset_of(block) + offset as u64;
                // With clusters of 1 KiB blocks, the primary one is in a block of its own.
                if offset != SUPERBLOCK_OFFSET_BYTES {
                    bases.push(ClaimedBase::Superblock(offset));
                }
            }
            let base = layout.group_base(group);
            let Some(start) = base.descriptors else { continue };
            let per_block = layout.descriptors_per_block();
            let has_all = base.reserved_blocks > 0 || !self.is_meta_group(group);
            let first = if has_all { 0 } else { group.get() / per_block };
            for by in 0..base.descriptor_blocks {
                let Some(block) = start.checked_add(u64::from(by)) else { break };
                let group = (first + by).saturating_mul(per_block);
                if !copier.claim(block.get(), 1).is_empty() {
                    bases.push(ClaimedBase::Descriptors { block, group });
                }
            }
        }
        bases
    }

    /// Whether a group has only the descriptors of its meta block group.
    fn is_meta_group(&self, group: GroupNumber) -> bool {
        let geometry = self.image.superblock.geometry();
        geometry.features.incompat.contains(Incompat::META_BG)
            && group.get() / self.image.layout.descriptors_per_block() >= geometry.first_meta_group
    }

    fn base(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        bitmaps: &CopiedBitmaps,
        base: &ClaimedBase,
    ) -> Result<()> {
        match *base {
            ClaimedBase::Superblock(offset) => {
                let mut bytes = [0; SUPERBLOCK_BYTES];
                if self.image.read_lenient(offset, &mut bytes).is_err() {
                    copier.summary.unreadable_bytes += bytes.len() as u64;
                    return Ok(());
                }
                // After a replay, the primary one's counts are due: a mount would make them again.
                let is_counted = self.is_replayed && offset == SUPERBLOCK_OFFSET_BYTES;
                let free = if is_counted { Some(self.free_counts()?) } else { None };
                self.superblock(&mut bytes, free);
                copier.summary.bytes += bytes.len() as u64;
                copier.write(offset, &bytes)
            }
            ClaimedBase::Descriptors { block, group } => {
                copier.copy_range(block.get()..block.get() + 1, &mut |_, bytes| {
                    self.descriptors(bitmaps, group, bytes);
                    Ok(())
                })
            }
        }
    }

    /// Copies the used part of a group's inode table.
    fn inode_table(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        count: u32,
    ) -> Result<()> {
        let layout = &self.image.layout;
        let per_block = layout.inodes_per_block();
        let (start, size) = (descriptor.inode_table.get(), layout.inode_size());
        copier.run(start, u64::from(count.div_ceil(per_block)), &mut |block, bytes| {
            // Below the number of blocks of a table.
            let first = (block.get() - start) as u32 * per_block;
            for (index, bytes) in (first..).zip(bytes.chunks_exact_mut(size)) {
                match layout.inode_of_bit(group, index).filter(|_| index < count) {
                    Some(number) => {
                        let place = u64::from(index - first) * size as u64;
                        self.inode(number, self.image.offset_of(block) + place, bytes)?;
                    }
                    None => bytes.fill(0),
                }
            }
            Ok(())
        })
    }

    /// The seeds of what belongs to an inode.
    fn seeds_of(&self, stored: &StoredInode) -> Seeds {
        let number = stored.inode.number;
        // As it is in the copy.
        let is_kept = self.is_verified(&stored.bytes, number);
        let generation =
            if is_kept { fields::get(&stored.bytes, FIELDS, "generation") as u32 } else { 0 };
        let seed = |layout: &Layout| Some(layout.checksum_seed()?.inode(number, generation));
        Seeds {
            old: stored.inode.seed(&self.image.layout),
            new: seed(&self.new),
            wrong: seed(&self.wrong),
        }
    }
}

/// A block whose place is fixed.
enum ClaimedBase {
    /// A superblock, where it starts in bytes.
    Superblock(u64),
    /// Descriptors from a group on.
    Descriptors { block: PhysicalBlock, group: u32 },
}

/// Whether the orphan file has any.
fn has_orphans(image: &InspectedImage<'_>) -> Result<bool> {
    let Some(number) = image.superblock.orphan_file_inode() else { return Ok(false) };
    let Ok(stored) = image.inode(number) else { return Ok(false) };
    let last = InodeNumber::new(image.layout.inodes_count());
    let mut found = false;
    image.each_block(runs_of(image, &stored.inode)?, &mut |_, block, bytes| {
        let place = OrphanPlace { inode: number, block, checksum: None };
        // A block that can't be read may have some.
        found |= OrphanBlock::check(bytes, &place, last)
            .map_or(true, |block| block.orphans().next().is_some());
    });
    Ok(found)
}

/// The seed of hashes of values in inodes of their own.
fn value_seed(uuid: [u8; 16], layout: &Layout) -> ChecksumSeed {
    layout.checksum_seed().unwrap_or_else(|| ChecksumSeed::from_uuid(&uuid))
}
