//! The image as it is before files are put into it: all that depends on its size.
//!
//! The size of an image can't be computed directly: inode tables, descriptors, their copies and the
//! journal grow with the size, and files are split around them. So sizes are tried. For each one all
//! files are placed, which is exact and takes milliseconds.

use super::content::Cursor;
use super::options::SpareRoom;
use crate::error::{Error, Result};
use crate::files::SystemFiles;
use crate::groups::place_groups;
use crate::image::{describe, new_mmp};
use crate::options::{JournalSize, MkfsOptions};
use crate::plan::ImagePlan;
use crate::space::Space;
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::Superblock;
use std::ops::Range;

/// The most sizes that are tried: each try at least halves the uncertainty.
const TRIES_MAX: u32 = 48;
/// An image with so few blocks too many is good enough.
const EXCESS_BLOCKS_MAX: u64 = 8;
/// Sizes that miss by a little, after which larger steps are taken.
const PATIENCE: u32 = 4;
/// Bytes of free room per inode, as in `mke2fs`.
const BYTES_PER_INODE: u64 = 16_384;
/// The smallest image, in blocks, for which `mke2fs` makes a journal.
const WITH_JOURNAL_BLOCKS_MIN: u64 = 2048;
/// Bytes of an inode unless asked for otherwise.
const INODE_SIZE: u64 = 256;
/// Blocks that a group needs besides its inodes, generously: a smaller last group is given up.
const GROUP_OWN_BLOCKS: u64 = 128;
/// Least blocks of a group that was made smaller.
const SMALL_GROUP_BLOCKS_MIN: u64 = 1024;

/// An image without files.
pub(super) struct EmptyImage {
    pub plan: ImagePlan,
    pub superblock: Superblock,
    pub layout: Layout,
    pub groups: Vec<GroupDescriptor>,
    pub files: SystemFiles,
    pub lost_found: u32,
    /// Free blocks, in order.
    pub free: Vec<Range<u64>>,
}

impl EmptyImage {
    /// Lays out an image of this size with at least this many inodes.
    pub fn new(options: &MkfsOptions, size_bytes: u64, inodes: u64) -> Result<EmptyImage> {
        let mut options = options.clone();
        options.size_bytes = size_bytes;
        options.inodes = Some(u32::try_from(inodes).map_err(|_| too_many_inodes(inodes))?);
        fit_groups_to_inodes(&mut options, inodes);
        let plan = ImagePlan::new(&options)?;
        let mut superblock = Superblock::create(&plan.geometry)?;
        let layout = *superblock.layout();
        describe(&mut superblock, &options, &plan);
        let mut space = Space::new(&layout);
        let groups = place_groups(&layout, &mut space)?;
        let mut files = SystemFiles::new(&options, &layout, space);
        let lost_found = files.take_inode().get();
        files.make_rest(&plan, &mut superblock)?;
        if let Some(block) = superblock.mmp_block() {
            files.blocks.insert(block.get(), new_mmp(&layout, &options));
        }
        let free = files.space.free_runs();
        Ok(EmptyImage { plan, superblock, layout, groups, files, lost_found, free })
    }

    pub fn free_blocks(&self) -> u64 {
        self.free.iter().map(|run| run.end - run.start).sum()
    }
}

/// How much is put into an image, and how it is placed.
pub(super) struct BuildContents<'a> {
    /// The options, but for size and inodes.
    pub options: &'a MkfsOptions,
    pub block_size: u64,
    /// Inodes of the tree.
    pub inodes: u64,
    /// Inodes to have at least.
    pub inodes_min: u64,
    /// The approximate number of blocks of the tree.
    pub blocks: u64,
    /// Places everything.
    pub place: &'a dyn Fn(&mut Cursor<'_>),
}

/// Inodes that an image has besides those of the tree: the reserved ones and the orphan file. The
/// tree includes root and lost+found.
const OWN_INODES: u64 = 12;

impl BuildContents<'_> {
    /// An image of this size, if everything fits. It has as many inodes as is usual for the size,
    /// if they fit too.
    pub fn fixed(&self, size_bytes: u64) -> Result<EmptyImage> {
        let least = (self.inodes + OWN_INODES).max(self.inodes_min);
        let usual = size_bytes / BYTES_PER_INODE.max(self.block_size);
        let mut missing = 1;
        for inodes in [least.max(usual), least] {
            let short = self.blocks_for_groups(inodes).saturating_sub(size_bytes / self.block_size);
            if short > 0 {
                missing = short;
                continue;
            }
            match EmptyImage::new(self.options, size_bytes, inodes) {
                Ok(empty) => {
                    let mut cursor = Cursor::new(&empty.free);
                    (self.place)(&mut cursor);
                    missing = cursor.missing;
                    if missing == 0 {
                        return Ok(empty);
                    }
                }
                Err(Error::TooSmall { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let needed = self.smallest(SpareRoom::Bytes(0))?.layout.blocks_count() * self.block_size;
        let needed_bytes = needed.max(size_bytes + missing * self.block_size);
        Err(Error::DoesNotFit { missing_bytes: needed_bytes - size_bytes, needed_bytes })
    }

    /// Blocks without which there can't be groups enough for so many inodes.
    fn blocks_for_groups(&self, inodes: u64) -> u64 {
        match groups_for(inodes, self.block_size) {
            0 | 1 => 0,
            groups => groups * group_blocks_min(self.options, inodes, self.block_size),
        }
    }

    /// The smallest image that holds everything and leaves this much room.
    pub fn smallest(&self, room: SpareRoom) -> Result<EmptyImage> {
        let with_journal = self.options.features.compat.contains(Compat::HAS_JOURNAL);
        let blocks_min = match self.options.journal_size {
            _ if !with_journal => 0,
            JournalSize::Default | JournalSize::Required => WITH_JOURNAL_BLOCKS_MIN,
            JournalSize::Bytes(bytes) => bytes.div_ceil(self.block_size) * 2,
        };
        let smallest = blocks_min.max(crate::plan::SIZE_MIN.div_ceil(self.block_size));
        let tables =
            self.inodes * self.options.inode_size.map_or(INODE_SIZE, u64::from) / self.block_size;
        let mut guess = smallest.max(self.blocks + tables + 16);
        // The largest size known to be too small, and the smallest image that fits.
        let mut too_small = smallest - 1;
        let mut best: Option<EmptyImage> = None;
        let mut misses = 0;
        for _ in 0..TRIES_MAX {
            let next = match self.try_size(guess, room)? {
                SizeAttempt::Missing(blocks) => {
                    too_small = too_small.max(guess);
                    misses += 1;
                    // A few more blocks may all go to a last group that is too small to be one.
                    let pace = 1 << u32::saturating_sub(misses, PATIENCE).min(16);
                    guess.saturating_add(blocks.saturating_mul(pace))
                }
                SizeAttempt::Fits { empty, excess } => {
                    let blocks = empty.layout.blocks_count();
                    if best.as_ref().is_none_or(|best| best.layout.blocks_count() > blocks) {
                        best = Some(*empty);
                    }
                    if excess <= EXCESS_BLOCKS_MAX {
                        break;
                    }
                    blocks.saturating_sub(excess)
                }
            };
            guess = match &best {
                None => next,
                Some(best) => {
                    let best = best.layout.blocks_count();
                    if best <= too_small + 1 {
                        break;
                    }
                    if next > too_small && next < best { next } else { too_small.midpoint(best) }
                }
            };
        }
        best.ok_or_else(|| Error::Option("no size of image holds these files".into()))
    }

    fn try_size(&self, blocks: u64, room: SpareRoom) -> Result<SizeAttempt> {
        let size_bytes = blocks * self.block_size;
        let room_bytes = room.blocks(blocks, self.block_size) * self.block_size;
        let inodes = (self.inodes + OWN_INODES + room_bytes / BYTES_PER_INODE).max(self.inodes_min);
        let short = self.blocks_for_groups(inodes).saturating_sub(blocks);
        if short > 0 {
            return Ok(SizeAttempt::Missing(short));
        }
        let empty = match EmptyImage::new(self.options, size_bytes, inodes) {
            Err(Error::TooSmall { .. }) => return Ok(SizeAttempt::Missing(blocks / 16 + 64)),
            // The fixed parts of a group take more than there is.
            Err(Error::Format(_)) if blocks < WITH_JOURNAL_BLOCKS_MIN => {
                return Ok(SizeAttempt::Missing(blocks / 16 + 64));
            }
            other => other?,
        };
        let mut cursor = Cursor::new(&empty.free);
        (self.place)(&mut cursor);
        let wanted = room.blocks(empty.layout.blocks_count(), self.block_size) + cursor.missing;
        let left = empty.free_blocks() - cursor.taken;
        Ok(match left.checked_sub(wanted) {
            Some(excess) => {
                SizeAttempt::Fits { empty: Box::new(empty), excess: room.scale(excess) }
            }
            None => SizeAttempt::Missing(room.scale(wanted - left).max(1)),
        })
    }
}

/// The result of trying a size.
enum SizeAttempt {
    /// This many more blocks may suffice.
    Missing(u64),
    /// This many fewer blocks may suffice.
    Fits { empty: Box<EmptyImage>, excess: u64 },
}

/// Makes groups smaller where they would have too few inodes, so that many small files don't need a
/// large image.
fn fit_groups_to_inodes(options: &mut MkfsOptions, inodes: u64) {
    let Some(block_size) = options.block_size.map(u64::from) else { return };
    let per_group_max = inodes_per_group_max(block_size);
    let blocks = options.size_bytes / block_size;
    let groups = groups_for(inodes, block_size);
    if options.blocks_per_group.is_some() || blocks.div_ceil(per_group_max) >= groups {
        return;
    }
    let least = group_blocks_min(options, inodes, block_size);
    let blocks_per_group = (blocks / groups / 8 * 8).max(least);
    // Fits: below the blocks of a full group.
    options.blocks_per_group = Some(blocks_per_group.min(per_group_max) as u32);
    // The room for growth, which is in many groups, would fill small ones.
    options.features.compat -= Compat::RESIZE_INODE;
}

/// Groups without which there can't be so many inodes.
fn groups_for(inodes: u64, block_size: u64) -> u64 {
    inodes.div_ceil(inodes_per_group_max(block_size))
}

/// Blocks that each of several groups must have for its part of the inodes: a multiple of 8.
fn group_blocks_min(options: &MkfsOptions, inodes: u64, block_size: u64) -> u64 {
    let groups = groups_for(inodes, block_size).max(1);
    let inode_size = options.inode_size.map_or(INODE_SIZE, u64::from);
    let table = (inodes.div_ceil(groups) * inode_size).div_ceil(block_size);
    (table + GROUP_OWN_BLOCKS).next_multiple_of(8).max(SMALL_GROUP_BLOCKS_MIN)
}

/// As many as a bitmap can show, which is also the most blocks of a group.
fn inodes_per_group_max(block_size: u64) -> u64 {
    (block_size * 8).min(65_528)
}

fn too_many_inodes(inodes: u64) -> Error {
    Error::Option(format!("{inodes} files: an image has at most {}", u32::MAX))
}
