//! The map of a new file: extents where the image has them, else pointers.

use crate::error::Result;
use crate::space::{BlockRun, Space};
use drystone_ext4_format::block_map::{self, MapPath};
use drystone_ext4_format::extent::{
    Extent, ExtentIndex, ExtentNodeMut, NodePlace, WRITTEN_BLOCKS_MAX, entries_per_block,
};
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{GroupNumber, InodeSeed, LogicalBlock, PhysicalBlock};
use std::collections::BTreeMap;

/// Extents that fit an inode.
const ROOT_EXTENTS: usize = 4;

/// Blocks to be written, by number.
pub(crate) type BlocksToWrite = BTreeMap<u64, Vec<u8>>;

/// Maps `runs`, in order, as the content of `inode`, and counts its space.
pub(crate) fn map(
    inode: &mut Inode,
    runs: &[BlockRun],
    layout: &Layout,
    seed: Option<InodeSeed>,
    space: &mut Space,
    blocks: &mut BlocksToWrite,
) -> Result<()> {
    let data: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    let nodes = if layout.features().incompat.contains(Incompat::EXTENTS) {
        inode.flags |= InodeFlags::EXTENTS;
        map_extents(inode, runs, layout, seed, space, blocks)?
    } else {
        map_pointers(inode, runs, layout, space, blocks)?
    };
    let clusters = layout.clusters_for(data) + nodes;
    let blocks_used = clusters * u64::from(layout.blocks_per_cluster());
    inode.sectors += blocks_used * layout.sectors_per_block();
    Ok(())
}

/// Returns how many nodes there are beside the inode.
fn map_extents(
    inode: &mut Inode,
    runs: &[BlockRun],
    layout: &Layout,
    seed: Option<InodeSeed>,
    space: &mut Space,
    blocks: &mut BlocksToWrite,
) -> Result<u64> {
    let extents = extents(runs);
    let mut area = [0; BLOCK_AREA_BYTES];
    let place = NodePlace::root(inode.number);
    if extents.len() <= ROOT_EXTENTS {
        let mut root = ExtentNodeMut::init(&mut area, place, 0);
        for (position, extent) in extents.iter().enumerate() {
            root.insert_extent(position, extent);
        }
        inode.block_area = area;
        return Ok(0);
    }
    let per_leaf = usize::from(entries_per_block(layout.block_size()));
    let mut root = ExtentNodeMut::init(&mut area, place, 1);
    let mut nodes = 0;
    for (position, chunk) in extents.chunks(per_leaf).enumerate() {
        let block = take_block(space, "the map of the journal")?;
        let mut bytes = vec![0; layout.block_size()];
        let mut leaf = ExtentNodeMut::init(&mut bytes, NodePlace::block(inode.number, block), 0);
        for (position, extent) in chunk.iter().enumerate() {
            leaf.insert_extent(position, extent);
        }
        leaf.seal(seed);
        root.insert_index(position, &ExtentIndex { logical: chunk[0].logical, child: block });
        blocks.insert(block.get(), bytes);
        nodes += 1;
    }
    inode.block_area = area;
    Ok(nodes)
}

/// Runs as extents: contiguous in the file, none longer than an extent can be.
fn extents(runs: &[BlockRun]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut logical = 0;
    for run in runs {
        let mut done = 0;
        while done < run.length {
            let length = (run.length - done).min(WRITTEN_BLOCKS_MAX);
            extents.push(Extent {
                logical: LogicalBlock::new(logical),
                length,
                physical: PhysicalBlock::new(run.start + u64::from(done)),
                unwritten: false,
            });
            done += length;
            logical += length;
        }
    }
    extents
}

/// Returns how many blocks of pointers there are.
fn map_pointers(
    inode: &mut Inode,
    runs: &[BlockRun],
    layout: &Layout,
    space: &mut Space,
    blocks: &mut BlocksToWrite,
) -> Result<u64> {
    let numbers = runs.iter().flat_map(|run| run.start..run.start + u64::from(run.length));
    let mut nodes = 0;
    for (logical, physical) in numbers.enumerate() {
        let Some(path) = MapPath::new(LogicalBlock::new(logical as u32), layout) else { break };
        let (root, below) = path.indexes().split_at(1);
        let mut index = root[0];
        let mut holder: Option<u64> = None;
        for &next in below {
            let child = match get(inode, holder, index, blocks) {
                0 => {
                    let block = take_block(space, "the map of a file")?;
                    blocks.insert(block.get(), vec![0; layout.block_size()]);
                    set(inode, holder, index, block.get(), blocks);
                    nodes += 1;
                    block.get()
                }
                child => u64::from(child),
            };
            holder = Some(child);
            index = next;
        }
        set(inode, holder, index, physical, blocks);
    }
    Ok(nodes)
}

/// A pointer of the inode, or of a block of pointers.
fn get(inode: &Inode, holder: Option<u64>, index: u32, blocks: &BlocksToWrite) -> u32 {
    let bytes = match holder {
        None => &inode.block_area[..],
        Some(block) => &blocks[&block][..],
    };
    let at = index as usize * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn set(inode: &mut Inode, holder: Option<u64>, index: u32, block: u64, blocks: &mut BlocksToWrite) {
    let bytes = match holder {
        None => &mut inode.block_area[..],
        // Every holder was inserted when it was taken.
        Some(holder) => blocks.entry(holder).or_default(),
    };
    block_map::set_pointer(bytes, index, Some(PhysicalBlock::new(block)));
}

/// One block (with its cluster) near the start of the image.
pub(crate) fn take_block(space: &mut Space, what: &'static str) -> Result<PhysicalBlock> {
    space.take_contiguous(GroupNumber::FIRST, 1, what)
}
