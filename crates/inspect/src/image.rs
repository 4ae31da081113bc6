//! Reads the superblock, descriptors and inodes of an image that may be damaged.

use crate::block_ranges::BlockRanges;
use crate::error::{InspectError, Result};
use drystone_blockdev::{BlockDevice, DeviceResult};
use drystone_ext4_format::casefold::{Casefold, ENCODING_FLAG_STRICT, Encoding};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::{GroupDescriptor, GroupFlags};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{FormatError, GroupNumber, InodeNumber, PhysicalBlock};

/// Block sizes, as powers of two, with which copies of the superblock are looked for.
const LOG_BLOCK_SIZES: std::ops::RangeInclusive<u32> = 10..=16;
/// Bytes of inode tables that are read at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// An ext4 image that is inspected.
#[derive(Debug)]
pub struct InspectedImage<'d> {
    pub(crate) device: &'d dyn BlockDevice,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    /// Where the superblock that is used starts, in bytes: a copy if the primary one is unusable.
    pub(crate) superblock_offset: u64,
}

/// Called with a group, its descriptor and the descriptor's bytes; returns whether to go on.
type DescriptorVisitor<'a> = dyn FnMut(GroupNumber, &GroupDescriptor, &[u8]) -> Result<bool> + 'a;

/// An inode and where it is stored.
#[derive(Clone, Debug)]
pub struct StoredInode {
    /// What its fields say.
    pub inode: Inode,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where they start on the device.
    pub offset: u64,
}

impl<'d> InspectedImage<'d> {
    /// Finds the superblock of the image on `device`, or a copy of it if that one is unusable.
    ///
    /// # Errors
    /// [`InspectError::NoSuperblock`] if there is neither.
    pub fn open(device: &'d dyn BlockDevice) -> Result<Self> {
        let mut places = vec![SUPERBLOCK_OFFSET_BYTES];
        for log in LOG_BLOCK_SIZES {
            // The first group ends with the bits of a block; groups of 1 KiB blocks start at block 1.
            let first = 8u64 << log;
            places.push((first + u64::from(log == 10)) << log);
        }
        let mut first_error = None;
        for offset in places {
            if offset + SUPERBLOCK_BYTES as u64 > device.size_bytes() {
                continue;
            }
            let mut bytes = [0; SUPERBLOCK_BYTES];
            device.read_at(offset, &mut bytes)?;
            // The primary superblock may have a wrong checksum: its fields can still be right. A copy may not.
            let checked = match offset {
                SUPERBLOCK_OFFSET_BYTES => Superblock::check_unsealed(&bytes),
                _ => Superblock::check(&bytes),
            };
            match checked {
                Ok(superblock) => {
                    let layout = *superblock.layout();
                    return Ok(Self { device, superblock, layout, superblock_offset: offset });
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        let short = || {
            FormatError::from(drystone_ext4_format::Corrupt::Truncated {
                structure: "superblock",
                needed: SUPERBLOCK_BYTES,
                found: 0,
            })
        };
        Err(InspectError::NoSuperblock(first_error.unwrap_or_else(short)))
    }

    /// Its superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Its geometry: where its structures are.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a block starts, in bytes.
    #[must_use]
    pub fn offset_of(&self, block: PhysicalBlock) -> u64 {
        block.get() << self.layout.log_block_size()
    }

    /// The bytes of a block.
    ///
    /// # Errors
    /// The block is beyond the end of the image, or the device fails.
    pub fn read_block(&self, block: PhysicalBlock) -> Result<Vec<u8>> {
        let size = self.layout.block_size();
        let end = self.device.size_bytes() >> self.layout.log_block_size();
        if block.get() >= end {
            let problem = format!("block {block} is beyond the end: there are {end} blocks");
            return Err(InspectError::missing(problem));
        }
        let mut bytes = vec![0; size];
        self.device.read_at(self.offset_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Fills a buffer from the device, with zeros for what is beyond its end.
    pub(crate) fn read_lenient(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        let there = self.device.size_bytes().saturating_sub(offset).min(buffer.len() as u64);
        let (there, beyond) = buffer.split_at_mut(there as usize);
        beyond.fill(0);
        if there.is_empty() { Ok(()) } else { self.device.read_at(offset, there) }
    }

    /// Where data may be, from `offset` on; a hole in the device is skipped.
    pub(crate) fn next_data(&self, offset: u64) -> Option<u64> {
        // A device that doesn't know its holes is read.
        self.device.next_data(offset).unwrap_or(Some(offset))
    }

    /// Visits the blocks in runs of a file, except holes in the device and blocks that can't be read: where each is in
    /// the file and in the image, and its bytes. Visits at most `left` of them and counts it down, because a damaged map
    /// may name a block any number of times.
    pub(crate) fn each_block(
        &self,
        runs: impl IntoIterator<Item = Extent>,
        visit: &mut dyn FnMut(u32, PhysicalBlock, &[u8]),
    ) {
        for run in runs {
            let mut by = 0;
            while by < run.length {
                let offset = self.offset_of(PhysicalBlock::new(run.physical.get() + u64::from(by)));
                let Some(data) = self.next_data(offset) else { break };
                let skipped = data.saturating_sub(offset) >> self.layout.log_block_size();
                by = by.saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
                if by >= run.length {
                    break;
                }
                let block = PhysicalBlock::new(run.physical.get() + u64::from(by));
                if let Ok(bytes) = self.read_block(block) {
                    visit(run.logical.get() + by, block, &bytes);
                }
                by += 1;
            }
        }
    }

    /// Where the descriptor of a group starts, in bytes.
    ///
    /// # Errors
    /// There is no such group.
    pub fn descriptor_offset(&self, group: GroupNumber) -> Result<u64> {
        let count = self.layout.group_count();
        if group.get() >= count {
            return Err(InspectError::missing(match count {
                1 => "it has only group 0".to_owned(),
                count => format!("it has groups 0 to {}", count - 1),
            }));
        }
        let place = self.layout.descriptor_location(group);
        let (block, offset) =
            place.ok_or_else(|| InspectError::missing(format!("group {group} has no place")))?;
        Ok(self.offset_of(block) + offset as u64)
    }

    /// What the descriptor of a group says, and its bytes.
    ///
    /// # Errors
    /// There is no such group, or it is beyond the end.
    pub fn descriptor(&self, group: GroupNumber) -> Result<(GroupDescriptor, Vec<u8>)> {
        let mut bytes = vec![0; self.layout.descriptor_size()];
        self.device.read_at(self.descriptor_offset(group)?, &mut bytes)?;
        Ok((GroupDescriptor::read(&bytes, &self.layout)?, bytes))
    }

    /// An inode as it is stored.
    ///
    /// # Errors
    /// There is no such inode, its table can't be found, or its extra fields don't fit.
    pub fn inode(&self, number: InodeNumber) -> Result<StoredInode> {
        let (bytes, offset) = self.inode_bytes(number)?;
        let inode = Inode::read(&bytes, number, &self.layout)?;
        Ok(StoredInode { inode, bytes, offset })
    }

    /// The bytes of an inode, and where they start.
    pub(crate) fn inode_bytes(&self, number: InodeNumber) -> Result<(Vec<u8>, u64)> {
        if !self.layout.contains_inode(number) {
            let count = self.layout.inodes_count();
            let problem = format!("there is no inode {number}: the image has inodes 1 to {count}");
            return Err(InspectError::Missing(problem));
        }
        let group = self.layout.group_of_inode(number)?;
        let (descriptor, _) = self.descriptor(group)?;
        let (block, offset) = self.layout.inode_location(number, descriptor.inode_table)?;
        if block.get() >= self.device.size_bytes() >> self.layout.log_block_size() {
            let problem = format!("the inode table of group {group} is beyond the end, at {block}");
            return Err(InspectError::Missing(problem));
        }
        let offset = self.offset_of(block) + offset as u64;
        let mut bytes = vec![0; self.layout.inode_size()];
        self.device.read_at(offset, &mut bytes)?;
        Ok((bytes, offset))
    }

    /// How many inodes of a group may have been in use: the rest of the table was never written.
    pub(crate) fn used_table_length(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        bytes: &[u8],
    ) -> u32 {
        let per_group = self.layout.inodes_per_group();
        let has_checksums = self
            .layout
            .features()
            .read_only_compat
            .intersects(ReadOnlyCompat::METADATA_CSUM | ReadOnlyCompat::GDT_CSUM);
        // With a wrong checksum, the count of unused inodes isn't trusted.
        if !has_checksums || GroupDescriptor::check_checksum(bytes, group, &self.layout).is_err() {
            return per_group;
        }
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        per_group.saturating_sub(descriptor.unused_inodes_count)
    }

    /// Visits the descriptors until `visit` returns false. A superblock may claim any number of groups, so descriptors
    /// that were never written are skipped.
    pub(crate) fn each_descriptor(&self, visit: &mut DescriptorVisitor<'_>) -> Result<()> {
        let layout = &self.layout;
        let (per_block, size) = (layout.descriptors_per_block(), layout.descriptor_size());
        let mut bytes = vec![0; layout.block_size()];
        let mut index = 0;
        while let Some(block) = layout.descriptor_block(index) {
            let start = self.offset_of(block);
            let Some(data) = self.next_data(start) else { break };
            let first = index * per_block;
            index += 1;
            if data - start >= bytes.len() as u64 {
                // Those of groups in front of it lie in front of it.
                let group = layout.group_of_block((data >> layout.log_block_size()).into());
                let Some(group) = group else { break };
                index = index.max(group.get() / per_block);
                continue;
            }
            if self.read_lenient(start, &mut bytes).is_err() {
                continue;
            }
            for (group, bytes) in (first..layout.group_count()).zip(bytes.chunks_exact(size)) {
                let Ok(descriptor) = GroupDescriptor::read(bytes, layout) else { continue };
                let is_empty = bytes.iter().all(|&byte| byte == 0);
                if !is_empty && !visit(GroupNumber::new(group), &descriptor, bytes)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits all inodes that were ever in use, deleted ones too, until `visit` returns false.
    /// Groups whose tables can't be found are skipped.
    ///
    /// # Errors
    /// The device or `visit` fails.
    pub fn each_inode(&self, visit: &mut dyn FnMut(StoredInode) -> Result<bool>) -> Result<()> {
        let mut buffer = Vec::new();
        let mut tables = BlockRanges::default();
        self.each_descriptor(&mut |group, descriptor, bytes| {
            let count = self.used_table_length(group, descriptor, bytes);
            let blocks = u64::from(self.layout.inode_table_blocks());
            if count == 0 || !self.layout.contains_blocks(descriptor.inode_table, blocks) {
                return Ok(true);
            }
            let table = descriptor.inode_table.get()..descriptor.inode_table.get() + blocks;
            // Damaged descriptors may name the same table, which is visited once.
            if tables.insert(table.clone()) != [table] {
                return Ok(true);
            }
            self.each_inode_of(group, descriptor, count, &mut buffer, visit)
        })
    }

    /// Visits the first inodes of a group's table, as [`each_inode`](Self::each_inode) does. Returns whether to
    /// go on.
    fn each_inode_of(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        count: u32,
        buffer: &mut Vec<u8>,
        visit: &mut dyn FnMut(StoredInode) -> Result<bool>,
    ) -> Result<bool> {
        let size = self.layout.inode_size();
        let start = self.offset_of(descriptor.inode_table);
        let per_piece = (TABLE_PIECE_BYTES / size) as u32;
        let mut done = 0;
        while done < count {
            // In a sparse file most of the tables were never written.
            let place = start + u64::from(done) * size as u64;
            let Some(data) = self.next_data(place) else { break };
            let skipped = u32::try_from((data - place) / size as u64).unwrap_or(u32::MAX);
            done = done.saturating_add(skipped).min(count);
            let piece = per_piece.min(count - done);
            buffer.resize(piece as usize * size, 0);
            let piece_start = start + u64::from(done) * size as u64;
            if self.read_lenient(piece_start, buffer).is_err() {
                // What can be read of it.
                let block = self.layout.block_size();
                for (index, bytes) in (0..).zip(buffer.chunks_mut(block)) {
                    if self.read_lenient(piece_start + index * block as u64, bytes).is_err() {
                        bytes.fill(0);
                    }
                }
            }
            for (index, bytes) in (0..).zip(buffer.chunks_exact(size)) {
                let Some(number) = self.layout.inode_of_bit(group, done + index) else { break };
                if bytes.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let Ok(inode) = Inode::read(bytes, number, &self.layout) else { continue };
                let offset = piece_start + u64::from(index) * size as u64;
                if !visit(StoredInode { inode, bytes: bytes.to_vec(), offset })? {
                    return Ok(false);
                }
            }
            done += piece;
        }
        Ok(true)
    }

    /// Whether an inode belongs to the file system itself: a reserved one other than the root, or the file of a feature.
    pub(crate) fn serves_image(&self, number: InodeNumber) -> bool {
        let superblock = &self.superblock;
        let of_features = [superblock.orphan_file_inode(), superblock.project_quota_inode()];
        number != InodeNumber::ROOT && number < self.layout.first_inode()
            || of_features.contains(&Some(number))
    }

    /// How names in casefolded directories are compared, if the image says it.
    pub(crate) fn casefold(&self) -> Option<Casefold> {
        let encoding = Encoding::from_raw(self.superblock.encoding())?;
        let strict = self.superblock.encoding_flags() & ENCODING_FLAG_STRICT != 0;
        Some(Casefold { encoding, strict })
    }

    /// Whether inodes of directories say what their entries are.
    pub(crate) fn directory_layout(
        &self,
        inode: &Inode,
    ) -> drystone_ext4_format::dir::DirectoryLayout {
        use drystone_ext4_format::inode::InodeFlags;
        drystone_ext4_format::dir::DirectoryLayout {
            file_type: self.layout.features().incompat.contains(Incompat::FILETYPE),
            checksum: inode.seed(&self.layout),
            encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            casefolded: inode.flags.contains(InodeFlags::CASEFOLD),
            inode_last: InodeNumber::new(self.layout.inodes_count()),
        }
    }
}
