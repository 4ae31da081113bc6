//! All interleavings of a thread that adds an entry to a cached index block and one that searches it without a
//! lock.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/sequence_count.rs"]
mod sequence_count;
#[path = "../src/directory_index_cache/words.rs"]
mod words;

use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::htree::IndexEntry;
use drystone_sync::{Arc, model, thread};
use words::{IndexEntryWords, IndexMiss};

fn entry(hash: u32, block: u32) -> IndexEntry {
    IndexEntry { hash, block: LogicalBlock::new(block) }
}

/// Leaf 1 has hashes below 20, leaf 2 those above; leaf 3 gets those from 10 on.
#[test]
fn a_search_sees_all_entries_or_those_before() {
    model(|| {
        let words = Arc::new(IndexEntryWords::new(3));
        words.set([entry(0, 1), entry(20, 2)].into_iter());
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn("writer", move || words.insert_after(0, entry(10, 3))).unwrap()
        };
        // It misses the entries only while they change.
        if let Ok(found) =
            words.search(15).inspect_err(|miss| assert_eq!(*miss, IndexMiss::Changing))
        {
            let (leaf, next) = (found.entry.block.get(), found.next.unwrap());
            assert!(matches!(leaf, 1 | 3), "{leaf}");
            assert_eq!(next, entry(20, 2));
            assert_eq!(found.position, usize::from(leaf == 3));
        }
        writer.join().unwrap();
        assert_eq!(words.search(15).unwrap().entry, entry(10, 3));
        assert_eq!(words.search(25).unwrap().entry, entry(20, 2));
    });
}
