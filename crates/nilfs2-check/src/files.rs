//! The inodes of a checkpoint: their fields, their blocks, and what is counted of them.

use crate::allocator;
use crate::dat::{Dat, References, VirtualVisitor, walk_file};
use crate::directories::{self, FileRecord, FileRecords};
use crate::image::Image;
use crate::issue::{CheckpointIssue, FileIssue, Nilfs2Issue};
use crate::maps::{self, FileBlocks, MapContent};
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::allocator::EntryLayout;
use drystone_nilfs2_format::cpfile::Checkpoint;
use drystone_nilfs2_format::inode::{INODE_BYTES, Inode, MAP_BYTES};
use drystone_nilfs2_format::{CheckpointNumber, FileBlock, InodeNumber};

const SECTOR_BYTES: u64 = 512;
/// Where the number of a device is in the map of its inode.
const DEVICE_BYTES: usize = 8;
/// Checks the space that an inode says to use. mkfs counts whole blocks instead of sectors: inodes
/// that it makes stay short by the difference.
pub(crate) fn sectors_issue(
    image: &Image<'_>,
    inode: &Inode,
    content: MapContent,
    is_made_by_mkfs: bool,
) -> Option<FileIssue> {
    let per_block = image.block_bytes() as u64 / SECTOR_BYTES;
    let counted = content.blocks() * per_block;
    let stored = inode.sectors;
    if stored == counted {
        return None;
    }
    let short = counted.checked_sub(stored);
    let is_short = |short: u64| {
        short.is_multiple_of(per_block - 1) && short / (per_block - 1) <= content.blocks().max(1)
    };
    if is_made_by_mkfs && short.is_some_and(is_short) {
        return None;
    }
    Some(FileIssue::Sectors { stored, counted })
}

/// Checks one of the files that only the file system itself uses.
pub(crate) fn check_metadata_file(
    image: &Image<'_>,
    (number, inode): (InodeNumber, &Inode),
    content: MapContent,
    reporter: &mut Reporter,
) {
    let mut wrong = |issue| reporter.report(Nilfs2Issue::File { inode: number, issue });
    if inode.map[0] > 1 {
        let found = u64::from(inode.map[0]);
        wrong(FileIssue::Unexpected { what: "the flags of the map", found });
    }
    if let Some(issue) = sectors_issue(image, inode, content, true) {
        wrong(issue);
    }
    let kind = inode.mode & Inode::TYPE_MASK;
    for (what, found, is_right) in [
        ("its type", u64::from(kind), kind == Inode::REGULAR),
        ("the link count", u64::from(inode.links_count), inode.links_count > 0),
        ("the size", inode.size_bytes, inode.size_bytes == 0),
        ("the attribute block", inode.xattr, inode.xattr == 0),
    ] {
        if !is_right {
            wrong(FileIssue::Unexpected { what, found });
        }
    }
}

/// Checks everything that a checkpoint refers to. `seen` are virtual blocks that it refers to already.
pub(crate) fn check(
    image: &Image<'_>,
    dat: &Dat,
    checkpoint: &Checkpoint,
    seen: &mut References,
    reporter: &mut Reporter,
) -> Result<(), DeviceError> {
    let number = checkpoint.number;
    let file = (InodeNumber::IFILE, &checkpoint.ifile);
    let (blocks, content) = walk_file(image, dat, file, number, seen, reporter)?;
    check_metadata_file(image, file, content, reporter);
    let layout = EntryLayout::new(image.block_bytes(), INODE_BYTES);
    let mut pass = FilePass {
        image,
        dat,
        checkpoint: number,
        seen,
        records: FileRecords::new(),
        blocks: content.blocks(),
    };
    let first = image.superblock.first_inode();
    let mut visit = |entry, bytes: &[u8], reporter: &mut Reporter| {
        let inode = InodeNumber(entry);
        if inode == InodeNumber::ROOT || inode >= first {
            pass.check(inode, bytes, reporter)?;
        }
        Ok(())
    };
    allocator::check(image, file.0, &layout, &blocks, first.0, reporter, &mut visit)?;
    let FilePass { mut records, blocks, .. } = pass;
    for (what, stored, counted) in
        [("inodes", checkpoint.inodes, records.len() as u64), ("blocks", checkpoint.blocks, blocks)]
    {
        if stored != counted {
            let issue = CheckpointIssue::Count { what, stored, counted };
            reporter.report(Nilfs2Issue::Checkpoint { checkpoint: number, issue });
        }
    }
    directories::check(image, number, &mut records, reporter)?;
    reporter.report.summary.inodes = records.len() as u64;
    Ok(())
}

/// The inodes of a checkpoint, one after the other.
struct FilePass<'a> {
    image: &'a Image<'a>,
    dat: &'a Dat,
    checkpoint: CheckpointNumber,
    seen: &'a mut References,
    records: FileRecords,
    /// Blocks of the ifile and of all files so far.
    blocks: u64,
}

impl FilePass<'_> {
    fn check(
        &mut self,
        number: InodeNumber,
        bytes: &[u8],
        reporter: &mut Reporter,
    ) -> Result<(), DeviceError> {
        let inode = match Inode::check(bytes, number, self.image.block_bytes()) {
            Ok(inode) => inode,
            Err(corrupt) => {
                reporter.report(corrupt);
                match Inode::read(bytes) {
                    Ok(inode) => inode,
                    Err(_) => return Ok(()),
                }
            }
        };
        let kind = inode.mode & Inode::TYPE_MASK;
        let has_map = [Inode::REGULAR, Inode::DIRECTORY, Inode::SYMLINK].contains(&kind);
        let mut blocks = FileBlocks::default();
        let content = if has_map {
            let wanted = kind != Inode::REGULAR;
            self.walk(number, &inode.map, reporter, wanted.then_some(&mut blocks))?
        } else {
            MapContent::default()
        };
        blocks.sort();
        self.blocks += content.blocks();
        let by_mkfs = number == InodeNumber::ROOT || number == self.image.superblock.first_inode();
        let mut wrong = |issue| reporter.report(Nilfs2Issue::File { inode: number, issue });
        if let Some(issue) = sectors_issue(self.image, &inode, content, by_mkfs) {
            wrong(issue);
        }
        if inode.xattr != 0 {
            wrong(FileIssue::Unexpected { what: "the attribute block", found: inode.xattr });
        }
        // The lowest bit tells a tree from direct pointers.
        if has_map && inode.map[0] > 1 {
            let found = u64::from(inode.map[0]);
            wrong(FileIssue::Unexpected { what: "the flags of the map", found });
        }
        let block_bytes = self.image.block_bytes() as u64;
        match kind {
            Inode::REGULAR | Inode::DIRECTORY => {
                let end = FileBlock(inode.size_bytes.div_ceil(block_bytes));
                if let Some(block) = content.last.filter(|last| *last >= end) {
                    wrong(FileIssue::BehindEnd { block, size: inode.size_bytes });
                }
            }
            Inode::SYMLINK => {
                if inode.size_bytes == 0 || inode.size_bytes >= block_bytes {
                    let found = inode.size_bytes;
                    wrong(FileIssue::Unexpected { what: "the length of a target", found });
                }
                if (content.data, content.last) != (1, Some(FileBlock(0))) {
                    wrong(FileIssue::Hole { block: FileBlock(0) });
                } else if let Some(place) = blocks.get(FileBlock(0)) {
                    let bytes = self.image.read_block(place)?;
                    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                    let is_rest_empty = bytes[length..].iter().all(|byte| *byte == 0);
                    if length as u64 != inode.size_bytes || !is_rest_empty {
                        wrong(FileIssue::Target { size: inode.size_bytes });
                    }
                }
            }
            _ => check_special(&inode, &mut wrong),
        }
        let is_directory = kind == Inode::DIRECTORY;
        let record = FileRecord {
            mode: inode.mode,
            links: inode.links_count,
            names: 0,
            subdirectories: 0,
            blocks: is_directory.then_some(blocks),
            size_bytes: inode.size_bytes,
        };
        self.records.insert(number, record);
        Ok(())
    }

    fn walk(
        &mut self,
        inode: InodeNumber,
        map: &[u8; MAP_BYTES],
        reporter: &mut Reporter,
        blocks: Option<&mut FileBlocks>,
    ) -> Result<MapContent, DeviceError> {
        let mut visitor = VirtualVisitor {
            image: self.image,
            dat: self.dat,
            inode,
            checkpoint: self.checkpoint,
            seen: &mut *self.seen,
            reporter,
            blocks,
        };
        maps::walk(self.image, inode, map, &mut visitor)
    }
}

/// Checks an inode that has no blocks: a device has a number, a pipe or a socket nothing.
fn check_special(inode: &Inode, wrong: &mut dyn FnMut(FileIssue)) {
    const DEVICES: [u16; 2] = [0o020_000, 0o060_000];
    let is_device = DEVICES.contains(&(inode.mode & Inode::TYPE_MASK));
    let rest = if is_device { &inode.map[DEVICE_BYTES..] } else { &inode.map[..] };
    if let Some(found) = rest.iter().find(|byte| **byte != 0) {
        wrong(FileIssue::Unexpected { what: "a byte of the map", found: u64::from(*found) });
    }
    if is_device && Inode::device_map(inode.device().0, inode.device().1) != inode.map {
        wrong(FileIssue::Unexpected { what: "the device number", found: 0 });
    }
    if inode.size_bytes != 0 {
        wrong(FileIssue::Unexpected { what: "the size", found: inode.size_bytes });
    }
}
