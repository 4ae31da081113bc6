//! Makes an empty image: one log with checkpoint 1, and both superblocks.
//!
//! [`MakeOptions`] has all options of `mkfs.nilfs2`. The same options always give the same bytes.

use crate::error::{Error, Result};
use drystone_blockdev::{BlockDevice, erase_signatures};
use drystone_nilfs2_format::allocator::EntryLayout;
use drystone_nilfs2_format::cpfile::{self, Checkpoint, CheckpointFlags, CpfileHeader};
use drystone_nilfs2_format::dat::{self, DatEntry};
use drystone_nilfs2_format::geometry::{RESERVED_SEGMENTS_MIN, SUPERBLOCK_OFFSET_BYTES};
use drystone_nilfs2_format::inode::{INODE_BYTES, Inode};
use drystone_nilfs2_format::log::{self, LogFlags, LogHeader, SummaryItem, SummaryWriter};
use drystone_nilfs2_format::map::{DIRECT_POINTERS, MapRoot};
use drystone_nilfs2_format::sufile::{self, SegmentUsage, SufileHeader, UsageFlags};
use drystone_nilfs2_format::super_root::SuperRoot;
use drystone_nilfs2_format::superblock::{LABEL_BYTES, LogCursor, NewVolume, Superblock};
use drystone_nilfs2_format::{
    CheckpointNumber, FileBlock, Geometry, InodeNumber, PhysicalBlock, SegmentNumber, VirtualBlock,
    directory,
};
use uuid::Uuid;

const FIRST: CheckpointNumber = CheckpointNumber(1);
/// Permissions of the root directory.
const ROOT_PERMISSIONS: u16 = 0o755;

/// What a user chooses of a new image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MakeOptions {
    /// Bytes in a block: a power of two from 1024 to 65536. Linux mounts up to its page size.
    pub block_bytes: u32,
    /// Blocks in a segment: a power of two, at least 16.
    pub blocks_per_segment: u32,
    /// Share of the segments that is kept for the log itself.
    pub reserved_percent: u32,
    /// The label, at most 80 bytes.
    pub label: Vec<u8>,
    /// The identity.
    pub uuid: Uuid,
    /// Start value of all sums. It has to differ from that of a volume that was on the device before, unless
    /// the device was erased: recovery could take logs of that volume for logs of this one.
    pub seed: u32,
    /// When the image is made, in seconds since 1970.
    pub time_s: u64,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
}

drystone_options::setters! {
    MakeOptions {
        block_bytes: u32,
        blocks_per_segment: u32,
        reserved_percent: u32,
        label: impl Into<Vec<u8>>,
        uuid: Uuid,
        seed: u32,
        time_s: u64,
        root_owner: (u32, u32),
    }
}

impl MakeOptions {
    /// The defaults of `mkfs.nilfs2`. Identity, seed and time are the caller's to choose, for only the
    /// caller knows whether the image is to be reproducible.
    #[must_use]
    pub fn new(uuid: Uuid, seed: u32, time_s: u64) -> Self {
        Self {
            block_bytes: 4096,
            blocks_per_segment: 2048,
            reserved_percent: 5,
            label: Vec::new(),
            uuid,
            seed,
            time_s,
            root_owner: (0, 0),
        }
    }

    /// How an image on a device of `device_bytes` is laid out.
    ///
    /// # Errors
    /// If the options contradict each other or the size.
    pub fn geometry(&self, device_bytes: u64) -> Result<Geometry> {
        let refuse = |reason: String| Error::Mount(format!("can't make the image: {reason}"));
        if self.label.len() > LABEL_BYTES {
            return Err(refuse(format!("the label is longer than {LABEL_BYTES} bytes")));
        }
        if !self.blocks_per_segment.is_power_of_two() {
            let blocks = self.blocks_per_segment;
            return Err(refuse(format!("{blocks} blocks per segment is not a power of two")));
        }
        let (block_bytes, per_segment) = (self.block_bytes, self.blocks_per_segment);
        if block_bytes == 0 {
            return Err(refuse("blocks need bytes".to_owned()));
        }
        let segments = Geometry::segments_for(device_bytes, block_bytes, per_segment);
        if segments == 0 {
            return Err(refuse(format!(
                "{device_bytes} bytes don't hold a segment of {per_segment} blocks: make the volume larger, or \
                 its segments shorter (--blocks-per-segment)"
            )));
        }
        let geometry =
            Geometry::new(block_bytes, per_segment, segments, self.reserved_percent, device_bytes)
                .map_err(|problem| refuse(problem.to_string()))?;
        let needed = geometry.reserved_segments() + RESERVED_SEGMENTS_MIN;
        if segments < needed {
            return Err(refuse(format!(
                "{device_bytes} bytes hold only {segments} of the {needed} segments that are needed: \
                 make the volume larger, or its segments shorter than {per_segment} blocks \
                 (--blocks-per-segment)"
            )));
        }
        Ok(geometry)
    }
}

/// Makes an empty image over the whole device.
///
/// # Errors
/// If the options contradict each other or the size of the device, or the device fails.
pub fn make(device: &dyn BlockDevice, options: &MakeOptions) -> Result<()> {
    let geometry = options.geometry(device.size_bytes())?;
    erase_signatures(device)?;
    let start = geometry.segment_start(SegmentNumber(0));
    let log = FirstLog::new(&geometry, options).encode();
    device.write_at(geometry.offset_of(start), &log)?;
    device.flush()?;
    let mut label = [0; LABEL_BYTES];
    label[..options.label.len()].copy_from_slice(&options.label);
    let mut superblock = Superblock::create(&NewVolume {
        geometry,
        seed: options.seed,
        uuid: options.uuid,
        label,
        created_s: options.time_s,
    });
    superblock.set_cursor(LogCursor { checkpoint: FIRST, block: start, sequence: 0 });
    superblock.set_free_blocks((geometry.segments() - 1) * geometry.blocks_per_segment());
    let bytes = superblock.encode();
    device.write_at(SUPERBLOCK_OFFSET_BYTES, &bytes)?;
    device.write_at(geometry.second_superblock_offset(), &bytes)?;
    device.flush()?;
    Ok(())
}

/// A file of the first log: its blocks, in order from block 0.
struct FirstFile {
    inode: InodeNumber,
    blocks: Vec<Vec<u8>>,
    /// Where they start: a virtual block, in the DAT a physical one.
    first_pointer: u64,
}

impl FirstFile {
    fn inode(&self, block_bytes: usize) -> Inode {
        let mut pointers = [0; DIRECT_POINTERS];
        for (pointer, number) in
            pointers.iter_mut().zip(self.first_pointer..).take(self.blocks.len())
        {
            *pointer = number;
        }
        Inode {
            sectors: (self.blocks.len() * block_bytes / 512) as u64,
            map: MapRoot::Direct(pointers).encode(),
            ..Inode::metadata_file()
        }
    }
}

/// The log that a new image has.
struct FirstLog<'a> {
    geometry: &'a Geometry,
    options: &'a MakeOptions,
}

impl<'a> FirstLog<'a> {
    fn new(geometry: &'a Geometry, options: &'a MakeOptions) -> Self {
        Self { geometry, options }
    }

    fn encode(&self) -> Vec<u8> {
        let block_bytes = self.geometry.block_bytes();
        let start = self.geometry.segment_start(SegmentNumber(0));
        // All records of the first log fit into one block of the summary at any block size.
        let payload = PhysicalBlock(start.0 + 1);
        let root = FirstFile {
            inode: InodeNumber::ROOT,
            blocks: vec![directory::first_block(block_bytes, InodeNumber::ROOT, InodeNumber::ROOT)],
            first_pointer: 1,
        };
        let ifile = FirstFile {
            inode: InodeNumber::IFILE,
            blocks: self.ifile_blocks(&root),
            first_pointer: 2,
        };
        let virtual_blocks = root.blocks.len() + ifile.blocks.len() + 2;
        let dat_start = payload.0 + virtual_blocks as u64;
        let blocks_total = virtual_blocks + 3 + 2;
        let cpfile = FirstFile {
            inode: InodeNumber::CPFILE,
            blocks: vec![self.cpfile_block(&ifile, blocks_total as u64)],
            first_pointer: 2 + ifile.blocks.len() as u64,
        };
        let sufile = FirstFile {
            inode: InodeNumber::SUFILE,
            blocks: vec![self.sufile_block(blocks_total as u32)],
            first_pointer: cpfile.first_pointer + 1,
        };
        let dat = FirstFile {
            inode: InodeNumber::DAT,
            blocks: self.dat_blocks(virtual_blocks as u64, payload),
            first_pointer: dat_start,
        };
        let super_root = SuperRoot {
            changed_s: self.options.time_s,
            dat: dat.inode(block_bytes),
            cpfile: cpfile.inode(block_bytes),
            sufile: sufile.inode(block_bytes),
        };
        let files = [root, ifile, cpfile, sufile, dat];
        let mut last = vec![0; block_bytes];
        let encoded = super_root.encode(self.options.seed);
        last[..encoded.len()].copy_from_slice(&encoded);
        let summary = self.summary(&files);
        let mut blocks: Vec<&[u8]> =
            files.iter().flat_map(|file| file.blocks.iter().map(Vec::as_slice)).collect();
        blocks.push(&last);
        assert_eq!(blocks.len() + 1, blocks_total);
        self.seal(summary, &blocks)
    }

    fn summary(&self, files: &[FirstFile]) -> SummaryWriter {
        let mut summary = SummaryWriter::new(self.geometry.block_bytes());
        for file in files {
            summary.start_section(file.inode, FIRST);
            for (index, _) in file.blocks.iter().enumerate() {
                let key = FileBlock(index as u64);
                summary.push(&if file.inode == InodeNumber::DAT {
                    SummaryItem::DatData { key }
                } else {
                    SummaryItem::Data {
                        virtual_block: VirtualBlock(file.first_pointer + key.0),
                        key,
                    }
                });
            }
        }
        assert_eq!(summary.blocks(), 1, "the first log's summary");
        summary
    }

    fn seal(&self, summary: SummaryWriter, blocks: &[&[u8]]) -> Vec<u8> {
        let summary_bytes = summary.bytes();
        let header = LogHeader {
            flags: LogFlags::BEGIN | LogFlags::END | LogFlags::SUPER_ROOT,
            sequence: 0,
            created_s: self.options.time_s,
            next: self.geometry.segment_start(SegmentNumber(1)),
            blocks: blocks.len() as u32 + 1,
            sections: summary.sections(),
            summary_bytes: summary_bytes as u32,
            checkpoint: FIRST,
            stored_summary_sum: 0,
            stored_data_sum: 0,
        };
        let mut log = summary.finish();
        header.encode_into(&mut log);
        log::seal(self.options.seed, &mut log, summary_bytes, blocks.iter().copied());
        log.extend(blocks.iter().flat_map(|block| block.iter()));
        log
    }

    /// The blocks of a file of numbered entries of which the first `used` are taken, all in one block.
    fn numbered_blocks(&self, layout: &EntryLayout, used: u64) -> Vec<Vec<u8>> {
        let block_bytes = self.geometry.block_bytes();
        let mut descriptors = crate::dat::new_descriptors(layout, block_bytes);
        let free = layout.entries_per_group() as u32 - used as u32;
        descriptors[..4].copy_from_slice(&free.to_le_bytes());
        let mut bitmap = vec![0; block_bytes];
        for entry in 0..used as usize {
            bitmap[entry / 8] |= 1 << (entry % 8);
        }
        let blocks = used.div_ceil(layout.entries_per_block()) as usize;
        let mut all = vec![descriptors, bitmap];
        all.resize(2 + blocks, vec![0; block_bytes]);
        all
    }

    fn ifile_blocks(&self, root: &FirstFile) -> Vec<Vec<u8>> {
        let block_bytes = self.geometry.block_bytes();
        let layout = EntryLayout::new(block_bytes, INODE_BYTES);
        // A block for each inode up to the root's is enough: reserved ones have no content.
        let mut blocks = self.numbered_blocks(&layout, InodeNumber::FIRST_ORDINARY.0);
        let (user, group) = self.options.root_owner;
        let time_s = self.options.time_s;
        let inode = Inode {
            size_bytes: block_bytes as u64,
            change_time_s: time_s,
            modification_time_s: time_s,
            user,
            group,
            mode: Inode::DIRECTORY | ROOT_PERMISSIONS,
            links_count: 2,
            ..root.inode(block_bytes)
        };
        let (FileBlock(block), offset) = layout.entry(InodeNumber::ROOT.0);
        blocks[block as usize][offset..offset + INODE_BYTES].copy_from_slice(&inode.encode());
        blocks
    }

    fn cpfile_block(&self, ifile: &FirstFile, blocks_written: u64) -> Vec<u8> {
        let block_bytes = self.geometry.block_bytes();
        let mut block = cpfile::new_block(FileBlock(0), block_bytes);
        CpfileHeader { checkpoints: 1, ..CpfileHeader::default() }.encode_into(&mut block);
        let checkpoint = Checkpoint {
            flags: CheckpointFlags::empty(),
            next_snapshot: CheckpointNumber(0),
            previous_snapshot: CheckpointNumber(0),
            number: FIRST,
            created_s: self.options.time_s,
            blocks_written,
            inodes: 1,
            blocks: ifile.blocks.len() as u64 + 1,
            ifile: ifile.inode(block_bytes),
        };
        let (_, offset) = cpfile::place_of(FIRST, block_bytes);
        checkpoint.encode_into(&mut block[offset..]);
        block
    }

    fn sufile_block(&self, blocks_written: u32) -> Vec<u8> {
        let block_bytes = self.geometry.block_bytes();
        let segments = self.geometry.segments();
        let mut block = vec![0; block_bytes];
        let header = SufileHeader {
            clean: segments - 2,
            dirty: 2,
            last_allocated: SegmentNumber(segments - 1),
        };
        header.encode_into(&mut block);
        for (segment, blocks) in [(0, blocks_written), (1, 0)] {
            let flags = UsageFlags::DIRTY;
            let modified_s = if blocks > 0 { self.options.time_s } else { 0 };
            let (_, offset) = sufile::place_of(SegmentNumber(segment), block_bytes);
            block[offset..offset + sufile::ENTRY_BYTES]
                .copy_from_slice(&SegmentUsage { modified_s, blocks, flags }.encode());
        }
        block
    }

    fn dat_blocks(&self, virtual_blocks: u64, payload: PhysicalBlock) -> Vec<Vec<u8>> {
        let layout = EntryLayout::new(self.geometry.block_bytes(), dat::ENTRY_BYTES);
        // Entry 0 stands for no block.
        let mut blocks = self.numbered_blocks(&layout, virtual_blocks + 1);
        for (number, block) in (1..=virtual_blocks).zip(payload.0..) {
            let entry =
                DatEntry { block: PhysicalBlock(block), start: FIRST, end: CheckpointNumber::MAX };
            let (FileBlock(place), offset) = layout.entry(number);
            blocks[place as usize][offset..offset + dat::ENTRY_BYTES]
                .copy_from_slice(&entry.encode());
        }
        blocks
    }
}
