//! A map against an ordinary one, with nodes that are logged and loaded again.

use super::*;
use crate::volume::BlockBytes;
use drystone_vfs::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

const BLOCK_BYTES: usize = 1024;

/// Nodes as the log would have them.
#[derive(Default)]
struct Stored {
    nodes: RefCell<HashMap<u64, BlockBytes>>,
}

impl BlockSource for Stored {
    fn read(&self, pointer: u64) -> Result<BlockBytes> {
        let nodes = self.nodes.borrow();
        nodes.get(&pointer).cloned().ok_or(crate::Error::Errno(Errno::EIO))
    }
}

/// Logs all dirty nodes; a node that has left the tree must be released exactly once.
fn log(map: &mut BlockMap, stored: &Stored, next: &mut u64) {
    let mut gone = map.take_released();
    map.renew_nodes(&mut |old| {
        gone.extend((old != 0).then_some(old));
        *next += 1;
        Ok(*next)
    })
    .unwrap();
    let mut nodes = stored.nodes.borrow_mut();
    for pointer in gone {
        assert!(nodes.remove(&pointer).is_some(), "node {pointer} was released twice");
    }
    for dirty in map.dirty_nodes() {
        assert!(dirty.node.entries.len() <= map.entries_max);
        let mut block = vec![0; BLOCK_BYTES];
        dirty.node.encode_into(&mut block);
        assert!(nodes.insert(dirty.pointer, block.into()).is_none());
    }
    map.mark_clean();
    assert!(map.dirty_nodes().is_empty());
}

#[test]
fn a_map_is_a_map() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (stored, inode) = (Stored::default(), InodeNumber(20));
        let mut map = BlockMap::empty(inode, BLOCK_BYTES);
        let mut model = BTreeMap::new();
        let (mut next_node, mut next_data, mut blocks) = (1 << 40, 0, 0);
        let range = [10, 300, 5000, 1 << 50][random.usize(0..4)];
        for round in 0..40 {
            let grows = random.bool();
            let start = random.u64(0..range);
            for step in 0..random.u64(0..400) {
                let key = if seed % 3 == 0 { start + step } else { random.u64(0..range) };
                if grows || random.u8(0..4) == 0 {
                    next_data += 1;
                    let old = map.set(FileBlock(key), next_data, &stored).unwrap();
                    assert_eq!(old, model.insert(key, next_data).unwrap_or(0), "seed {seed}");
                } else {
                    let old = map.remove(FileBlock(key), &stored).unwrap();
                    assert_eq!(old, model.remove(&key).unwrap_or(0), "seed {seed}");
                }
            }
            if random.u8(0..5) == 0 {
                let from = random.u64(0..range);
                let mut removed = map.truncate(FileBlock(from), &stored).unwrap();
                removed.reverse();
                let expected: Vec<u64> = model.split_off(&from).into_values().collect();
                assert_eq!(removed, expected, "seed {seed}, round {round}");
            }
            if random.bool() {
                log(&mut map, &stored, &mut next_node);
                blocks += map.take_blocks_change();
                let nodes = stored.nodes.borrow().len();
                assert_eq!(blocks, (model.len() + nodes) as i64, "seed {seed}, round {round}");
                if random.bool() {
                    map = BlockMap::load(inode, &map.encode_root(), BLOCK_BYTES).unwrap();
                }
            }
            for _ in 0..20 {
                let key = random.u64(0..range);
                let found = map.get(FileBlock(key), &stored).unwrap();
                assert_eq!(found, model.get(&key).copied().unwrap_or(0), "seed {seed}");
                let next = map.next(FileBlock(key), &stored).unwrap();
                let expected = model.range(key..).next();
                let expected =
                    expected.map(|(key, pointer)| MapEntry { key: *key, pointer: *pointer });
                assert_eq!(next, expected, "seed {seed}, round {round}, key {key}");
            }
        }
        let mut key = FileBlock(0);
        let mut listed = Vec::new();
        while let Some(entry) = map.next(key, &stored).unwrap() {
            listed.push((entry.key, entry.pointer));
            key = FileBlock(entry.key + 1);
        }
        assert_eq!(listed, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
}

/// The log writer splits nodes when nothing can be refused any more.
#[test]
fn a_full_node_is_split_if_the_one_before_it_cannot_be_read() {
    let (stored, inode) = (Stored::default(), InodeNumber(20));
    let mut map = BlockMap::empty(inode, BLOCK_BYTES);
    let mut next_node = 1 << 40;
    for key in (0..1000).step_by(2) {
        map.set(FileBlock(key), 1 + key, &stored).unwrap();
    }
    log(&mut map, &stored, &mut next_node);
    let node = |key: &u64| map.node_pointer(1, FileBlock(*key), &stored).unwrap();
    let firsts: Vec<u64> = (0..1000).filter(|key| node(key) != 0).collect();
    let [damaged, full, behind] = [2, 3, 4].map(|index| firsts[index]);
    let pointer = node(&damaged);
    map = BlockMap::load(inode, &map.encode_root(), BLOCK_BYTES).unwrap();
    stored.nodes.borrow_mut().remove(&pointer).unwrap();
    for key in (full + 1..behind).step_by(2) {
        map.set(FileBlock(key), 1 + key, &stored).unwrap();
    }
    log(&mut map, &stored, &mut next_node);
    for key in full..behind {
        assert_eq!(map.get(FileBlock(key), &stored).unwrap(), 1 + key);
    }
    assert!(map.get(FileBlock(damaged), &stored).is_err());
}
