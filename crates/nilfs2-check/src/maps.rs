//! Walking over the map of a file: every node once, from the root down.

use crate::image::Image;
use drystone_blockdev::DeviceError;
use drystone_nilfs2_format::inode::MAP_BYTES;
use drystone_nilfs2_format::map::{LEVEL_OF_LEAVES, MapEntry, MapNode, MapRoot};
use drystone_nilfs2_format::{Corrupt, FileBlock, InodeNumber, PhysicalBlock};

/// What takes part in a walk.
pub(crate) trait MapVisitor {
    /// Where the block is that a pointer leads to: a node of `level` whose first key is `key`, or data
    /// at level 0. Nothing if it can't be used, or was seen before.
    fn resolve(
        &mut self,
        pointer: u64,
        key: FileBlock,
        level: u8,
    ) -> Result<Option<PhysicalBlock>, DeviceError>;

    /// Something is wrong with the map.
    fn report(&mut self, corrupt: Corrupt);
}

/// What a map holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapContent {
    /// Data blocks.
    pub data: u64,
    /// Nodes that are blocks.
    pub nodes: u64,
    /// The last data block.
    pub last: Option<FileBlock>,
}

impl MapContent {
    /// Blocks of data and of the map.
    pub fn blocks(&self) -> u64 {
        self.data + self.nodes
    }
}

/// The data blocks of a file that could be found, by their place in it.
#[derive(Debug, Default)]
pub(crate) struct FileBlocks(Vec<(FileBlock, PhysicalBlock)>);

impl FileBlocks {
    pub fn push(&mut self, key: FileBlock, block: PhysicalBlock) {
        self.0.push((key, block));
    }

    /// Has to be called when all are there: a damaged map may hold keys out of order.
    pub fn sort(&mut self) {
        self.0.sort_unstable_by_key(|(key, _)| *key);
        self.0.dedup_by_key(|(key, _)| *key);
    }

    pub fn get(&self, key: FileBlock) -> Option<PhysicalBlock> {
        let found = self.0.binary_search_by_key(&key, |(key, _)| *key);
        found.ok().map(|index| self.0[index].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (FileBlock, PhysicalBlock)> {
        self.0.iter().copied()
    }
}

/// Walks over the map of an inode.
pub(crate) fn walk(
    image: &Image<'_>,
    inode: InodeNumber,
    map: &[u8; MAP_BYTES],
    visitor: &mut dyn MapVisitor,
) -> Result<MapContent, DeviceError> {
    let mut walk = Walk { image, inode, visitor, content: MapContent::default() };
    match MapRoot::check(map, inode) {
        Ok(MapRoot::Direct(pointers)) => {
            let entries = (0..).zip(pointers).filter(|(_, pointer)| *pointer != 0);
            for (key, pointer) in entries {
                walk.data(MapEntry { key, pointer })?;
            }
        }
        Ok(MapRoot::Tree { level, entries }) => walk.entries(level, &entries, None)?,
        Err(corrupt) => walk.visitor.report(corrupt),
    }
    Ok(walk.content)
}

struct Walk<'a> {
    image: &'a Image<'a>,
    inode: InodeNumber,
    visitor: &'a mut dyn MapVisitor,
    content: MapContent,
}

impl Walk<'_> {
    fn data(&mut self, entry: MapEntry) -> Result<(), DeviceError> {
        let key = FileBlock(entry.key);
        self.content.data += 1;
        self.content.last = self.content.last.max(Some(key));
        self.visitor.resolve(entry.pointer, key, 0).map(drop)
    }

    /// Goes down from the entries of a node of `level`, all below `limit`. Levels end at 14.
    fn entries(
        &mut self,
        level: u8,
        entries: &[MapEntry],
        limit: Option<u64>,
    ) -> Result<(), DeviceError> {
        if level == LEVEL_OF_LEAVES {
            return entries.iter().try_for_each(|entry| self.data(*entry));
        }
        for (index, entry) in entries.iter().enumerate() {
            let limit = entries.get(index + 1).map(|next| next.key).or(limit);
            self.content.nodes += 1;
            let MapEntry { key, pointer } = *entry;
            let Some(block) = self.visitor.resolve(pointer, FileBlock(key), level - 1)? else {
                continue;
            };
            let bytes = self.image.read_block(block)?;
            match MapNode::check(&bytes, self.inode, pointer, level - 1, key, limit) {
                Ok(node) => self.entries(level - 1, &node.entries, limit)?,
                Err(corrupt) => self.visitor.report(corrupt),
            }
        }
        Ok(())
    }
}
