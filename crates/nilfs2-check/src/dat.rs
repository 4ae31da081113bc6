//! The DAT: where virtual blocks are, and walks over maps that hold them.

use crate::image::Image;
use crate::issue::{Nilfs2Issue, PlaceIssue, VirtualBlockIssue};
use crate::maps::{self, FileBlocks, MapContent, MapVisitor};
use crate::number_set::NumberSet;
use crate::owners::OwnerSums;
use crate::report::Reporter;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::allocator::EntryLayout;
use drystone_nilfs2_format::dat::{DatEntry, ENTRY_BYTES};
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::{
    CheckpointNumber, Corrupt, FileBlock, InodeNumber, PhysicalBlock, VirtualBlock,
};
use drystone_ondisk::bitmap;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Blocks of the DAT that are kept in memory.
const CACHED_BLOCKS_MAX: usize = 2048;

/// The DAT, found through its map.
pub(crate) struct Dat {
    pub layout: EntryLayout,
    pub blocks: FileBlocks,
    /// The nodes of its map: their first keys and levels.
    pub nodes: HashMap<PhysicalBlock, (FileBlock, u8)>,
    pub content: MapContent,
    cache: RefCell<HashMap<PhysicalBlock, Rc<[u8]>>>,
}

/// Which places have a block, and which virtual blocks live.
#[derive(Default)]
pub(crate) struct Places {
    pub taken: NumberSet,
    pub live: NumberSet,
    /// What the logs say that the blocks which live belong to.
    pub owners: OwnerSums,
    pub count: u64,
}

impl Dat {
    /// Walks over the map of the DAT.
    pub fn load(
        image: &Image<'_>,
        inode: &Inode,
        places: &mut Places,
        reporter: &mut Reporter,
    ) -> Result<Dat, DeviceError> {
        let mut dat = Dat {
            layout: EntryLayout::new(image.block_bytes(), ENTRY_BYTES),
            blocks: FileBlocks::default(),
            nodes: HashMap::new(),
            content: MapContent::default(),
            cache: RefCell::default(),
        };
        let mut visitor = DatVisitor { image, dat: &mut dat, places, reporter };
        let content = maps::walk(image, InodeNumber::DAT, &inode.map, &mut visitor)?;
        dat.content = content;
        dat.blocks.sort();
        Ok(dat)
    }

    fn block(&self, image: &Image<'_>, key: FileBlock) -> Result<Option<Rc<[u8]>>, DeviceError> {
        let Some(place) = self.blocks.get(key) else { return Ok(None) };
        let mut cache = self.cache.borrow_mut();
        if let Some(bytes) = cache.get(&place) {
            return Ok(Some(bytes.clone()));
        }
        if cache.len() >= CACHED_BLOCKS_MAX {
            cache.clear();
        }
        let bytes: Rc<[u8]> = image.read_block(place)?.into();
        cache.insert(place, bytes.clone());
        Ok(Some(bytes))
    }

    /// The entry of a virtual block that is in use.
    pub fn entry(
        &self,
        image: &Image<'_>,
        number: VirtualBlock,
    ) -> Result<Option<DatEntry>, DeviceError> {
        let layout = &self.layout;
        let group = layout.group_of(number.0);
        let Some(bits) = self.block(image, layout.bitmap(group))? else { return Ok(None) };
        if !bitmap::test(&bits, (number.0 % layout.entries_per_group()) as usize) {
            return Ok(None);
        }
        let (key, at) = layout.entry(number.0);
        let bytes = self.block(image, key)?;
        Ok(bytes.and_then(|bytes| DatEntry::read(&bytes[at..]).ok()))
    }
}

/// Takes part in the walk over the DAT's own map, whose pointers are places.
struct DatVisitor<'a> {
    image: &'a Image<'a>,
    dat: &'a mut Dat,
    places: &'a mut Places,
    reporter: &'a mut Reporter,
}

impl MapVisitor for DatVisitor<'_> {
    fn resolve(
        &mut self,
        pointer: u64,
        key: FileBlock,
        level: u8,
    ) -> Result<Option<PhysicalBlock>, DeviceError> {
        let block = PhysicalBlock(pointer);
        let issue = if self.image.geometry.segment_of(block).is_none() {
            Some(PlaceIssue::Outside)
        } else {
            (!self.places.taken.insert(pointer)).then_some(PlaceIssue::Twice)
        };
        if let Some(issue) = issue {
            self.reporter.report(Nilfs2Issue::Block { block, issue });
            return Ok(None);
        }
        self.places.count += 1;
        if level == 0 {
            self.dat.blocks.push(key, block);
        } else {
            self.dat.nodes.insert(block, (key, level));
        }
        Ok(Some(block))
    }

    fn report(&mut self, corrupt: Corrupt) {
        self.reporter.report(corrupt);
    }
}

/// What a checkpoint refers to, as far as it has been walked over.
#[derive(Default)]
pub(crate) struct References {
    pub blocks: NumberSet,
    pub owners: OwnerSums,
}

/// What a walk over the map of a file needs whose pointers are virtual blocks.
pub(crate) struct VirtualVisitor<'a> {
    pub image: &'a Image<'a>,
    pub dat: &'a Dat,
    pub inode: InodeNumber,
    /// The checkpoint that refers to the file.
    pub checkpoint: CheckpointNumber,
    /// What the checkpoint has referred to before.
    pub seen: &'a mut References,
    pub reporter: &'a mut Reporter,
    /// Where the data is, if it is wanted.
    pub blocks: Option<&'a mut FileBlocks>,
}

impl MapVisitor for VirtualVisitor<'_> {
    fn resolve(
        &mut self,
        pointer: u64,
        key: FileBlock,
        level: u8,
    ) -> Result<Option<PhysicalBlock>, DeviceError> {
        let (inode, block) = (self.inode, VirtualBlock(pointer));
        let entry = self.dat.entry(self.image, block)?;
        let issue = match entry {
            None => Some(VirtualBlockIssue::Free { inode }),
            Some(entry) if entry.block.0 == 0 => Some(VirtualBlockIssue::Unwritten { inode }),
            Some(entry) if !entry.is_visible_in(self.checkpoint) => {
                Some(VirtualBlockIssue::Period { inode, start: entry.start, end: entry.end })
            }
            Some(_) => {
                (!self.seen.blocks.insert(pointer)).then_some(VirtualBlockIssue::Shared { inode })
            }
        };
        if let Some(issue) = issue {
            self.reporter.report(Nilfs2Issue::VirtualBlock { block, issue });
            return Ok(None);
        }
        // Whether the place is possible was checked with the entry.
        let place = entry.map(|entry| entry.block);
        let place = place.filter(|place| self.image.geometry.segment_of(*place).is_some());
        if let Some(place) = place {
            let key = (level == 0).then_some(key);
            self.seen.owners.add(self.image, place, block, inode, key);
        }
        if let (Some(place), 0, Some(blocks)) = (place, level, &mut self.blocks) {
            blocks.push(key, place);
        }
        Ok(place)
    }

    fn report(&mut self, corrupt: Corrupt) {
        self.reporter.report(corrupt);
    }
}

/// Walks over the map of a file, and gives its data blocks.
pub(crate) fn walk_file(
    image: &Image<'_>,
    dat: &Dat,
    (inode, file): (InodeNumber, &Inode),
    checkpoint: CheckpointNumber,
    seen: &mut References,
    reporter: &mut Reporter,
) -> Result<(FileBlocks, MapContent), DeviceError> {
    let mut blocks = FileBlocks::default();
    let mut visitor =
        VirtualVisitor { image, dat, inode, checkpoint, seen, reporter, blocks: Some(&mut blocks) };
    let content = maps::walk(image, inode, &file.map, &mut visitor)?;
    blocks.sort();
    Ok((blocks, content))
}
