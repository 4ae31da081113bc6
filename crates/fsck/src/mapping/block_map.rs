//! Block maps: every pointer.

use super::{MapEvent, MapWalk};
use crate::image::Error;
use drystone_ext4_format::block_map::{self, ROOT_POINTERS, blocks_under, levels_of_root_pointer};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::{LogicalBlock, PhysicalBlock};

pub(crate) fn walk(walk: &mut MapWalk<'_, '_>) -> Result<(), Error> {
    let mut run = ContiguousBlocks::default();
    let area = walk.inode.block_area;
    // There are 15 pointers.
    for index in 0..ROOT_POINTERS as u32 {
        let layout = walk.image.layout;
        let Some(logical) = block_map::logical_of_root_pointer(index, &layout) else { break };
        let levels = levels_of_root_pointer(index);
        pointer(walk, &mut run, Holder { bytes: &area, block: None }, index, levels, logical)?;
    }
    run.end(walk);
    Ok(())
}

/// What holds a pointer.
#[derive(Clone, Copy)]
struct Holder<'a> {
    bytes: &'a [u8],
    block: Option<PhysicalBlock>,
}

/// Blocks that follow each other in the file and on the device.
#[derive(Default)]
struct ContiguousBlocks(Option<Extent>);

impl ContiguousBlocks {
    fn push(&mut self, walk: &mut MapWalk<'_, '_>, logical: u64, physical: PhysicalBlock) {
        // No file has a block beyond 32 bits; the size is checked elsewhere.
        let Ok(logical) = u32::try_from(logical) else { return };
        let logical = LogicalBlock::new(logical);
        let next = Extent::of_block(logical, physical);
        if let Some(merged) = self.0.and_then(|run| run.merge(&next)) {
            self.0 = Some(merged);
        } else {
            self.end(walk);
            self.0 = Some(next);
        }
    }

    fn end(&mut self, walk: &mut MapWalk<'_, '_>) {
        if let Some(extent) = self.0.take() {
            (walk.event)(MapEvent::Extent(extent));
        }
    }
}

fn pointer(
    walk: &mut MapWalk<'_, '_>,
    run: &mut ContiguousBlocks,
    holder: Holder<'_>,
    index: u32,
    levels: usize,
    logical: u64,
) -> Result<(), Error> {
    let layout = walk.image.layout;
    let found = block_map::pointer(holder.bytes, index, walk.inode.number, holder.block, &layout);
    let block = match found {
        Ok(Some(block)) => block,
        Ok(None) => return Ok(()),
        Err(corrupt) => {
            walk.issue(corrupt);
            return Ok(());
        }
    };
    if levels == 0 {
        run.push(walk, logical, block);
        return Ok(());
    }
    let Some(bytes) = walk.enter(block)? else { return Ok(()) };
    let below = Holder { bytes: &bytes, block: Some(block) };
    let span = blocks_under(levels - 1, &layout);
    for index in 0..block_map::pointers_per_block(&layout) {
        pointer(walk, run, below, index, levels - 1, logical + u64::from(index) * span)?;
    }
    Ok(())
}
