//! The resize inode: its blocks follow from the geometry, so it is made anew.

use super::repairer::{Done, Repairer};
use crate::image::Error;
use crate::special::GROWTH_POINTER;
use drystone_ext4_format::block_map::{self, pointers_per_block, set_pointer};
use drystone_ext4_format::features::Compat;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags, ModeFileType};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};

pub(super) fn rebuild(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    const DONE: Done = Some("the resize inode was made anew");
    let number = InodeNumber::RESIZE;
    if !repairer.rebuilt_maps.insert(number.get()) {
        return Ok(DONE);
    }
    let layout = repairer.checker.image.layout;
    if !layout.features().compat.contains(Compat::RESIZE_INODE) {
        return repairer.clear_inode(number);
    }
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    let Some(table) = layout.group_base(GroupNumber::FIRST).descriptors else { return Ok(None) };
    let stored = block_map::pointer(&inode.block_area, GROWTH_POINTER, number, None, &layout);
    let stored = stored.ok().flatten().filter(|block| {
        repairer.is_alone(*block)
            && repairer.checker.found.claims.fixed_at(block.get(), block.get() + 1).is_none()
    });
    let top_block = match stored {
        Some(block) => Some(block),
        None => repairer.allocate()?,
    };
    let Some(top_block) = top_block else { return Ok(None) };
    if u32::try_from(top_block.get()).is_err() {
        return Ok(None);
    }
    let pointers = u64::from(pointers_per_block(&layout));
    let base = layout.group_base(GroupNumber::FIRST);
    let first = table.get() + u64::from(base.descriptor_blocks);
    let reserved = u64::from(layout.reserved_descriptor_blocks());
    let mut top = repairer.checker.image.block_buffer();
    for block in first..first + reserved {
        // A reserved block's place is its number among descriptor blocks, modulo the pointers.
        let index = (block - table.get()) % pointers;
        set_pointer(&mut top, index as u32, Some(PhysicalBlock::new(block)));
        let mut below = repairer.checker.image.block_buffer();
        let distance = block - u64::from(layout.first_data_block());
        for (place, group) in (0..pointers).zip(layout.superblock_groups().skip(1)) {
            let copy = layout.group_first_block(group).get() + distance;
            if u32::try_from(copy).is_err() {
                return Ok(None);
            }
            set_pointer(&mut below, place as u32, Some(PhysicalBlock::new(copy)));
        }
        repairer.write_block(PhysicalBlock::new(block), &below)?;
    }
    repairer.write_block(top_block, &top)?;
    let repaired = repairer.edit_fields(number, |inode: &mut Inode| {
        inode.mode = ModeFileType::Regular.mode_bits() | 0o600;
        inode.links_count = 1;
        inode.deletion_time = 0;
        inode.flags.remove(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        inode.block_area = [0; BLOCK_AREA_BYTES];
        set_pointer(&mut inode.block_area, GROWTH_POINTER, Some(top_block));
        // The last block that two levels of pointers reach.
        inode.size_bytes = (pointers * pointers + pointers + 12) * layout.block_size() as u64;
    })?;
    Ok(repaired.and(DONE))
}
