//! Decodes a group: its descriptor, bitmaps and inode table.

use super::{Builder, Decoded, Structure, meaning};
use crate::error::Result;
use crate::image::InspectedImage;
use drystone_ext4_format::bitmap_checksum::{check_block_bitmap, check_inode_bitmap};
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::group::{self, GroupDescriptor, GroupFlags};
use drystone_ext4_format::{GroupNumber, PhysicalBlock};
use drystone_ondisk::bitmap;

/// Bytes of a small descriptor.
const SMALL_BYTES: usize = 32;

pub(super) fn group(image: &InspectedImage<'_>, number: GroupNumber) -> Result<Decoded> {
    let (descriptor, bytes) = image.descriptor(number)?;
    let mut decoded = fields(image, number, &bytes)?;
    let layout = &image.layout;
    let first = layout.group_first_block(number).get();
    let last = first + u64::from(layout.group_block_count(number)) - 1;
    decoded.name = format!("group {number}, blocks {first} to {last}");
    if let Some((block, offset)) = layout.superblock_location(number) {
        let at = image.offset_of(block) + offset as u64;
        decoded.parts.push(Decoded::new("superblock", at, 1024));
    }
    for (name, block, is_inodes) in [
        ("block bitmap", descriptor.block_bitmap, false),
        ("inode bitmap", descriptor.inode_bitmap, true),
    ] {
        decoded.parts.push(bitmap_part(image, number, &descriptor, name, block, is_inodes));
    }
    let table = descriptor.inode_table;
    let length = u64::from(layout.inode_table_blocks()) << layout.log_block_size();
    let name = format!("inode table, block {table}");
    decoded.parts.push(Decoded::new(
        name,
        table.get().saturating_mul(layout.block_size() as u64),
        length,
    ));
    Ok(decoded)
}

/// The fields and verdicts of a descriptor.
pub(super) fn fields(
    image: &InspectedImage<'_>,
    number: GroupNumber,
    bytes: &[u8],
) -> Result<Decoded> {
    let layout = &image.layout;
    let offset = image.descriptor_offset(number)?;
    let name = format!("descriptor of group {number}");
    let structure = Structure::Descriptor(number);
    let mut builder = Builder::new(name, offset, bytes).structure(structure);
    builder.table(0, group::FIELDS, &meaning::of_group);
    if layout.descriptor_size() > SMALL_BYTES {
        for field in group::HIGH_FIELDS {
            let name = format!("{}_hi", field.name.trim_end_matches("_hi"));
            builder.field(&name, SMALL_BYTES + field.offset, field.length, &meaning::of_group);
        }
    }
    let mut decoded = builder.decoded;
    let exists = layout.checksums() != Checksums::None;
    decoded.checksum(exists, GroupDescriptor::check_checksum(bytes, number, layout));
    let descriptor = GroupDescriptor::read(bytes, layout)?;
    decoded.problem(descriptor.check_locations(number, layout));
    decoded.problem(descriptor.check_counts(number, layout));
    Ok(decoded)
}

fn bitmap_part(
    image: &InspectedImage<'_>,
    group: GroupNumber,
    descriptor: &GroupDescriptor,
    name: &str,
    block: PhysicalBlock,
    is_inodes: bool,
) -> Decoded {
    let layout = &image.layout;
    let size = layout.block_size() as u64;
    let offset = block.get().saturating_mul(size);
    let mut decoded = Decoded::new(format!("{name}, block {block}"), offset, size);
    let bits = match image.read_block(block) {
        Ok(bits) => bits,
        Err(error) => {
            decoded.problems.push(error.to_string());
            return decoded;
        }
    };
    let structure = if is_inodes { Structure::InodeBitmap } else { Structure::BlockBitmap };
    decoded.structure = structure(group);
    let uninitialised = if is_inodes { GroupFlags::INODE_UNINIT } else { GroupFlags::BLOCK_UNINIT };
    if layout.checksums() != Checksums::None && descriptor.flags.contains(uninitialised) {
        decoded.name += ", not initialised";
        return decoded;
    }
    let exists = layout.checksum_seed().is_some();
    let (count, counted, what) = if is_inodes {
        decoded.checksum(exists, check_inode_bitmap(&bits, group, descriptor, layout));
        (layout.inodes_per_group(), descriptor.free_inodes_count, "inodes")
    } else {
        decoded.checksum(exists, check_block_bitmap(&bits, group, descriptor, layout));
        (layout.group_cluster_count(group), descriptor.free_clusters_count, "clusters")
    };
    let free = bitmap::count_zeros(&bits, 0..(count as usize).min(bits.len() * 8));
    decoded.name += &format!(", {free} of {count} {what} free");
    if free as u64 != u64::from(counted) {
        decoded.problems.push(format!("the descriptor counts {counted} free {what}"));
    }
    decoded
}
