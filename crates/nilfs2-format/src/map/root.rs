//! The part of a map that is in the inode.

use super::{LEVEL_LIMIT, MapEntry, check_order};
use crate::error::{Corrupt, MapProblem};
use crate::ids::InodeNumber;
use crate::inode::MAP_BYTES;
use drystone_ondisk::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Pointers of a map without a tree, for the first blocks of the file.
pub const DIRECT_POINTERS: usize = 6;
/// Entries of a tree's root.
pub const ROOT_ENTRIES: usize = 3;
/// Flag of a root that is in an inode; the lowest bit tells a tree from direct pointers.
const TREE: u8 = 1;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDirect {
    flags: u8,
    pad: [u8; 7],
    pointers: [U64; DIRECT_POINTERS],
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRoot {
    flags: u8,
    level: u8,
    nchildren: U16,
    pad: U32,
    keys: [U64; ROOT_ENTRIES],
    pointers: [U64; ROOT_ENTRIES],
}

pin_layout!(RawDirect, size 56, { pointers: 8 });
pin_layout!(RawRoot, size 56, { level: 1, nchildren: 2, keys: 8, pointers: 32 });

/// A checked root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRoot {
    /// Pointers for the first blocks; 0 is a hole.
    Direct([u64; DIRECT_POINTERS]),
    /// The root of a tree.
    Tree {
        /// Its level, at least 1.
        level: u8,
        /// At most [`ROOT_ENTRIES`], at least one.
        entries: Vec<MapEntry>,
    },
}

impl MapRoot {
    /// Checks the root of an inode's map.
    pub fn check(map: &[u8; MAP_BYTES], inode: InodeNumber) -> Result<Self, Corrupt> {
        Self::check_map(map).map_err(|problem| Corrupt::MapRoot { inode, problem })
    }

    fn check_map(map: &[u8; MAP_BYTES]) -> Result<Self, MapProblem> {
        let direct: RawDirect = zerocopy::transmute!(*map);
        if direct.flags & TREE == 0 {
            return Ok(Self::Direct(direct.pointers.map(U64::get)));
        }
        let root: RawRoot = zerocopy::transmute!(*map);
        if root.flags != TREE {
            return Err(MapProblem::Flags { found: root.flags });
        }
        if root.level == 0 || root.level >= LEVEL_LIMIT {
            return Err(MapProblem::RootLevel { found: root.level });
        }
        let count = root.nchildren.get();
        if count == 0 || usize::from(count) > ROOT_ENTRIES {
            return Err(MapProblem::Count { found: count, maximum: ROOT_ENTRIES });
        }
        let pairs = root.keys.iter().zip(&root.pointers).take(usize::from(count));
        let entries: Vec<MapEntry> = pairs
            .map(|(key, pointer)| MapEntry { key: key.get(), pointer: pointer.get() })
            .collect();
        check_order(&entries)?;
        Ok(Self::Tree { level: root.level, entries })
    }

    /// The bytes to store.
    ///
    /// # Panics
    /// If a tree's root has more entries than it has room for.
    #[must_use]
    pub fn encode(&self) -> [u8; MAP_BYTES] {
        match self {
            Self::Direct(pointers) => zerocopy::transmute!(RawDirect {
                flags: 0,
                pad: [0; 7],
                pointers: pointers.map(U64::new),
            }),
            Self::Tree { level, entries } => {
                assert!(entries.len() <= ROOT_ENTRIES, "a root of {} entries", entries.len());
                let mut raw = RawRoot {
                    flags: TREE,
                    level: *level,
                    // At most three.
                    nchildren: U16::new(entries.len() as u16),
                    pad: U32::new(0),
                    keys: [U64::new(0); ROOT_ENTRIES],
                    pointers: [U64::new(0); ROOT_ENTRIES],
                };
                for (index, entry) in entries.iter().enumerate() {
                    raw.keys[index].set(entry.key);
                    raw.pointers[index].set(entry.pointer);
                }
                zerocopy::transmute!(raw)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_survive_and_random_bytes_are_no_panic() {
        let direct = MapRoot::Direct([1, 0, 3, 4, 5, u64::MAX]);
        assert_eq!(MapRoot::check(&direct.encode(), InodeNumber(9)), Ok(direct));
        let entries = vec![MapEntry { key: 0, pointer: 7 }, MapEntry { key: 255, pointer: 8 }];
        let tree = MapRoot::Tree { level: 2, entries };
        assert_eq!(MapRoot::check(&tree.encode(), InodeNumber(9)), Ok(tree));
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..10_000 {
            let mut map = [0; MAP_BYTES];
            random.fill(&mut map);
            map[0] = 1;
            map[1] %= 16;
            map[2..4].copy_from_slice(&[random.u8(0..5), 0]);
            let _ = MapRoot::check(&map, InodeNumber(9));
        }
    }
}
