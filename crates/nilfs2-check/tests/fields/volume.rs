//! An image in memory: where its structures are, how it is damaged, and how its sums are made right.

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_nilfs2_format::allocator::EntryLayout;
use drystone_nilfs2_format::dat::DatEntry;
use drystone_nilfs2_format::geometry::{SUPERBLOCK_OFFSET_BYTES, second_superblock_offset};
use drystone_nilfs2_format::log::{LogHeader, data_sum, summary_sum};
use drystone_nilfs2_format::map::{MapNode, MapRoot};
use drystone_nilfs2_format::super_root::{SUPER_ROOT_BYTES, SuperRoot};
use drystone_nilfs2_format::superblock::{self, Superblock};
use drystone_nilfs2_format::{Geometry, InodeNumber, PhysicalBlock, SegmentNumber, Sum};
use std::cell::RefCell;
use std::ops::Range;

/// A log: where it starts, and what its header says.
#[derive(Clone, Copy)]
pub struct LogPlace {
    pub block: u64,
    pub blocks: u64,
    pub summary_bytes: usize,
    pub has_super_root: bool,
}

/// What a map leads to: places of data by key, and of nodes.
#[derive(Clone, Default)]
pub struct MapPlaces {
    pub data: Vec<(u64, u64)>,
    pub nodes: Vec<u64>,
}

pub struct Volume {
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub bytes: RefCell<Vec<u8>>,
    pub device: MemoryDevice,
    pub logs: Vec<LogPlace>,
    pub super_root: SuperRoot,
    pub super_root_block: u64,
    pub dat: MapPlaces,
}

impl Volume {
    pub fn new(bytes: Vec<u8>) -> Volume {
        let size = bytes.len() as u64;
        let places = [SUPERBLOCK_OFFSET_BYTES, second_superblock_offset(size)];
        let superblocks = places.map(|at| Superblock::check(&bytes[at as usize..], size).unwrap());
        // The first that is as new as the other.
        let newest = superblocks.into_iter().rev().max_by_key(|found| found.cursor().checkpoint);
        let superblock = newest.unwrap();
        let geometry = *superblock.geometry();
        let bs = geometry.block_bytes();
        let mut logs = Vec::new();
        for segment in 0..geometry.segments() {
            let mut at = geometry.segment_start(SegmentNumber(segment)).0;
            let mut sequence = None;
            while at < geometry.segment_end(SegmentNumber(segment)).0 {
                let found = &bytes[at as usize * bs..];
                let Ok(header) = LogHeader::check(found, &geometry, PhysicalBlock(at)) else {
                    break;
                };
                if sequence.is_some_and(|sequence| sequence != header.sequence) {
                    break;
                }
                let log = &found[..header.blocks as usize * bs];
                let (place, sum) =
                    (PhysicalBlock(at), LogHeader::begin_data_sum(superblock.seed(), log));
                let is_right = header.check_summary(superblock.seed(), log, place).is_ok()
                    && header.check_data(&sum, place).is_ok();
                if !is_right {
                    break;
                }
                sequence = Some(header.sequence);
                logs.push(LogPlace {
                    block: at,
                    blocks: u64::from(header.blocks),
                    summary_bytes: header.summary_bytes as usize,
                    has_super_root: header.flags.bits() & 4 != 0,
                });
                at += u64::from(header.blocks);
            }
        }
        let cursor = superblock.cursor().block.0;
        let newest = logs.iter().find(|log| log.block == cursor).unwrap();
        let super_root_block = newest.block + newest.blocks - 1;
        let found = &bytes[super_root_block as usize * bs..];
        let block = PhysicalBlock(super_root_block);
        let super_root = SuperRoot::check(found, superblock.seed(), block, bs).unwrap();
        let device = MemoryDevice::from_bytes(&bytes);
        let mut volume = Volume {
            superblock,
            geometry,
            bytes: RefCell::new(bytes),
            device,
            logs,
            super_root,
            super_root_block,
            dat: MapPlaces::default(),
        };
        volume.dat = volume.places(InodeNumber::DAT, &volume.super_root.dat.map, true);
        volume
    }

    pub fn block_bytes(&self) -> usize {
        self.geometry.block_bytes()
    }

    pub fn block(&self, block: u64) -> Vec<u8> {
        let at = block as usize * self.block_bytes();
        self.bytes.borrow()[at..at + self.block_bytes()].to_vec()
    }

    /// Where a virtual block is.
    fn translate(&self, number: u64) -> u64 {
        let layout = EntryLayout::new(self.block_bytes(), 32);
        let (key, at) = layout.entry(number);
        let place = self.dat.data.iter().find(|(found, _)| *found == key.0).unwrap().1;
        DatEntry::read(&self.block(place)[at..]).unwrap().block.0
    }

    /// What the map of an inode leads to.
    pub fn places(&self, inode: InodeNumber, map: &[u8; 56], is_physical: bool) -> MapPlaces {
        let mut places = MapPlaces::default();
        let translate = |pointer: u64| if is_physical { pointer } else { self.translate(pointer) };
        match MapRoot::check(map, inode).unwrap() {
            MapRoot::Direct(pointers) => {
                let used = (0..).zip(pointers).filter(|(_, pointer)| *pointer != 0);
                places.data = used.map(|(key, pointer)| (key, translate(pointer))).collect();
            }
            MapRoot::Tree { level, entries } => {
                let mut pending: Vec<_> = entries.iter().map(|entry| (level, *entry)).collect();
                while let Some((level, entry)) = pending.pop() {
                    let place = translate(entry.pointer);
                    if level == 1 {
                        places.data.push((entry.key, place));
                        continue;
                    }
                    places.nodes.push(place);
                    let node = MapNode::read(&self.block(place)).unwrap();
                    pending.extend(node.entries.iter().map(|entry| (level - 1, *entry)));
                }
            }
        }
        places.data.sort_unstable();
        places
    }

    /// Sets bytes, makes all sums over them right, and writes what has changed to the device.
    pub fn damage(&self, at: usize, value: &[u8]) -> Damaged<'_> {
        let (bs, seed) = (self.block_bytes(), self.superblock.seed());
        let block = (at / bs) as u64;
        let inside = |log: &&LogPlace| (log.block..log.block + log.blocks).contains(&block);
        let log = self.logs.iter().find(inside).copied();
        let range = match log {
            Some(log) => log.block as usize * bs..(log.block + log.blocks) as usize * bs,
            // A superblock, at a whole KiB.
            None => at / 1024 * 1024..at / 1024 * 1024 + 1024,
        };
        let before = self.bytes.borrow()[range.clone()].to_vec();
        let mut bytes = before.clone();
        bytes[at - range.start..][..value.len()].copy_from_slice(value);
        match log {
            Some(log) => {
                if log.has_super_root {
                    let root = bytes.len() - bs;
                    let sum = Sum::of(seed, &bytes[root + 4..root + SUPER_ROOT_BYTES]);
                    bytes[root..root + 4].copy_from_slice(&sum.to_le_bytes());
                }
                let sum = summary_sum(seed, &bytes[..log.summary_bytes]);
                bytes[4..8].copy_from_slice(&sum.to_le_bytes());
                let sum = data_sum(seed, &bytes, []);
                bytes[..4].copy_from_slice(&sum.to_le_bytes());
            }
            None => superblock::seal(&mut bytes),
        }
        self.device.write_at(range.start as u64, &bytes).unwrap();
        Damaged { volume: self, range, before }
    }
}

/// A damage, undone when dropped.
pub struct Damaged<'a> {
    volume: &'a Volume,
    range: Range<usize>,
    before: Vec<u8>,
}

impl Drop for Damaged<'_> {
    fn drop(&mut self) {
        self.volume.device.write_at(self.range.start as u64, &self.before).unwrap();
    }
}
