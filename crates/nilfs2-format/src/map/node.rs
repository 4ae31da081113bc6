//! Nodes of a map's tree that are blocks.

use super::{LEVEL_LIMIT, MapEntry, check_order};
use crate::error::{Corrupt, MapProblem};
use crate::ids::InodeNumber;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const HEADER_BYTES: usize = size_of::<RawNodeHeader>();

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNodeHeader {
    flags: u8,
    level: u8,
    nchildren: U16,
    pad: [U32; 3],
}

pin_layout!(RawNodeHeader, size 16, { level: 1, nchildren: 2 });

/// Entries that a node has room for: keys first, then pointers.
#[must_use]
pub const fn node_entries_max(block_bytes: usize) -> usize {
    (block_bytes - HEADER_BYTES) / (2 * size_of::<u64>())
}

/// Entries that a node should have at least, unless it is the only one of its level.
#[must_use]
pub const fn node_entries_min(block_bytes: usize) -> usize {
    (node_entries_max(block_bytes) - 1) / 2 + 1
}

/// A node: what its block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapNode {
    /// Its level, at least 1.
    pub level: u8,
    /// At least one.
    pub entries: Vec<MapEntry>,
}

impl MapNode {
    /// Checks the node that `pointer` leads to, whose parent has `level + 1` and says that its first
    /// key is `first_key` and that all are below `limit`.
    pub fn check(
        block: &[u8],
        inode: InodeNumber,
        pointer: u64,
        level: u8,
        first_key: u64,
        limit: Option<u64>,
    ) -> Result<Self, Corrupt> {
        Self::check_block(block, level, first_key, limit).map_err(|problem| Corrupt::MapNode {
            inode,
            pointer,
            problem,
        })
    }

    fn check_block(
        block: &[u8],
        level: u8,
        first_key: u64,
        limit: Option<u64>,
    ) -> Result<Self, MapProblem> {
        let node = Self::read(block)?;
        if node.level != level {
            return Err(MapProblem::Level { found: node.level, expected: level });
        }
        check_order(&node.entries)?;
        // `read` returns at least one entry.
        let (first, last) = (node.entries[0].key, node.entries[node.entries.len() - 1].key);
        if first != first_key {
            return Err(MapProblem::FirstKey { found: first, expected: first_key });
        }
        match limit {
            Some(limit) if last >= limit => Err(MapProblem::LastKey { found: last, limit }),
            _ => Ok(node),
        }
    }

    /// Reads a node without knowing its parent.
    pub fn read(block: &[u8]) -> Result<Self, MapProblem> {
        let Ok((header, body)) = RawNodeHeader::read_from_prefix(block) else {
            return Err(MapProblem::Count { found: 0, maximum: 0 });
        };
        if header.flags != 0 {
            return Err(MapProblem::Flags { found: header.flags });
        }
        if header.level == 0 || header.level >= LEVEL_LIMIT {
            return Err(MapProblem::RootLevel { found: header.level });
        }
        let (found, maximum) = (header.nchildren.get(), node_entries_max(block.len()));
        let count = usize::from(found);
        if count == 0 || count > maximum {
            return Err(MapProblem::Count { found, maximum });
        }
        let (keys, pointers) = body.split_at(maximum * size_of::<u64>());
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            let (numbers, _) = bytes.as_chunks();
            numbers.iter().take(count).map(|number| u64::from_le_bytes(*number)).collect()
        };
        let entries = numbers(keys)
            .into_iter()
            .zip(numbers(pointers))
            .map(|(key, pointer)| MapEntry { key, pointer })
            .collect();
        Ok(Self { level: header.level, entries })
    }

    /// Writes the node over a block.
    ///
    /// # Panics
    /// If the node has more entries than the block has room for.
    pub fn encode_into(&self, block: &mut [u8]) {
        let maximum = node_entries_max(block.len());
        assert!(self.entries.len() <= maximum, "a node of {} entries", self.entries.len());
        block.fill(0);
        let header = RawNodeHeader {
            flags: 0,
            level: self.level,
            // A block of 64 KiB has room for 4095.
            nchildren: U16::new(self.entries.len() as u16),
            pad: [U32::new(0); 3],
        };
        let (start, body) = block.split_at_mut(HEADER_BYTES);
        start.copy_from_slice(header.as_bytes());
        let (keys, pointers) = body.split_at_mut(maximum * size_of::<u64>());
        for (index, entry) in self.entries.iter().enumerate() {
            let place = index * size_of::<u64>()..(index + 1) * size_of::<u64>();
            keys[place.clone()].copy_from_slice(U64::new(entry.key).as_bytes());
            pointers[place].copy_from_slice(U64::new(entry.pointer).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_nodes() {
        assert_eq!((node_entries_max(4096), node_entries_min(4096)), (255, 128));
        assert_eq!((node_entries_max(1024), node_entries_min(1024)), (63, 32));
    }

    #[test]
    fn nodes_survive_and_random_blocks_are_no_panic() {
        let mut random = fastrand::Rng::with_seed(5);
        let entries =
            (0..63).map(|index| MapEntry { key: index * 3, pointer: index + 1 }).collect();
        let node = MapNode { level: 1, entries };
        let mut block = vec![0xff; 1024];
        node.encode_into(&mut block);
        let check = |block: &[u8], limit| MapNode::check(block, InodeNumber(9), 8, 1, 0, limit);
        assert_eq!(check(&block, None), Ok(node));
        assert!(check(&block, Some(186)).is_err());
        for _ in 0..10_000 {
            let position = random.usize(0..1024);
            let old = std::mem::replace(&mut block[position], random.u8(..));
            let _ = check(&block, Some(200));
            block[position] = old;
        }
        assert!(MapNode::read(&block[..10]).is_err());
    }
}
