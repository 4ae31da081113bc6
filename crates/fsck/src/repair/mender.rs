//! What all rules of the repair write with.

use crate::checker::Checker;
use crate::image::Error;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use std::collections::BTreeSet;

/// How a problem was mended; nothing if it can't be.
pub(super) type Mended = Option<&'static str>;

/// Mends problems of an image that was checked.
pub(super) struct Mender<'m, 'i> {
    /// What the check has found. It isn't brought up to date: a rule reads again what it changes.
    pub checker: &'m mut Checker<'i>,
    /// In seconds since 1970, as inodes store it.
    pub now: u32,
    /// Groups whose bitmaps and counts are right by now.
    pub rebuilt_groups: BTreeSet<u32>,
}

impl<'m, 'i> Mender<'m, 'i> {
    pub fn new(checker: &'m mut Checker<'i>, now_seconds: u64) -> Self {
        // Inodes have 32 bits.
        let now = now_seconds as u32;
        Self { checker, now, rebuilt_groups: BTreeSet::new() }
    }

    pub fn device(&self) -> &'i dyn BlockDevice {
        self.checker.image.device
    }

    /// Writes a whole block, which lies in the image.
    pub fn write_block(&self, block: PhysicalBlock, bytes: &[u8]) -> Result<(), Error> {
        let offset = block.get() << self.checker.image.layout.log_block_size();
        Ok(self.device().write_at(offset, bytes)?)
    }

    /// Changes the superblock, and seals it.
    pub fn edit_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<Mended, Error> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        self.device().read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
        let Ok(mut superblock) = Superblock::check_unsealed(&bytes) else { return Ok(None) };
        change(&mut superblock);
        self.device().write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
        Ok(Some("the superblock was corrected"))
    }

    /// Changes bytes of the superblock, if what comes out is one.
    pub fn edit_superblock_bytes(&self, offset: usize, new: &[u8]) -> Result<Mended, Error> {
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
    ) -> Result<Mended, Error> {
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
    ) -> Result<Mended, Error> {
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
    pub fn clear_inode(&self, number: InodeNumber) -> Result<Mended, Error> {
        let cleared = self.edit_inode(number, |bytes| bytes.fill(0))?;
        Ok(cleared.map(|_| "the inode was cleared"))
    }

    /// Where an inode lies on the device, and its bytes.
    fn inode_place(&self, number: InodeNumber) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let layout = self.checker.image.layout;
        let Ok(group) = layout.group_of_inode(number) else { return Ok(None) };
        let table = self.checker.groups[group.index()].descriptor.inode_table;
        let Some(bytes) = self.checker.inode_bytes(number)? else { return Ok(None) };
        let Ok((block, offset)) = layout.inode_location(number, table) else { return Ok(None) };
        Ok(Some(((block.get() << layout.log_block_size()) + offset as u64, bytes)))
    }

    /// Changes a group's descriptor, and seals it.
    pub fn edit_descriptor(
        &mut self,
        group: GroupNumber,
        change: impl FnOnce(&mut drystone_ext4_format::group::GroupDescriptor),
    ) -> Result<Mended, Error> {
        let layout = self.checker.image.layout;
        let Some((block, offset)) = layout.descriptor_location(group) else { return Ok(None) };
        let mut bytes = self.checker.image.read_block(block)?;
        let descriptor = &mut self.checker.groups[group.index()].descriptor;
        change(descriptor);
        descriptor.encode_into(&mut bytes[offset..], group, &layout);
        self.write_block(block, &bytes)?;
        Ok(Some("the group descriptor was corrected"))
    }
}
