//! One directory: what the checks of its blocks, its index and its entries have in common.

use crate::image::Image;
use drystone_ext4_format::casefold::{Casefold, ENCODING_FLAG_STRICT, Encoding};
use drystone_ext4_format::dir::{DirectoryLayout, DirectoryPlace};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};

/// What all blocks of one directory have in common.
pub(crate) struct DirectoryContext {
    pub inode: Inode,
    pub layout: DirectoryLayout,
}

impl DirectoryContext {
    pub fn new(image: &Image<'_>, inode: Inode) -> Self {
        let layout = DirectoryLayout {
            file_type: image.layout.features().incompat.contains(Incompat::FILETYPE),
            checksum: inode.seed(&image.layout),
            encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            casefolded: inode.flags.contains(InodeFlags::CASEFOLD),
            inode_last: InodeNumber::new(image.layout.inodes_count()),
        };
        Self { inode, layout }
    }

    pub fn place(&self, block: LogicalBlock) -> DirectoryPlace {
        DirectoryPlace { inode: self.inode.number, block }
    }
}

/// A block of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedBlock {
    pub logical: LogicalBlock,
    pub physical: PhysicalBlock,
}

/// What is called with block, offset, name and inode of each entry.
pub(crate) type EntryVisitor<'a> = &'a mut dyn FnMut(LogicalBlock, usize, &[u8], InodeNumber);

/// How names of an image that ignore case are compared.
pub(crate) fn casefold_of(image: &Image<'_>) -> Option<Casefold> {
    let encoding = Encoding::from_raw(image.superblock.encoding())?;
    let strict = image.superblock.encoding_flags() & ENCODING_FLAG_STRICT != 0;
    Some(Casefold { encoding, strict })
}
