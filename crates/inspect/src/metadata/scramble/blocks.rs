//! The blocks of inodes: which of them are metadata, and of which kind.

use super::{Scrambler, Seeds};
use crate::error::Result;
use crate::image::StoredInode;
use crate::map::{MapPart, walk_map};
use crate::metadata::copier::BlockCopier;
use drystone_ext4_format::extent::{self, Extent, NodePlace};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::quota::BLOCK_LENGTH as QUOTA_BLOCK_BYTES;
use drystone_ext4_format::{InodeNumber, PhysicalBlock, xattr};

impl Scrambler<'_, '_> {
    /// Copies the blocks of an inode that are metadata.
    pub(super) fn blocks_of(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        stored: &StoredInode,
    ) -> Result<()> {
        let inode = &stored.inode;
        let number = inode.number;
        let is_own = self.image.serves_image(number) && number != InodeNumber::BAD_BLOCKS;
        // Blocks of a deleted file may hold data of another one by now.
        if inode.links_count == 0 && !is_own {
            return Ok(());
        }
        if let Some(block) = inode.attribute_block {
            let (old, new) = (self.image.layout.checksum_seed(), self.new.checksum_seed());
            copier.run(block.get(), 1, &mut |block, bytes| {
                let is_right = xattr::verify_block(bytes, old, number, block).is_ok();
                self.attribute_block(bytes, block.get())?;
                let seed = if is_right { new } else { self.wrong.checksum_seed() };
                if bytes.iter().any(|&byte| byte != 0) {
                    xattr::seal_block(bytes, seed, block);
                }
                Ok(())
            })?;
        }
        if inode.is_directory() {
            self.directory(copier, stored)?;
        }
        let seeds = self.seeds_of(stored);
        let has_extents = inode.flags.contains(InodeFlags::EXTENTS);
        walk_map(self.image, inode, &mut |part| match part {
            MapPart::Node { block, .. } => copier.run(block.get(), 1, &mut |block, bytes| {
                if has_extents {
                    self.extent_block(bytes, number, block, &seeds);
                } else {
                    self.pointers(bytes);
                }
                Ok(())
            }),
            MapPart::Run(run) => self.run_of(copier, inode, &run, &seeds),
            MapPart::Problem(_) => {
                copier.summary.problems += 1;
                Ok(())
            }
        })
    }

    fn extent_block(
        &self,
        bytes: &mut [u8],
        inode: InodeNumber,
        block: PhysicalBlock,
        seeds: &Seeds,
    ) {
        let is_right = extent::check_checksum(bytes, inode, block, seeds.old).is_ok();
        let is_verified = is_right && seeds.old.is_some();
        self.extent_node(bytes, NodePlace::block(inode, block), is_verified);
        if bytes.iter().any(|&byte| byte != 0) {
            extent::seal_block(bytes, seeds.choose(is_right));
        }
    }

    /// Copies blocks of a file whose content is metadata, other than a directory.
    fn run_of(
        &self,
        copier: &mut BlockCopier<'_, '_>,
        inode: &Inode,
        run: &Extent,
        seeds: &Seeds,
    ) -> Result<()> {
        let number = inode.number;
        let superblock = &self.image.superblock;
        let block_size = self.image.layout.block_size() as u64;
        let quotas = [
            superblock.user_quota_inode(),
            superblock.group_quota_inode(),
            superblock.project_quota_inode(),
        ];
        let logical = |block: PhysicalBlock| {
            // A block of the run.
            run.logical.get().wrapping_add((block.get() - run.physical.get()) as u32)
        };
        let (start, length) = (run.physical.get(), u64::from(run.length));
        if superblock.journal_inode() == Some(number) {
            if logical(run.physical) != 0 {
                return Ok(());
            }
            return copier.run(start, 1, &mut |_, bytes| {
                self.journal_superblock(bytes);
                Ok(())
            });
        }
        if superblock.orphan_file_inode() == Some(number) {
            return copier.run(start, length, &mut |block, bytes| {
                self.orphan_block(bytes, number, block, seeds);
                Ok(())
            });
        }
        if quotas.contains(&Some(number)) {
            let per_block = block_size / QUOTA_BLOCK_BYTES as u64;
            let file_blocks = inode.size_bytes.div_ceil(QUOTA_BLOCK_BYTES as u64);
            return copier.run(start, length, &mut |block, bytes| {
                self.quota_block(bytes, u64::from(logical(block)) * per_block, file_blocks);
                Ok(())
            });
        }
        if inode.is_symlink() {
            return copier.run(start, length, &mut |block, bytes| {
                self.text(inode, u64::from(logical(block)) * block_size, bytes);
                Ok(())
            });
        }
        if inode.flags.contains(InodeFlags::EA_INODE) {
            let value_length = usize::try_from(inode.size_bytes).unwrap_or(usize::MAX);
            return copier.run(start, length, &mut |block, bytes| {
                self.value_block(bytes, number, logical(block), value_length);
                Ok(())
            });
        }
        Ok(())
    }
}
