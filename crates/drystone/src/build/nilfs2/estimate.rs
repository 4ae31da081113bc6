//! Estimates how many blocks a tree needs on NILFS2: an upper bound, mostly within a few percent.
//!
//! How full the nodes of maps and the summaries of logs become isn't known before they are made. What has to stay
//! clean beside the files, the engine says. Surplus blocks become free space.

use super::batch::{DirtyWeights, NAME_CLAIM_BLOCKS, WRITE_BYTES, WRITERS_MAX};
use drystone_mkfs::build::{Size, SpareRoom};
use drystone_mkfs::tree::{FileTree, Node, NodeKind, TreeNodeId};
use drystone_mkfs::{Error, Result};
use drystone_nilfs2::SpaceBounds;
use drystone_nilfs2::mkfs::MakeOptions;
use drystone_nilfs2_format::Geometry;
use drystone_nilfs2_format::cpfile::ENTRY_BYTES as CHECKPOINT_BYTES;
use drystone_nilfs2_format::dat::ENTRY_BYTES as DAT_ENTRY_BYTES;
use drystone_nilfs2_format::directory::needed;
use drystone_nilfs2_format::geometry::RESERVED_SEGMENTS_MIN;
use drystone_nilfs2_format::inode::INODE_BYTES;
use drystone_nilfs2_format::map::DIRECT_POINTERS;
use drystone_nilfs2_format::sufile::ENTRY_BYTES as USAGE_BYTES;

/// Dirty data after which a batch ends at the latest.
const BATCH_BYTES_MAX: u64 = 32 << 20;
/// Dirty blocks before which no batch ends.
const BATCH_BLOCKS_MIN: u64 = 512;
/// Batches of a small tree, for each of which room is kept.
const BATCHES: u64 = 16;
/// Bytes that a summary has of each block, and of each file beside.
const ITEM_BYTES: u64 = 16;
const FINFO_BYTES: u64 = 24;
/// Blocks that each checkpoint rewrites of files that aren't complete and of metadata files, without the DAT,
/// and of the DAT.
const CHECKPOINT_BLOCKS: u64 = 24;
const CHECKPOINT_DAT_BLOCKS: u64 = 16;
/// The segments of the newest log and the one that follows it, and one that has to be clean beside what the engine
/// keeps.
const SEGMENTS_IN_USE: u64 = 3;
/// Claims of a write beside its data.
const WRITE_CLAIM_BLOCKS: u64 = 3;
/// Records, blocks and nodes of the directory and the file that a batch goes on with.
const UNFINISHED_BLOCKS: u64 = 6;
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
    /// Blocks that are written once more: of directories that are filled later, and records of files that get
    /// further names.
    rewritten: u64,
    /// Blocks of data, and the pieces that they are copied in.
    data_blocks: u64,
    pieces: u64,
    /// What all of it counts as while it is dirty.
    weight: u64,
}

impl Demand {
    pub(super) fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            inodes: 0,
            blocks: 0,
            rewritten: 0,
            data_blocks: 0,
            pieces: 0,
            weight: 0,
        }
    }

    pub(super) fn add(&mut self, tree: &FileTree, id: TreeNodeId) {
        let node = tree.node(id);
        let links = u64::from(node.links());
        self.inodes += 1;
        self.rewritten += links - 1;
        self.weight += links * DirtyWeights::NAME + DirtyWeights::of_new(node.kind());
        match node.kind() {
            NodeKind::Directory => {
                let names = tree.children(id).map(|(name, _)| needed(name.len()) as u64);
                // The rest of a block may be too short for the next name.
                let usable = self.block_bytes - needed(255) as u64;
                let names = names.sum::<u64>();
                let blocks = (names + 24).div_ceil(usable);
                self.blocks += self.with_nodes(blocks);
                self.rewritten += u64::from(names > 0);
                self.weight += DirtyWeights::COMPLETE;
            }
            NodeKind::Symlink(_) => self.blocks += 1,
            NodeKind::File { .. } => self.add_data(node),
            _ => {}
        }
    }

    fn add_data(&mut self, node: Node<'_>) {
        let (mut blocks, mut end) = (0, 0);
        let inline = node.inline_bytes().map(|bytes| (0, bytes.len() as u64));
        let pieces = node.segments().map(|segment| (segment.logical, segment.length));
        for (logical, length) in inline.into_iter().chain(pieces).filter(|(_, length)| *length > 0)
        {
            end = (logical + length).div_ceil(self.block_bytes);
            blocks += end - logical / self.block_bytes;
            let pieces = DirtyWeights::pieces(length);
            // Each may begin and end in the middle of a block.
            self.weight += length.div_ceil(self.block_bytes) + 2 * pieces;
            self.pieces += pieces;
        }
        self.data_blocks += blocks;
        self.blocks += blocks + self.map_nodes(blocks, end);
    }

    /// Nodes of a map of so many blocks, which are half full if keys come in order.
    fn map_nodes(&self, blocks: u64, end: u64) -> u64 {
        let is_direct = end <= DIRECT_POINTERS as u64;
        if is_direct { 0 } else { blocks.div_ceil(self.block_bytes / 32 - 2) * 17 / 16 + 2 }
    }

    fn with_nodes(&self, blocks: u64) -> u64 {
        blocks + self.map_nodes(blocks, blocks)
    }

    /// Dirty blocks after which a batch ends.
    pub(super) fn batch_blocks(&self) -> u64 {
        let blocks_max = BATCH_BYTES_MAX / self.block_bytes;
        (self.weight / BATCHES).clamp(BATCH_BLOCKS_MIN.min(blocks_max), blocks_max)
    }

    fn batches(&self) -> u64 {
        self.weight / self.batch_blocks() + 2
    }

    /// Blocks of the inode file.
    fn ifile_blocks(&self) -> u64 {
        let entries = self.inodes + 16;
        let groups = entries / (self.block_bytes * 8) + 1;
        self.with_nodes(entries.div_ceil(self.block_bytes / INODE_BYTES as u64) + groups + 1)
    }

    /// Blocks that are written in all, without those of the DAT: each takes an entry of it.
    fn virtual_blocks(&self) -> u64 {
        // A block of the ifile is written twice if its directories are completed later.
        let blocks = self.blocks + self.rewritten + 2 * self.ifile_blocks();
        let blocks = blocks + self.batches() * CHECKPOINT_BLOCKS;
        // The segment usage file.
        blocks + blocks / 64
    }

    fn dat_blocks(&self) -> u64 {
        let entries = self.virtual_blocks();
        let groups = entries / (self.block_bytes * 8) + 1;
        self.with_nodes(entries.div_ceil(self.block_bytes / DAT_ENTRY_BYTES as u64) + groups + 1)
    }

    /// Blocks that are written in all.
    fn written_blocks(&self) -> u64 {
        // Entries change when their blocks are written and when they are replaced.
        let dat = 2 * self.dat_blocks() + CHECKPOINT_DAT_BLOCKS * self.batches();
        let blocks = self.virtual_blocks() + dat;
        let summaries = blocks * ITEM_BYTES + self.inodes * FINFO_BYTES;
        blocks + summaries.div_ceil(self.block_bytes - 64) + 2 * self.batches()
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

    /// Segments that are needed on a volume: those that are written, and what the engine keeps clean while a
    /// batch is dirty. The last batch may have much that counts as dirty and little that is written.
    fn segments(&self, geometry: &Geometry) -> u64 {
        let checkpoints = self.batches() * CHECKPOINT_BYTES as u64;
        let usages = geometry.segments() * USAGE_BYTES as u64;
        let others = self.with_nodes(checkpoints / self.block_bytes + 2)
            + self.with_nodes(usages / self.block_bytes + 2);
        let bounds = SpaceBounds::new(geometry, self.dat_blocks(), self.ifile_blocks() + others);
        let batch = self.batch_blocks().min(self.weight);
        let kept = bounds.segments_kept(batch + self.claims());
        let needed = bounds.segments_for(self.written_blocks()) + kept + SEGMENTS_IN_USE;
        needed.max(geometry.reserved_segments() + RESERVED_SEGMENTS_MIN)
    }

    /// Blocks that writers claim at one time, beside what is dirty; and the largest piece, which a batch may end
    /// with.
    fn claims(&self) -> u64 {
        let writers = self.pieces.min(WRITERS_MAX as u64);
        let data = (writers * WRITE_BYTES as u64 / self.block_bytes).min(self.data_blocks);
        let piece = (DirtyWeights::PIECE_BYTES / self.block_bytes).min(self.data_blocks);
        NAME_CLAIM_BLOCKS + UNFINISHED_BLOCKS + writers * WRITE_CLAIM_BLOCKS + data + piece
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
        let needed = self.size_with_room(room, options)?;
        match size {
            Size::Fixed(bytes) if bytes < needed => {
                Err(Error::DoesNotFit { missing_bytes: needed - bytes, needed_bytes: needed })
            }
            Size::Fixed(bytes) => Ok(bytes),
            Size::Auto(_) => Ok(needed),
        }
    }

    fn size_with_room(&self, room: SpareRoom, options: &MakeOptions) -> Result<u64> {
        let per_segment = u64::from(options.blocks_per_segment);
        let share = |segments: u64| match room {
            SpareRoom::Bytes(bytes) => bytes.div_ceil(per_segment * self.block_bytes),
            SpareRoom::Percent(_) => room.blocks(segments, 1),
        };
        let mut segments = 1;
        loop {
            // The second superblock is after the last segment.
            let bytes = (segments * per_segment * self.block_bytes).next_multiple_of(4096) + 4096;
            let geometry = Geometry::new(
                options.block_bytes,
                options.blocks_per_segment,
                segments,
                options.reserved_percent,
                bytes,
            );
            let geometry = geometry.map_err(|problem| Error::Option(problem.to_string()))?;
            // What is kept and the room are shares of the whole: at most 50 and 40 % of it.
            let needed = self.segments(&geometry) + share(segments);
            if needed <= segments {
                return Ok(bytes);
            }
            segments = needed;
        }
    }
}
