//! Copies an image without the data of its files, for a bug report.
//!
//! The copy has the superblock and the descriptors with their copies, bitmaps, inode tables, extent trees and block
//! maps, directories, targets of symbolic links, extended attributes with their values, and the file system's own files:
//! the journal, the quota files, the orphan file and the resize inode. Everything else is zeros.

mod copier;
mod scramble;

pub use scramble::{ScrambleKey, copy_scrambled};

use crate::error::Result;
use crate::image::{InspectedImage, StoredInode};
use crate::map::{MapPart, walk_map};
use copier::BlockCopier;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::InodeFlags;
use drystone_sync::Arc;
use drystone_sync::atomic::AtomicBool;

/// How metadata are copied.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MetadataOptions {
    /// Whether names and all other private text are replaced, as [`copy_scrambled`] does.
    pub scramble: bool,
    /// Ends the copy soon after this is set, for example by a signal.
    pub cancelled: Option<Arc<AtomicBool>>,
}

drystone_options::setters! {
    MetadataOptions {
        scramble: bool,
        cancelled: impl Into<Option<Arc<AtomicBool>>>,
    }
}

/// What a copy of the metadata holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataSummary {
    /// Bytes of the blocks that were copied, including blocks of zeros.
    pub bytes: u64,
    /// Bytes of the blocks among them that can't be read, which are zeros in the copy.
    pub unreadable_bytes: u64,
    /// Places in maps of blocks that can't be followed.
    pub problems: u64,
    /// What was done to hide private text, if it was.
    pub scrambled: Option<ScrambleSummary>,
}

/// What a scrambled copy lacks, besides private text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrambleSummary {
    /// Bytes that are zeros in the copy because it isn't clear what they are: they might be text.
    pub unclear_bytes: u64,
    /// Names in hashed directories whose hashes are wrong in the copy.
    pub misplaced_names: u64,
    /// Whether the copy shows the image as it is after a replay of its journal.
    pub replayed: bool,
}

/// Copies the metadata of an image to the same offsets in `copy`, which must hold zeros. `progress` is called with the
/// number of inodes that were read, and the number of inodes.
///
/// # Errors
/// `copy` can't be written. Blocks of the image that can't be read are counted.
pub fn copy_metadata(
    image: &InspectedImage<'_>,
    copy: &dyn BlockDevice,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MetadataSummary> {
    let mut copying = Copying { copier: BlockCopier::new(image, copy) };
    copying.fixed()?;
    let total = u64::from(image.layout.inodes_count());
    image.each_inode(&mut |stored| {
        progress(u64::from(stored.inode.number.get()), total);
        copying.inode(&stored)?;
        Ok(true)
    })?;
    copy.flush()?;
    Ok(copying.copier.summary)
}

struct Copying<'a, 'd> {
    copier: BlockCopier<'a, 'd>,
}

impl Copying<'_, '_> {
    /// Copies metadata with fixed places, or places that a descriptor names.
    fn fixed(&mut self) -> Result<()> {
        let image = self.copier.image;
        // The superblock, wherever blocks start.
        self.run(0, u64::from(image.layout.first_data_block()) + 1)?;
        if let Some(block) = image.superblock.mmp_block() {
            self.run(block.get(), 1)?;
        }
        self.bases()?;
        image.each_descriptor(&mut |group, descriptor, bytes| {
            self.run(descriptor.block_bitmap.get(), 1)?;
            self.run(descriptor.inode_bitmap.get(), 1)?;
            let inodes = image.used_table_length(group, descriptor, bytes);
            let table = inodes.div_ceil(image.layout.inodes_per_block());
            self.run(descriptor.inode_table.get(), u64::from(table))?;
            Ok(true)
        })
    }

    /// Copies superblocks and descriptors, and their copies in all groups that were written to.
    fn bases(&mut self) -> Result<()> {
        let layout = &self.copier.image.layout;
        let mut number = 0;
        while let Some(group) = self.copier.written_group_from(number) {
            let start = layout.group_first_block(group).get();
            self.run(start, u64::from(layout.group_base(group).blocks))?;
            number = group.get() + 1;
        }
        Ok(())
    }

    fn inode(&mut self, stored: &StoredInode) -> Result<()> {
        let (image, inode) = (self.copier.image, &stored.inode);
        // Bad blocks aren't read.
        let is_own = image.serves_image(inode.number) && inode.number != InodeNumber::BAD_BLOCKS;
        // Blocks of a deleted file may hold data of another one by now.
        if inode.links_count == 0 && !is_own {
            return Ok(());
        }
        if let Some(block) = inode.attribute_block {
            self.run(block.get(), 1)?;
        }
        let has_metadata = is_own
            || inode.is_directory()
            || inode.is_symlink()
            || inode.flags.contains(InodeFlags::EA_INODE);
        walk_map(image, inode, &mut |part| match part {
            MapPart::Node { block, .. } => self.run(block.get(), 1),
            MapPart::Run(run) if has_metadata => {
                self.run(run.physical.get(), u64::from(run.length))
            }
            MapPart::Run(_) => Ok(()),
            MapPart::Problem(_) => {
                self.copier.summary.problems += 1;
                Ok(())
            }
        })
    }

    fn run(&mut self, start: u64, length: u64) -> Result<()> {
        self.copier.run(start, length, &mut |_, _| Ok(()))
    }
}
