//! Builds logs from the frozen inodes: decides which blocks a log holds.
//!
//! In this order: (1) the maps of files, and with them their records in the ifile; (2) the ifile, the
//! checkpoint file and the segment usage file, each with new virtual blocks; (3) the DAT, which is
//! complete only then. The next steps are in `place`.

use super::freeze::FrozenInode;
use crate::block_map::BlockMap;
use crate::dat::{Translated, new_descriptors};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{FrozenPages, Inode, Record};
use crate::log::{BlockContent, CleanerWork, LogState, LoggedBlock};
use drystone_nilfs2_format::cpfile::{self, Checkpoint, CpfileHeader};
use drystone_nilfs2_format::inode::INODE_BYTES;
use drystone_nilfs2_format::log::SummaryItem;
use drystone_nilfs2_format::{
    CheckpointNumber, FileBlock, InodeNumber, SegmentNumber, VirtualBlock, sufile,
};
use drystone_sync::Arc;

/// Units of an inode's count of blocks, in bytes.
const SECTOR_BYTES: usize = 512;
/// Holds the place of a block that isn't placed yet in the DAT's map.
const UNPLACED: u64 = u64::MAX;

/// A log in the making.
pub(super) struct Builder<'a> {
    pub(super) engine: &'a Engine,
    pub(super) source: Translated<'a>,
    pub(super) checkpoint: CheckpointNumber,
    pub(super) blocks: Vec<LoggedBlock>,
    /// Blocks that die with the log.
    pub(super) dead_blocks: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(engine: &'a Engine, checkpoint: CheckpointNumber) -> Self {
        Self { engine, source: engine.source(), checkpoint, blocks: Vec::new(), dead_blocks: 0 }
    }

    fn allocate(&self) -> Result<VirtualBlock> {
        self.engine.dat.write().allocate(&self.engine.volume)
    }

    /// Ends virtual blocks that a file doesn't lead to any more.
    fn end(&mut self, inode: InodeNumber, pointers: &[u64]) -> Result<()> {
        if pointers.is_empty() {
            return Ok(());
        }
        self.dead_blocks += pointers.len() as u64;
        let has_history = !inode.is_without_history();
        let mut dat = self.engine.dat.write();
        for pointer in pointers {
            let block = VirtualBlock(*pointer);
            dat.end(block, self.checkpoint, has_history, &self.engine.volume)?;
        }
        Ok(())
    }

    fn push(&mut self, inode: InodeNumber, item: SummaryItem, content: BlockContent) {
        let checkpoint =
            if inode.is_without_history() { CheckpointNumber(0) } else { self.checkpoint };
        self.blocks.push(LoggedBlock { inode, checkpoint, item, content, is_moved: false });
    }

    /// Takes over what the cleaner moves, frees and deletes.
    pub(super) fn move_blocks(&mut self, log: &mut LogState, work: CleanerWork) -> Result<()> {
        let engine = self.engine;
        let volume = &engine.volume;
        log.segments.barred.extend(&work.cleaned);
        for segment in &work.cleaned {
            let usage = log.segments.usage(*segment, volume, &self.source)?;
            let usage =
                sufile::SegmentUsage { blocks: 0, flags: sufile::UsageFlags::empty(), ..usage };
            log.segments.set_usage(*segment, usage, volume, &self.source)?;
        }
        let mut dat = engine.dat.write();
        for block in &work.freed {
            dat.free(*block, volume)?;
        }
        for key in &work.dat_blocks {
            dat.file.mark_dirty(*key, volume)?;
        }
        for (level, key) in &work.dat_nodes {
            dat.file.map.mark_dirty(*level, *key, volume)?;
        }
        for block in &work.moved {
            if let SummaryItem::Data { virtual_block, .. } | SummaryItem::Node { virtual_block } =
                block.item
            {
                // Has its block of the DAT dirty before the DAT is counted.
                let entry = dat.entry(virtual_block, volume)?;
                dat.relocate(virtual_block, entry.block, volume)?;
            }
        }
        self.blocks.extend(work.moved);
        Ok(())
    }

    /// Gives the data blocks of a file, and the nodes above them, new virtual blocks.
    fn add_blocks(
        &mut self,
        inode: InodeNumber,
        map: &mut BlockMap,
        data: impl IntoIterator<Item = (FileBlock, BlockContent)>,
    ) -> Result<()> {
        self.add_data_blocks(inode, map, data)?;
        self.end(inode, &map.take_released())?;
        let mut replaced = Vec::new();
        map.renew_nodes(&mut |old| {
            replaced.extend((old != 0).then_some(old));
            Ok(self.allocate()?.0)
        })?;
        self.end(inode, &replaced)?;
        for dirty in map.dirty_nodes() {
            let mut bytes = vec![0; self.engine.volume.block_bytes()];
            dirty.node.encode_into(&mut bytes);
            let item = SummaryItem::Node { virtual_block: VirtualBlock(dirty.pointer) };
            self.push(inode, item, BlockContent::Ready(bytes.into()));
        }
        map.mark_clean();
        Ok(())
    }

    fn add_data_blocks(
        &mut self,
        inode: InodeNumber,
        map: &mut BlockMap,
        data: impl IntoIterator<Item = (FileBlock, BlockContent)>,
    ) -> Result<()> {
        for (key, content) in data {
            let virtual_block = self.allocate()?;
            let old = map.set(key, virtual_block.0, &self.source)?;
            if old != 0 {
                self.end(inode, &[old])?;
            }
            self.push(inode, SummaryItem::Data { virtual_block, key }, content);
        }
        Ok(())
    }

    /// Adds the content of an inode and its record. Returns how many blocks the inode has gained.
    pub(super) fn add_inode(&mut self, frozen: &FrozenInode) -> Result<i64> {
        let inode = &frozen.inode;
        let cut = if frozen.is_deleted { Some(FileBlock(0)) } else { frozen.pages.cut };
        let (change, root) = {
            let mut map = inode.map.write();
            if let Some(cut) = cut {
                let removed = map.truncate(cut, &self.source)?;
                self.end(inode.number, &removed)?;
            }
            // The nodes above a block of a data log are dirty though no block is.
            if !frozen.pages.blocks.is_empty() || !map.is_clean() {
                let data = frozen.pages.blocks.iter();
                let data = data.map(|(key, bytes)| (*key, BlockContent::Ready(Arc::clone(bytes))));
                self.add_blocks(inode.number, &mut map, data)?;
            }
            (map.take_blocks_change(), map.encode_root())
        };
        let sectors = self.add_sectors(inode, change);
        let mut record = Record { sectors, ..frozen.record.clone() };
        if inode.has_map() {
            record.map = root;
        }
        let bytes = if frozen.is_deleted { [0; INODE_BYTES] } else { record.encode() };
        let (key, offset) = self.engine.ifile.layout.entry(inode.number.0);
        let mut file = self.engine.ifile.file.write();
        let block = file.edit_zeroed(key, &self.source)?;
        block[offset..offset + INODE_BYTES].copy_from_slice(&bytes);
        Ok(change)
    }

    /// Notes that an inode has gained so many blocks, and returns its sectors.
    fn add_sectors(&self, inode: &Inode, blocks: i64) -> u64 {
        let per_block = (self.engine.volume.block_bytes() / SECTOR_BYTES) as i64;
        let record = &mut inode.fields.lock().record;
        record.sectors = record.sectors.saturating_add_signed(blocks * per_block);
        record.sectors
    }

    /// Adds the dirty data of an inode only. Returns how many blocks the inode has gained.
    pub(super) fn add_data(&mut self, inode: &Inode, pages: &FrozenPages) -> Result<i64> {
        let data = pages.blocks.iter();
        let data = data.map(|(key, bytes)| (*key, BlockContent::Ready(Arc::clone(bytes))));
        let change = {
            let mut map = inode.map.write();
            self.add_data_blocks(inode.number, &mut map, data)?;
            map.take_blocks_change()
        };
        self.add_sectors(inode, change);
        Ok(change)
    }

    pub(super) fn add_group(&mut self, group: &crate::ifile::FrozenGroup) -> Result<()> {
        let ifile = &self.engine.ifile;
        let mut file = ifile.file.write();
        let bits = file.edit_zeroed(ifile.layout.bitmap(group.group), &self.source)?;
        bits.copy_from_slice(&group.bits);
        let (key, offset) = ifile.layout.descriptor(group.group);
        let block_bytes = self.engine.volume.block_bytes();
        let block = file.edit(key, &self.source, || new_descriptors(&ifile.layout, block_bytes))?;
        block[offset..offset + 4].copy_from_slice(&group.free.to_le_bytes());
        Ok(())
    }

    /// Adds the ifile, which is complete, and returns its inode.
    pub(super) fn add_ifile(&mut self) -> Result<Record> {
        let engine = self.engine;
        let mut file = engine.ifile.file.write();
        let data: Vec<(FileBlock, BlockContent)> = file
            .dirty_keys()
            .into_iter()
            .filter_map(|key| Some((key, BlockContent::Ready(Arc::clone(file.cached(key)?)))))
            .collect();
        self.add_blocks(InodeNumber::IFILE, &mut file.map, data)?;
        Ok(file.inode())
    }

    /// Adds the checkpoint file, with a record for the checkpoint that is being built.
    pub(super) fn add_cpfile(&mut self, log: &mut LogState, record: &Checkpoint) -> Result<()> {
        let block_bytes = self.engine.volume.block_bytes();
        let first = FileBlock(0);
        let header =
            log.cpfile.edit(first, &self.source, || cpfile::new_block(first, block_bytes))?;
        let mut counts = CpfileHeader::read(header)?;
        counts.checkpoints = counts.checkpoints.saturating_add(1);
        counts.encode_into(header);
        let (key, offset) = cpfile::place_of(record.number, block_bytes);
        let block = log.cpfile.edit(key, &self.source, || cpfile::new_block(key, block_bytes))?;
        record.encode_into(&mut block[offset..]);
        if key != first {
            let count = cpfile::count_valid(block);
            cpfile::set_valid_count(block, count);
        }
        let keys = log.cpfile.dirty_keys();
        let data = keys.into_iter().map(|key| (key, BlockContent::Metadata(key)));
        self.add_blocks(InodeNumber::CPFILE, &mut log.cpfile.map, data)
    }

    /// Adds the segment usage file, with the records of all segments that the log may reach.
    pub(super) fn add_sufile(&mut self, log: &mut LogState, spare: &[SegmentNumber]) -> Result<()> {
        let volume = &self.engine.volume;
        let position = log.segments.position;
        for segment in [position.segment, position.next].iter().chain(spare) {
            let usage = log.segments.usage(*segment, volume, &self.source)?;
            log.segments.set_usage(*segment, usage, volume, &self.source)?;
        }
        let keys = log.segments.file.dirty_keys();
        let data = keys.into_iter().map(|key| (key, BlockContent::Metadata(key)));
        self.add_blocks(InodeNumber::SUFILE, &mut log.segments.file.map, data)
    }

    /// Adds the DAT, in which nothing is taken or freed any more.
    pub(super) fn add_dat(&mut self) -> Result<()> {
        let volume = &self.engine.volume;
        let mut dat = self.engine.dat.write();
        let keys = dat.file.dirty_keys();
        for key in &keys {
            let old = dat.file.map.set(*key, UNPLACED, volume)?;
            self.dead_blocks += u64::from(old != 0);
        }
        // The DAT's nodes have no virtual blocks to end.
        dat.file.map.take_released();
        let nodes = dat.file.map.dirty_nodes();
        drop(dat);
        for key in keys {
            self.push(InodeNumber::DAT, SummaryItem::DatData { key }, BlockContent::Metadata(key));
        }
        for (index, dirty) in nodes.into_iter().enumerate() {
            let item = SummaryItem::DatNode { key: dirty.key, level: dirty.node.level };
            self.push(InodeNumber::DAT, item, BlockContent::DatNode(index));
        }
        Ok(())
    }
}
