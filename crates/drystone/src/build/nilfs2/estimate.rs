//! Estimates how many blocks a tree needs on NILFS2: an upper bound, mostly within a few percent.
//!
//! How full the nodes of maps and the summaries of logs become isn't known before they are made. Surplus blocks
//! become free space.

use super::batch::{BATCH_BYTES, WRITE_BYTES, WRITERS_MAX};
use drystone_mkfs::build::{Size, SpareRoom};
use drystone_mkfs::tree::{FileTree, Node, NodeKind, TreeNodeId};
use drystone_mkfs::{Error, Result};
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_nilfs2_format::Geometry;
use drystone_nilfs2_format::directory::needed;
use drystone_nilfs2_format::geometry::RESERVED_SEGMENTS_MIN;
use drystone_nilfs2_format::inode::INODE_BYTES;

/// Bytes of an entry of the DAT.
const DAT_ENTRY_BYTES: u64 = 32;
/// Bytes that a summary has of each block, and of each file beside.
const ITEM_BYTES: u64 = 16;
const FINFO_BYTES: u64 = 24;
/// Blocks that each checkpoint writes anew of the metadata files, whatever it holds.
const CHECKPOINT_BLOCKS: u64 = 64;
/// Segments that have to be clean beside those that are written and reserved.
const SPARE_SEGMENTS: u64 = 4;
/// An image has at least so many segments if the builder may choose their length.
const SEGMENTS_MIN: u64 = 64;
/// The lengths of segments that the builder chooses from, in blocks.
const SEGMENT_BLOCKS: std::ops::RangeInclusive<u32> = 256..=2048;

/// What a tree needs.
#[derive(Debug)]
pub(super) struct Demand {
    block_bytes: u64,
    inodes: u64,
    /// Blocks of files, directories and links, and the nodes above them.
    blocks: u64,
}

impl Demand {
    pub(super) fn new(block_bytes: u64) -> Self {
        Self { block_bytes, inodes: 0, blocks: 0 }
    }

    pub(super) fn add(&mut self, tree: &FileTree, id: TreeNodeId) {
        let node = tree.node(id);
        let blocks = match node.kind() {
            NodeKind::Directory => {
                let names = tree.children(id).map(|(name, _)| needed(name.len()) as u64);
                // The rest of a block may be too short for the next name.
                let usable = self.block_bytes - needed(255) as u64;
                1 + (names.sum::<u64>() + 24).div_ceil(usable)
            }
            NodeKind::Symlink(_) => 1,
            NodeKind::File { .. } => self.data_blocks(node),
            _ => 0,
        };
        self.inodes += 1;
        self.blocks += blocks + self.map_nodes(blocks);
    }

    fn data_blocks(&self, node: Node<'_>) -> u64 {
        let inline = node.inline_bytes().map_or(0, |bytes| bytes.len() as u64);
        let pieces = node.segments().map(|segment| {
            let end = (segment.logical + segment.length).div_ceil(self.block_bytes);
            end - segment.logical / self.block_bytes
        });
        inline.div_ceil(self.block_bytes) + pieces.sum::<u64>()
    }

    /// Nodes of a map of so many blocks, which are half full if keys come in order.
    fn map_nodes(&self, blocks: u64) -> u64 {
        if blocks == 0 { 0 } else { blocks.div_ceil(self.block_bytes / 32 - 2) * 17 / 16 + 2 }
    }

    /// Blocks that are written in all.
    fn written_blocks(&self) -> u64 {
        let entries = self.inodes + 16;
        let ifile = entries.div_ceil(self.block_bytes / INODE_BYTES as u64) + 2;
        let ifile = ifile + entries / (self.block_bytes * 8) + self.map_nodes(ifile);
        let batches = 2
            + self.blocks * self.block_bytes / BATCH_BYTES
            + self.inodes * self.block_bytes / BATCH_BYTES;
        // A block of the ifile is written twice if its directories are completed later.
        let mut virtual_blocks = self.blocks + 2 * ifile + batches * CHECKPOINT_BLOCKS;
        virtual_blocks += virtual_blocks / 64;
        let dat = virtual_blocks.div_ceil(self.block_bytes / DAT_ENTRY_BYTES);
        // Each batch ends and begins in the middle of blocks.
        let dat = 2 * dat + self.map_nodes(dat) + 8 * batches;
        let blocks = virtual_blocks + dat;
        let summaries = blocks * ITEM_BYTES + self.inodes * FINFO_BYTES;
        blocks + summaries.div_ceil(self.block_bytes - 64) + 2 * batches
    }

    /// The length of segments that suits the size.
    pub(super) fn blocks_per_segment(&self, fixed_bytes: Option<u64>) -> u32 {
        let blocks = fixed_bytes.map_or(self.written_blocks(), |bytes| bytes / self.block_bytes);
        let mut length = *SEGMENT_BLOCKS.end();
        while length > *SEGMENT_BLOCKS.start() && u64::from(length) * SEGMENTS_MIN > blocks {
            length /= 2;
        }
        length
    }

    /// Segments that must not be reserved.
    fn segments(&self, per_segment: u64) -> u64 {
        let usable = self.usable(per_segment);
        let written = self.written_blocks();
        // The engine keeps room for the metadata of what is dirty, and for what its callers are about to do.
        let dirty = written.min(BATCH_BYTES / self.block_bytes);
        let claims = WRITERS_MAX as u64 * (WRITE_BYTES as u64 / self.block_bytes + 4);
        written.div_ceil(usable)
            + (dirty / 2 + claims + CHECKPOINT_BLOCKS).div_ceil(usable)
            + SPARE_SEGMENTS
            + RESERVED_SEGMENTS_MIN
    }

    /// Segments that the engine keeps for metadata: it writes the DAT with the last batch, and could write it
    /// again, and twice more all metadata files, to take back space.
    fn metadata_segments(&self, segments: u64, per_segment: u64) -> u64 {
        let dat = (segments * per_segment).div_ceil(self.block_bytes / DAT_ENTRY_BYTES);
        let ifile = self.inodes.div_ceil(self.block_bytes / INODE_BYTES as u64);
        (4 * dat + 2 * ifile + CHECKPOINT_BLOCKS).div_ceil(self.usable(per_segment))
    }

    /// Blocks of a segment beside summaries.
    fn usable(&self, per_segment: u64) -> u64 {
        per_segment - (per_segment * 40 / self.block_bytes + 2).min(per_segment / 2)
    }

    /// Bytes of the image.
    pub(super) fn size_bytes(&self, size: Size, options: &MakeOptions) -> Result<u64> {
        let room = match size {
            Size::Auto(room) => room,
            Size::Fixed(_) => SpareRoom::Bytes(0),
        };
        if let SpareRoom::Percent(percent) = room
            && !(0.0..=40.0).contains(&percent)
        {
            return Err(Error::Option(format!("{percent} % can't be left free: 0 to 40 can")));
        }
        let needed = self.size_with_room(room, options);
        match size {
            Size::Fixed(bytes) if bytes < needed => {
                Err(Error::DoesNotFit { missing_bytes: needed - bytes, needed_bytes: needed })
            }
            Size::Fixed(bytes) => Ok(bytes),
            Size::Auto(_) => Ok(needed),
        }
    }

    fn size_with_room(&self, room: SpareRoom, options: &MakeOptions) -> u64 {
        let per_segment = u64::from(options.blocks_per_segment);
        let written = self.segments(per_segment);
        // Reserved segments and room are shares of the whole, at most 50 and 40 % of it.
        let share = |room: SpareRoom, segments: u64| match room {
            SpareRoom::Bytes(bytes) => bytes.div_ceil(per_segment * self.block_bytes),
            SpareRoom::Percent(_) => room.blocks(segments, 1),
        };
        let mut segments = written;
        loop {
            let reserved = (segments * u64::from(options.reserved_percent))
                .div_ceil(100)
                .max(RESERVED_SEGMENTS_MIN)
                .max(self.metadata_segments(segments, per_segment));
            let needed = written + reserved + share(room, segments);
            if needed <= segments {
                break;
            }
            segments = needed;
        }
        // The second superblock is behind the last segment.
        let bytes = segments * per_segment * self.block_bytes + 4096;
        let bytes = bytes.next_multiple_of(4096);
        debug_assert!(
            Geometry::segments_for(bytes, options.block_bytes, options.blocks_per_segment)
                >= segments
        );
        bytes
    }
}
