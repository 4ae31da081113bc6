//! The body of a summary: a section for each file, an item for each block.
//!
//! No finfo and no item crosses the boundary of a block: what doesn't fit goes to the next block, and
//! the gap is zero.

use crate::error::{Corrupt, LogProblem};
use crate::geometry::Geometry;
use crate::ids::{CheckpointNumber, FileBlock, InodeNumber, PhysicalBlock, VirtualBlock};
use crate::log::header::{HEADER_BYTES, LogFlags, LogHeader};
use drystone_ondisk::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a finfo.
pub const FINFO_BYTES: usize = size_of::<RawFinfo>();

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFinfo {
    ino: U64,
    cno: U64,
    nblocks: U32,
    ndatablk: U32,
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDataItem {
    vblocknr: U64,
    blkoff: U64,
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDatNodeItem {
    blkoff: U64,
    level: u8,
    pad: [u8; 7],
}

pin_layout!(RawFinfo, size 24, { ino: 0, cno: 8, nblocks: 16, ndatablk: 20 });
pin_layout!(RawDataItem, size 16, { vblocknr: 0, blkoff: 8 });
pin_layout!(RawDatNodeItem, size 16, { blkoff: 0, level: 8 });

/// What starts the section of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finfo {
    /// The file.
    pub inode: InodeNumber,
    /// The checkpoint that the blocks were first written for; 0 for files without history.
    pub checkpoint: CheckpointNumber,
    /// Blocks of the file in this log.
    pub blocks: u32,
    /// Data blocks among them: the first.
    pub data_blocks: u32,
}

/// What a summary says of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryItem {
    /// A data block of a file.
    Data {
        /// Its virtual block.
        virtual_block: VirtualBlock,
        /// Its place in the file.
        key: FileBlock,
    },
    /// A node of a file's map.
    Node {
        /// Its virtual block.
        virtual_block: VirtualBlock,
    },
    /// A data block of the DAT.
    DatData {
        /// Its place in the DAT.
        key: FileBlock,
    },
    /// A node of the DAT's map.
    DatNode {
        /// Its first key.
        key: FileBlock,
        /// Its level.
        level: u8,
    },
}

impl SummaryItem {
    /// Bytes of the item.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        Self::length(matches!(self, Self::DatData { .. } | Self::DatNode { .. }), self.is_data())
    }

    /// Whether the block is data, not a node of a map.
    #[must_use]
    pub const fn is_data(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::DatData { .. })
    }

    const fn length(is_dat: bool, is_data: bool) -> usize {
        match (is_dat, is_data) {
            (false, true) => size_of::<RawDataItem>(),
            (true, false) => size_of::<RawDatNodeItem>(),
            _ => size_of::<u64>(),
        }
    }

    /// Reads an item from its bytes, of which there are as many as it has.
    fn read(bytes: &[u8], is_dat: bool, is_data: bool) -> Option<Self> {
        Some(match (is_dat, is_data) {
            (false, true) => {
                let raw = RawDataItem::read_from_bytes(bytes).ok()?;
                Self::Data {
                    virtual_block: VirtualBlock(raw.vblocknr.get()),
                    key: FileBlock(raw.blkoff.get()),
                }
            }
            (false, false) => Self::Node { virtual_block: VirtualBlock(read_u64(bytes)?) },
            (true, true) => Self::DatData { key: FileBlock(read_u64(bytes)?) },
            (true, false) => {
                let raw = RawDatNodeItem::read_from_bytes(bytes).ok()?;
                Self::DatNode { key: FileBlock(raw.blkoff.get()), level: raw.level }
            }
        })
    }

    fn write(&self, target: &mut [u8]) {
        match *self {
            Self::Data { virtual_block, key } => {
                let raw =
                    RawDataItem { vblocknr: U64::new(virtual_block.0), blkoff: U64::new(key.0) };
                target.copy_from_slice(raw.as_bytes());
            }
            Self::Node { virtual_block } => target.copy_from_slice(&virtual_block.0.to_le_bytes()),
            Self::DatData { key } => target.copy_from_slice(&key.0.to_le_bytes()),
            Self::DatNode { key, level } => {
                let raw = RawDatNodeItem { blkoff: U64::new(key.0), level, pad: [0; 7] };
                target.copy_from_slice(raw.as_bytes());
            }
        }
    }
}

fn read_u64(bytes: &[u8]) -> Option<u64> {
    U64::read_from_bytes(bytes).ok().map(U64::get)
}

/// The blocks of one file in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which file, and how many blocks.
    pub finfo: Finfo,
    /// Where its first block is; the others follow.
    pub start: PhysicalBlock,
    /// An item for each block.
    pub items: Vec<SummaryItem>,
}

impl Section {
    /// The items with the blocks that they are about.
    pub fn blocks(&self) -> impl Iterator<Item = (PhysicalBlock, &SummaryItem)> {
        (self.start.0..).map(PhysicalBlock).zip(&self.items)
    }
}

/// Reads all sections of the log at `block`, whose header was checked, from the blocks of its summary.
pub fn read_sections(
    summary: &[u8],
    header: &LogHeader,
    geometry: &Geometry,
    block: PhysicalBlock,
) -> Result<Vec<Section>, Corrupt> {
    let wrong = |problem| Corrupt::Log { block, problem };
    let length = (header.summary_bytes as usize).min(summary.len());
    let mut reader = Reader {
        bytes: &summary[..length],
        block_bytes: geometry.block_bytes(),
        position: HEADER_BYTES,
    };
    let mut start = block.0 + u64::from(header.summary_blocks(geometry));
    let has_super_root = header.flags.contains(LogFlags::SUPER_ROOT);
    let end = block.0 + u64::from(header.blocks) - u64::from(has_super_root);
    let mut sections = Vec::new();
    for section in 0..header.sections {
        let truncated = || wrong(LogProblem::SectionTruncated { section });
        let finfo = reader.take(FINFO_BYTES).ok_or_else(truncated)?;
        let raw = RawFinfo::read_from_bytes(finfo).map_err(|_| truncated())?;
        let finfo = Finfo {
            inode: InodeNumber(raw.ino.get()),
            checkpoint: CheckpointNumber(raw.cno.get()),
            blocks: raw.nblocks.get(),
            data_blocks: raw.ndatablk.get(),
        };
        let (blocks, data) = (finfo.blocks, finfo.data_blocks);
        if data > blocks || u64::from(blocks) > end.saturating_sub(start) {
            let inode = finfo.inode;
            return Err(wrong(LogProblem::SectionCounts { section, inode, blocks, data }));
        }
        let is_dat = finfo.inode == InodeNumber::DAT;
        let mut items = Vec::with_capacity(blocks as usize);
        for index in 0..blocks {
            let is_data = index < data;
            let bytes = reader.take(SummaryItem::length(is_dat, is_data)).ok_or_else(truncated)?;
            items.push(SummaryItem::read(bytes, is_dat, is_data).ok_or_else(truncated)?);
        }
        sections.push(Section { finfo, start: PhysicalBlock(start), items });
        start += u64::from(blocks);
    }
    if start == end {
        Ok(sections)
    } else {
        let described = start - block.0 + u64::from(has_super_root);
        Err(wrong(LogProblem::BlocksDescribed { described, blocks: header.blocks }))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
    position: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let start = placed(self.position, length, self.block_bytes);
        let bytes = self.bytes.get(start..start + length)?;
        self.position = start + length;
        Some(bytes)
    }
}

/// Where a record of `length` bytes goes that would start at `position`.
fn placed(position: usize, length: usize, block_bytes: usize) -> usize {
    if position % block_bytes + length > block_bytes {
        position.next_multiple_of(block_bytes)
    } else {
        position
    }
}

/// Writes the body of a summary. The header is encoded into the result afterwards.
#[derive(Clone, Debug)]
pub struct SummaryWriter {
    bytes: Vec<u8>,
    block_bytes: usize,
    sections: u32,
    /// Where the finfo of the current section is, and what it says so far.
    current: Option<(usize, Finfo)>,
}

impl SummaryWriter {
    /// An empty summary, with room for the header.
    #[must_use]
    pub fn new(block_bytes: usize) -> Self {
        Self { bytes: vec![0; HEADER_BYTES], block_bytes, sections: 0, current: None }
    }

    /// Blocks that the summary would have with one more item, in a new section if it doesn't continue
    /// the current one.
    #[must_use]
    pub fn blocks_with(&self, item: &SummaryItem, starts_section: bool) -> usize {
        let mut position = self.bytes.len();
        if starts_section {
            position = placed(position, FINFO_BYTES, self.block_bytes) + FINFO_BYTES;
        }
        let length = item.bytes();
        (placed(position, length, self.block_bytes) + length).div_ceil(self.block_bytes)
    }

    /// Blocks of the summary so far.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.bytes.len().div_ceil(self.block_bytes)
    }

    /// Bytes of the summary so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sections so far.
    #[must_use]
    pub fn sections(&self) -> u32 {
        self.sections
    }

    /// Starts the section of a file.
    pub fn start_section(&mut self, inode: InodeNumber, checkpoint: CheckpointNumber) {
        self.end_section();
        let finfo = Finfo { inode, checkpoint, blocks: 0, data_blocks: 0 };
        let start = self.reserve(FINFO_BYTES);
        self.current = Some((start, finfo));
        self.sections += 1;
    }

    /// Adds a block to the current section; data blocks come before nodes.
    ///
    /// # Panics
    /// If no section was started.
    pub fn push(&mut self, item: &SummaryItem) {
        let length = item.bytes();
        let start = self.reserve(length);
        item.write(&mut self.bytes[start..start + length]);
        let Some((_, finfo)) = &mut self.current else {
            panic!("an item needs a section");
        };
        finfo.blocks += 1;
        finfo.data_blocks += u32::from(item.is_data());
    }

    fn reserve(&mut self, length: usize) -> usize {
        let start = placed(self.bytes.len(), length, self.block_bytes);
        self.bytes.resize(start + length, 0);
        start
    }

    fn end_section(&mut self) {
        let Some((start, finfo)) = self.current.take() else { return };
        let raw = RawFinfo {
            ino: U64::new(finfo.inode.0),
            cno: U64::new(finfo.checkpoint.0),
            nblocks: U32::new(finfo.blocks),
            ndatablk: U32::new(finfo.data_blocks),
        };
        self.bytes[start..start + FINFO_BYTES].copy_from_slice(raw.as_bytes());
    }

    /// The summary as whole blocks.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end_section();
        self.bytes.resize(self.bytes.len().next_multiple_of(self.block_bytes), 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes random sections and reads them back, then again with each byte damaged.
    #[test]
    fn sections_survive_and_damage_is_no_panic() {
        let geometry = Geometry::new(1024, 4096, 20, 5, 128 << 20).unwrap();
        let block = PhysicalBlock(4096);
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut writer = SummaryWriter::new(1024);
            let mut written = Vec::new();
            for _ in 0..random.usize(1..8) {
                let inode = InodeNumber(random.u64(2..14));
                writer.start_section(inode, CheckpointNumber(seed));
                let is_dat = inode == InodeNumber::DAT;
                let (data, nodes) = (random.usize(0..150), random.usize(0..20));
                for index in 0..data + nodes {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&random.u64(..).to_le_bytes());
                    bytes[8] = random.u8(..);
                    let length = SummaryItem::length(is_dat, index < data);
                    let item = SummaryItem::read(&bytes[..length], is_dat, index < data).unwrap();
                    let expected = writer.blocks_with(&item, false);
                    writer.push(&item);
                    assert_eq!(writer.blocks(), expected, "seed {seed}");
                    written.push(item);
                }
            }
            let summary_bytes = writer.bytes() as u32;
            let header = LogHeader {
                flags: LogFlags::empty(),
                sequence: 0,
                created_s: 0,
                next: PhysicalBlock(8192),
                blocks: (writer.blocks() + written.len()) as u32,
                sections: writer.sections(),
                summary_bytes,
                checkpoint: CheckpointNumber(seed),
                stored_summary_sum: 0,
                stored_data_sum: 0,
            };
            let mut summary = writer.finish();
            let sections = read_sections(&summary, &header, &geometry, block).unwrap();
            let read: Vec<SummaryItem> =
                sections.iter().flat_map(|section| section.items.clone()).collect();
            assert_eq!(read, written, "seed {seed}");
            for _ in 0..200 {
                let position = random.usize(HEADER_BYTES..summary.len());
                let old = std::mem::replace(&mut summary[position], random.u8(..));
                let _ = read_sections(&summary, &header, &geometry, block);
                summary[position] = old;
            }
        }
    }
}
