//! The image that is checked: a device and a superblock whose geometry is sound.

use drystone_blockdev::{BlockDevice, DeviceError, DeviceOperation};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::features::{Compat, ReadOnlyCompat};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{
    Corrupt, FormatError, GroupNumber, InodeNumber, PhysicalBlock, Unsupported,
};
use thiserror::Error;
use uuid::Uuid;

/// Read at once of an inode table: inodes of every size fit without a rest.
pub(crate) const TABLE_READ_BYTES: usize = 128 << 10;

/// Why an image could not be checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{0}{advice}", advice = advice(.0))]
    Device(#[from] DeviceError),
    /// There is no superblock, neither in its place nor where a backup could be.
    #[error("not an ext2, ext3 or ext4 image: {0}")]
    NotExt(FormatError),
    /// The image uses something that the checker does not know.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Features that others may ignore, but whose rules a checker must know.
    #[error("features that the checker doesn't know: {features}")]
    UnknownFeatures {
        /// Their names, separated by commas.
        features: String,
    },
    /// Inodes have other fields than those of Linux.
    #[error(
        "it was made for GNU Hurd, which has other fields in inodes: the checker doesn't know them"
    )]
    Hurd,
    /// The journal must be replayed, and lies on another device.
    #[error(
        "the journal, {uuid}, needs to be replayed, and lies on another device; \
         'e2fsck' replays it where that device is at hand"
    )]
    ExternalJournal {
        /// The journal's identity.
        uuid: Uuid,
    },
    /// What has to be known of the image doesn't fit the memory that the caller allows.
    #[error("{bytes_max} bytes of memory, which is the limit, are too few to check this image")]
    Memory {
        /// The limit.
        bytes_max: u64,
    },
}

/// What to do about a medium that can't be read.
fn advice(error: &DeviceError) -> &'static str {
    match error {
        DeviceError::Io { operation: DeviceOperation::Read, .. } => {
            "; if the medium is failing, copy what can be read with ddrescue, and check the copy"
        }
        _ => "",
    }
}

pub(crate) struct Image<'a> {
    pub device: &'a dyn BlockDevice,
    pub superblock: Superblock,
    pub layout: Layout,
    /// None until they are loaded.
    pub groups: Vec<GroupState>,
}

/// One group: its descriptor, and what of it can be used.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub descriptor: GroupDescriptor,
    /// The flags that mean something in this image.
    pub flags: GroupFlags,
    pub has_block_bitmap: bool,
    pub has_inode_bitmap: bool,
    pub has_inode_table: bool,
}

impl<'a> Image<'a> {
    pub fn new(device: &'a dyn BlockDevice, superblock: Superblock) -> Self {
        let layout = *superblock.layout();
        Self { device, superblock, layout, groups: Vec::new() }
    }

    /// A zeroed buffer for one block.
    pub fn block_buffer(&self) -> Vec<u8> {
        vec![0; self.layout.block_size()]
    }

    /// Reads whole blocks from `block` on, which the caller knows to lie in the image.
    pub fn read_blocks(&self, block: PhysicalBlock, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(block.get() << self.layout.log_block_size(), buffer)
    }

    /// Reads one block, which the caller knows to lie in the image.
    pub fn read_block(&self, block: PhysicalBlock) -> Result<Vec<u8>, DeviceError> {
        let mut buffer = self.block_buffer();
        self.read_blocks(block, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads the bytes of one inode from the table at `table`, which lies in the image.
    pub fn read_inode_bytes(
        &self,
        inode: InodeNumber,
        table: PhysicalBlock,
    ) -> Result<Option<Vec<u8>>, DeviceError> {
        let Ok((block, offset)) = self.layout.inode_location(inode, table) else {
            return Ok(None);
        };
        let mut bytes = vec![0; self.layout.inode_size()];
        let at = (block.get() << self.layout.log_block_size()) + offset as u64;
        self.device.read_at(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The bytes of an inode, if its table can be read.
    pub fn inode_bytes(&self, inode: InodeNumber) -> Result<Option<Vec<u8>>, Error> {
        let Ok(group) = self.layout.group_of_inode(inode) else { return Ok(None) };
        let state = &self.groups[group.index()];
        if !state.has_inode_table {
            return Ok(None);
        }
        Ok(self.read_inode_bytes(inode, state.descriptor.inode_table)?)
    }

    /// Reads an inode, whether it is in use or not.
    pub fn inode(&self, number: InodeNumber) -> Result<Option<(Inode, Vec<u8>)>, Error> {
        let Some(bytes) = self.inode_bytes(number)? else { return Ok(None) };
        let inode = self.parse_inode(&bytes, number).ok();
        Ok(inode.map(|inode| (inode, bytes)))
    }

    /// How many inodes of a group, from its first on, may be in use as its descriptor says.
    pub fn initialised_inodes(&self, group: GroupNumber) -> u32 {
        let state = &self.groups[group.index()];
        if !state.has_inode_table || state.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        let counts_unused = self.layout.checksums() != Checksums::None;
        let unused = if counts_unused { state.descriptor.unused_inodes_count } else { 0 };
        self.layout.inodes_per_group().saturating_sub(unused)
    }

    /// Calls `visit` for inodes of one group, which come in rising order. Tables are read in large pieces.
    ///
    /// # Errors
    /// The device fails, or `visit` does.
    pub fn visit_inodes(
        &self,
        numbers: impl Iterator<Item = InodeNumber>,
        mut visit: impl FnMut(Inode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let layout = &self.layout;
        let inode_size = layout.inode_size();
        let (mut buffer, mut start) = (Vec::new(), 0);
        for number in numbers {
            let Ok((group, bit)) = layout.bit_of_inode(number) else { continue };
            let state = &self.groups[group.index()];
            if !state.has_inode_table {
                continue;
            }
            let at = bit as usize * inode_size;
            if at >= start + buffer.len() {
                start = at;
                let left = (layout.inodes_per_group() - bit) as usize * inode_size;
                buffer.resize(TABLE_READ_BYTES.min(left), 0);
                let table = state.descriptor.inode_table.get() << layout.log_block_size();
                self.device.read_at(table + start as u64, &mut buffer)?;
            }
            let bytes = &buffer[at - start..][..inode_size];
            if let Ok(inode) = self.parse_inode(bytes, number) {
                visit(inode)?;
            }
        }
        Ok(())
    }

    /// Whether an inode serves the image itself, though it isn't among the reserved ones.
    pub fn serves_image(&self, inode: InodeNumber) -> bool {
        let superblock = &self.superblock;
        let features = self.layout.features();
        let orphan_file = superblock
            .orphan_file_inode()
            .filter(|_| features.compat.contains(Compat::ORPHAN_FILE));
        let has_quota = features.read_only_compat.contains(ReadOnlyCompat::QUOTA);
        let project_quota = superblock.project_quota_inode().filter(|_| has_quota);
        [orphan_file, project_quota].contains(&Some(inode))
    }

    /// Parses an inode even if its extra fields don't fit, as if it had none.
    pub fn parse_inode(&self, bytes: &[u8], number: InodeNumber) -> Result<Inode, Corrupt> {
        Inode::read(bytes, number, &self.layout).or_else(|_| {
            let mut bytes = bytes.to_vec();
            if let Some(extra_size) = bytes.get_mut(128..130) {
                extra_size.fill(0);
            }
            Inode::read(&bytes, number, &self.layout)
        })
    }
}
