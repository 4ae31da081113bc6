//! Updates the checksums of structures. A structure that is too damaged to have a place for its checksum stays as it is.

use super::find::ChecksumHolder;
use crate::decode::Structure;
use crate::error::Result;
use crate::image::InspectedImage;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::bitmap_checksum::{block_bitmap_checksum, inode_bitmap_checksum};
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::superblock::{self, SUPERBLOCK_BYTES};
use drystone_ext4_format::{GroupNumber, PhysicalBlock, dir, extent, htree, mmp, xattr};

/// Updates the checksum of a superblock, whose features say whether it has one.
pub(super) fn superblock(device: &dyn BlockDevice, holder: &ChecksumHolder) -> Result<()> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(holder.offset, &mut bytes)?;
    superblock::seal(&mut bytes);
    Ok(device.write_at(holder.offset, &bytes)?)
}

/// Updates the checksum of any other structure. `image` has the superblock from before the change.
pub(super) fn of_image(
    device: &dyn BlockDevice,
    image: &InspectedImage<'_>,
    holder: &ChecksumHolder,
) -> Result<()> {
    let layout = &image.layout;
    let seed = layout.checksum_seed();
    let block = PhysicalBlock::new(holder.offset >> layout.log_block_size());
    let seal_in_place = |seal: &dyn Fn(&mut [u8])| -> Result<()> {
        // It was read to be shown.
        let mut bytes = vec![0; holder.length as usize];
        device.read_at(holder.offset, &mut bytes)?;
        seal(&mut bytes);
        Ok(device.write_at(holder.offset, &bytes)?)
    };
    match holder.structure {
        Structure::Plain => Ok(()),
        Structure::Superblock => superblock(device, holder),
        Structure::Descriptor(group) => {
            seal_in_place(&|bytes| GroupDescriptor::seal(bytes, group, layout))
        }
        Structure::BlockBitmap(group) => seal_bitmap(device, image, group, &|descriptor| {
            let bits = image.read_block(block)?;
            descriptor.block_bitmap_checksum = block_bitmap_checksum(&bits, layout);
            Ok(())
        }),
        Structure::InodeBitmap(group) => seal_bitmap(device, image, group, &|descriptor| {
            let bits = image.read_block(block)?;
            descriptor.inode_bitmap_checksum = inode_bitmap_checksum(&bits, layout);
            Ok(())
        }),
        Structure::Inode(number) => seal_in_place(&|bytes| Inode::seal(bytes, number, layout)),
        Structure::ExtentNode(number) => {
            let seed = image.inode(number)?.inode.seed(layout);
            seal_in_place(&|bytes| extent::seal_block(bytes, seed))
        }
        Structure::Records(number) => {
            let layout = image.directory_layout(&image.inode(number)?.inode);
            seal_in_place(&|bytes| dir::seal(bytes, &layout))
        }
        Structure::Index(number, kind) => {
            let layout = image.directory_layout(&image.inode(number)?.inode);
            seal_in_place(&|bytes| htree::seal(bytes, kind, &layout))
        }
        Structure::Attributes => seal_in_place(&|bytes| xattr::seal_block(bytes, seed, block)),
        Structure::Orphans(inode) => {
            let checksum = image.inode(inode)?.inode.seed(layout);
            let place = OrphanPlace { inode, block, checksum };
            seal_in_place(&|bytes| orphan_file::seal(bytes, &place))
        }
        Structure::MultiMount => seal_in_place(&|bytes| mmp::seal(bytes, seed)),
        Structure::Journal => seal_in_place(&drystone_jbd2_format::seal_superblock),
    }
}

/// Updates the checksum of a bitmap, which is in the descriptor, and that of the descriptor.
fn seal_bitmap(
    device: &dyn BlockDevice,
    image: &InspectedImage<'_>,
    group: GroupNumber,
    compute: &dyn Fn(&mut GroupDescriptor) -> Result<()>,
) -> Result<()> {
    if image.layout.checksum_seed().is_none() {
        return Ok(());
    }
    let (mut descriptor, mut bytes) = image.descriptor(group)?;
    compute(&mut descriptor)?;
    descriptor.encode_into(&mut bytes, group, &image.layout);
    Ok(device.write_at(image.descriptor_offset(group)?, &bytes)?)
}
