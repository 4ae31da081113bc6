//! Finds the metadata blocks of an image, and fixes their checksums after a change: for tests that
//! damage images.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::dir::{self, DirectoryLayout};
use drystone_ext4_format::extent::{ExtentNode, NodePlace};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::htree::{self, IndexKind};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, InodeSeed, PhysicalBlock, block_map, xattr};
use drystone_ondisk::crc32c;
use std::collections::BTreeMap;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockContent {
    /// The primary superblock.
    Superblock,
    /// A copy of it.
    SuperblockBackup,
    /// Group descriptors.
    Descriptors,
    /// A copy of some.
    DescriptorsBackup,
    /// A group's block bitmap.
    BlockBitmap(GroupNumber),
    /// A group's inode bitmap.
    InodeBitmap(GroupNumber),
    /// Inodes from this number on.
    InodeTable(InodeNumber),
    /// A node of an inode's extent tree, and its seed.
    ExtentNode(InodeNumber, Option<InodeSeed>),
    /// Pointers of a block map.
    IndirectBlock,
    /// A directory's block, and its seed.
    Directory(InodeNumber, Option<InodeSeed>),
    /// Extended attributes.
    Attributes,
    /// A block of the orphan file, and its seed.
    OrphanFile(InodeNumber, Option<InodeSeed>),
    /// A block of a quota file.
    Quota,
    /// The block of multi-mount protection.
    Mmp,
    /// The journal's first block.
    JournalSuperblock,
    /// Another block of the journal.
    Log,
}

impl BlockContent {
    /// The kind's name without its place.
    #[must_use]
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    }
}

/// An image and its metadata blocks.
pub struct MetadataMap {
    /// The image.
    pub device: MemoryDevice,
    /// Its superblock.
    pub superblock: Superblock,
    /// What each block of metadata holds.
    pub blocks: BTreeMap<u64, BlockContent>,
}

impl MetadataMap {
    /// Finds all metadata of a sound image.
    ///
    /// # Panics
    /// If the image isn't sound.
    #[must_use]
    pub fn of(device: MemoryDevice) -> MetadataMap {
        let bytes = read(&device, SUPERBLOCK_OFFSET_BYTES, SUPERBLOCK_BYTES);
        let superblock = Superblock::check(&bytes).unwrap();
        let mut map = MetadataMap { device, superblock, blocks: BTreeMap::new() };
        map.find_groups();
        let inodes = map.layout().inodes_count();
        for number in 1..=inodes {
            map.find_inode(InodeNumber::new(number));
        }
        if let Some(block) = map.superblock.mmp_block() {
            map.blocks.insert(block.get(), BlockContent::Mmp);
        }
        map
    }

    /// Where the image keeps its parts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.superblock.layout()
    }

    /// The content of a block.
    #[must_use]
    pub fn block(&self, block: u64) -> Vec<u8> {
        let size = self.layout().block_size();
        read(&self.device, block * size as u64, size)
    }

    /// The descriptor of a group.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn descriptor(&self, group: GroupNumber) -> GroupDescriptor {
        let (block, offset) = self.layout().descriptor_location(group).unwrap();
        GroupDescriptor::read(&self.block(block.get())[offset..], self.layout()).unwrap()
    }

    fn find_groups(&mut self) {
        let layout = *self.layout();
        for group in layout.groups() {
            if let Some((block, _)) = layout.superblock_location(group) {
                let first = group == GroupNumber::FIRST;
                let content =
                    if first { BlockContent::Superblock } else { BlockContent::SuperblockBackup };
                self.blocks.insert(block.get(), content);
            }
            let descriptor = self.descriptor(group);
            self.blocks.insert(descriptor.block_bitmap.get(), BlockContent::BlockBitmap(group));
            self.blocks.insert(descriptor.inode_bitmap.get(), BlockContent::InodeBitmap(group));
            for index in 0..layout.inode_table_blocks() {
                let first =
                    group.get() * layout.inodes_per_group() + index * layout.inodes_per_block() + 1;
                let content = BlockContent::InodeTable(InodeNumber::new(first));
                self.blocks.insert(descriptor.inode_table.get() + u64::from(index), content);
            }
        }
        for index in 0..layout.descriptor_blocks() {
            let primary = layout.descriptor_block(index).unwrap();
            self.blocks.insert(primary.get(), BlockContent::Descriptors);
            for backup in layout.descriptor_backups(index) {
                self.blocks.insert(backup.get(), BlockContent::DescriptorsBackup);
            }
        }
    }

    /// The bytes of an inode.
    ///
    /// # Panics
    /// If there is no such inode.
    #[must_use]
    pub fn inode_bytes(&self, number: InodeNumber) -> Vec<u8> {
        let layout = self.layout();
        let (group, bit) = layout.bit_of_inode(number).unwrap();
        let table = self.descriptor(group).inode_table.get() * layout.block_size() as u64;
        let size = layout.inode_size();
        read(&self.device, table + u64::from(bit) * size as u64, size)
    }

    fn find_inode(&mut self, number: InodeNumber) {
        let layout = *self.layout();
        let Ok(inode) = Inode::read(&self.inode_bytes(number), number, &layout) else { return };
        if inode.links_count == 0 && inode.size_bytes == 0 {
            return;
        }
        if let Some(block) = inode.attribute_block {
            self.blocks.insert(block.get(), BlockContent::Attributes);
        }
        if !inode.has_block_mapping() || inode.sectors == 0 {
            return;
        }
        let seed = inode.seed(&layout);
        let mut data = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.find_extents(&inode, seed, &inode.block_area, None, &mut data);
        } else {
            for index in 0..15 {
                let levels = block_map::levels_of_root_pointer(index);
                self.find_indirect(&inode, &inode.block_area, index, None, levels, &mut data);
            }
        }
        let quotas = [
            self.superblock.user_quota_inode(),
            self.superblock.group_quota_inode(),
            self.superblock.project_quota_inode(),
        ];
        let content = if inode.is_directory() {
            BlockContent::Directory(number, seed)
        } else if Some(number) == self.superblock.journal_inode() {
            BlockContent::Log
        } else if Some(number) == self.superblock.orphan_file_inode() {
            BlockContent::OrphanFile(number, seed)
        } else if quotas.contains(&Some(number)) {
            BlockContent::Quota
        } else {
            return;
        };
        for (index, block) in data.into_iter().enumerate() {
            // Blocks of the log that were never written aren't worth damaging.
            if content == BlockContent::Log
                && index > 0
                && self.block(block).iter().all(|&b| b == 0)
            {
                continue;
            }
            let is_head = content == BlockContent::Log && index == 0;
            self.blocks
                .insert(block, if is_head { BlockContent::JournalSuperblock } else { content });
        }
    }

    fn find_extents(
        &mut self,
        inode: &Inode,
        seed: Option<InodeSeed>,
        node: &[u8],
        at: Option<PhysicalBlock>,
        data: &mut Vec<u64>,
    ) {
        let place = NodePlace { inode: inode.number, block: at };
        let node = ExtentNode::reopen(node, place).unwrap();
        for extent in node.extents() {
            let first = extent.physical.get();
            data.extend(first..first + u64::from(extent.length));
        }
        for index in node.indexes() {
            let block = index.child;
            self.blocks.insert(block.get(), BlockContent::ExtentNode(inode.number, seed));
            let bytes = self.block(block.get());
            self.find_extents(inode, seed, &bytes, Some(block), data);
        }
    }

    fn find_indirect(
        &mut self,
        inode: &Inode,
        holder: &[u8],
        index: u32,
        at: Option<PhysicalBlock>,
        levels: usize,
        data: &mut Vec<u64>,
    ) {
        let layout = *self.layout();
        let found = block_map::pointer(holder, index, inode.number, at, &layout).unwrap();
        let Some(block) = found else { return };
        if levels == 0 {
            data.push(block.get());
            return;
        }
        self.blocks.insert(block.get(), BlockContent::IndirectBlock);
        let bytes = self.block(block.get());
        for index in 0..block_map::pointers_per_block(&layout) {
            self.find_indirect(inode, &bytes, index, Some(block), levels - 1, data);
        }
    }

    /// Corrects the checksums of a changed block, in the block itself and in `device`'s
    /// descriptors.
    ///
    /// # Panics
    /// If the device fails.
    pub fn seal(
        &self,
        device: &dyn BlockDevice,
        block: u64,
        content: BlockContent,
        bytes: &mut [u8],
    ) {
        let layout = self.layout();
        match content {
            BlockContent::Superblock | BlockContent::SuperblockBackup => {
                let start = if block == 0 { 1024 } else { 0 };
                let bytes = &mut bytes[start..start + SUPERBLOCK_BYTES];
                let checksum = crc32c(!0, &bytes[..1020]);
                bytes[1020..].copy_from_slice(&checksum.to_le_bytes());
            }
            BlockContent::Descriptors | BlockContent::DescriptorsBackup => {
                for (index, bytes) in bytes.chunks_exact_mut(layout.descriptor_size()).enumerate() {
                    let group = GroupNumber::new(index as u32);
                    if group.get() < layout.group_count()
                        && let Ok(descriptor) = GroupDescriptor::read(bytes, layout)
                    {
                        descriptor.encode_into(bytes, group, layout);
                    }
                }
            }
            BlockContent::BlockBitmap(group) => {
                let checksum = block_bitmap_checksum(bytes, layout);
                self.reseal_group(device, group, |group| group.block_bitmap_checksum = checksum);
            }
            BlockContent::InodeBitmap(group) => {
                let checksum = inode_bitmap_checksum(bytes, layout);
                self.reseal_group(device, group, |group| group.inode_bitmap_checksum = checksum);
            }
            BlockContent::InodeTable(first) => {
                for (index, bytes) in bytes.chunks_exact_mut(layout.inode_size()).enumerate() {
                    if bytes.iter().any(|&byte| byte != 0) {
                        Inode::seal(bytes, InodeNumber::new(first.get() + index as u32), layout);
                    }
                }
            }
            BlockContent::ExtentNode(_, seed) => {
                let Some(seed) = seed else { return };
                let max = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
                let tail = 12 + 12 * max;
                if tail + 4 <= bytes.len() {
                    let checksum = seed.append(&bytes[..tail]);
                    bytes[tail..tail + 4].copy_from_slice(&checksum.to_le_bytes());
                }
            }
            BlockContent::Directory(_, seed) => {
                let layout = DirectoryLayout {
                    file_type: true,
                    checksum: seed,
                    encrypted: false,
                    casefolded: false,
                    inode_last: InodeNumber::new(layout.inodes_count()),
                };
                match IndexKind::of(bytes) {
                    Some(kind) => htree::seal(bytes, kind, &layout),
                    None => dir::seal(bytes, &layout),
                }
            }
            BlockContent::Attributes => {
                xattr::seal_block(bytes, layout.checksum_seed(), PhysicalBlock::new(block));
            }
            BlockContent::OrphanFile(inode, checksum) => {
                let place = OrphanPlace { inode, block: PhysicalBlock::new(block), checksum };
                orphan_file::seal(bytes, &place);
            }
            BlockContent::Mmp => {
                if let Some(seed) = layout.checksum_seed() {
                    let checksum = seed.append(&bytes[..1020]);
                    bytes[1020..1024].copy_from_slice(&checksum.to_le_bytes());
                }
            }
            BlockContent::JournalSuperblock => {
                put_with_hole(bytes, 1024, 0xfc, !0);
            }
            BlockContent::Log => {
                let Some(uuid) = self.journal_uuid() else { return };
                let seed = crc32c(!0, &uuid);
                let size = bytes.len();
                match bytes[..8] {
                    [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1 | 5] => {
                        put_with_hole(bytes, size, size - 4, seed);
                    }
                    [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2] => put_with_hole(bytes, size, 0x10, seed),
                    _ => {}
                }
            }
            BlockContent::IndirectBlock | BlockContent::Quota => {}
        }
    }

    fn journal_uuid(&self) -> Option<Vec<u8>> {
        let head = |content: &BlockContent| *content == BlockContent::JournalSuperblock;
        let (&block, _) = self.blocks.iter().find(|(_, content)| head(content))?;
        Some(self.block(block)[0x30..0x40].to_vec())
    }

    /// Changes a group's descriptor on `device` and corrects its checksum.
    ///
    /// # Panics
    /// If there is no such group, or the device fails.
    pub fn reseal_group(
        &self,
        device: &dyn BlockDevice,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDescriptor),
    ) {
        let layout = self.layout();
        let (block, offset) = layout.descriptor_location(group).unwrap();
        let at = block.get() * layout.block_size() as u64 + offset as u64;
        let mut bytes = read(device, at, layout.descriptor_size());
        let mut descriptor = GroupDescriptor::read(&bytes, layout).unwrap();
        change(&mut descriptor);
        descriptor.encode_into(&mut bytes, group, layout);
        device.write_at(at, &bytes).unwrap();
    }
}

/// Stores a big-endian checksum over the first `length` bytes with its own place zeroed.
fn put_with_hole(bytes: &mut [u8], length: usize, at: usize, seed: u32) {
    bytes[at..at + 4].fill(0);
    let checksum = crc32c(seed, &bytes[..length]);
    bytes[at..at + 4].copy_from_slice(&checksum.to_be_bytes());
}

fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}
