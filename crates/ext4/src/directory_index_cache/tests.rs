//! Searches of the cached index against the blocks.

use super::*;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::DirectoryLayout;
use drystone_ext4_format::htree::{IndexBlockMut, IndexKind, init_node, init_root};

const LAYOUT: DirectoryLayout = DirectoryLayout {
    file_type: true,
    checksum: None,
    encrypted: false,
    casefolded: false,
    inode_last: InodeNumber::new(100),
};

/// A root with one leaf.
fn root() -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let (own, parent) = (InodeNumber::new(12), InodeNumber::new(2));
    init_root(&mut bytes, &LAYOUT, own, parent, HashVersion::HalfMd4, LogicalBlock::new(1));
    bytes
}

fn find(cache: &DirectoryIndexCache, hash: u32) -> Option<(u32, Option<u32>)> {
    let found = cache.find(|_| hash).ok()?;
    assert_eq!(found.hash, hash);
    Some((found.leaf.get(), found.bound.map(|bound| bound.hash)))
}

/// Entries that are added at random places are found as in the block, until it is full.
#[test]
fn entries_are_those_of_the_block() {
    let budget = DentryBudget::new(1 << 20);
    let cache = DirectoryIndexCache::new(&budget);
    let mut bytes = root();
    assert!(find(&cache, 7).is_none());
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    assert_eq!(find(&cache, 7), Some((1, None)));
    let mut random = fastrand::Rng::with_seed(1);
    for block in 2.. {
        let hash = random.u32(..) & !1 | 2;
        let position = IndexBlock::trusted(&bytes, IndexKind::Root).search(hash);
        let entry = IndexEntry { hash, block: LogicalBlock::new(block) };
        let mut index = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
        if index.insert_after(position, entry).is_err() {
            break;
        }
        cache.insert_after(None, position, entry);
        let view = IndexBlock::trusted(&bytes, IndexKind::Root);
        for hash in (0..50).map(|_| random.u32(..)).chain([0, hash, hash - 1, u32::MAX]) {
            let position = view.search(hash);
            let leaf = view.get(position).unwrap().block.get();
            let bound = view.get(position + 1).map(|next| next.hash);
            assert_eq!(find(&cache, hash), Some((leaf, bound)), "{hash}");
        }
    }
    cache.clear();
    assert!(find(&cache, 7).is_none() && cache.wants_blocks());
    drop(cache);
    assert_eq!(budget.bytes(), 0);
}

#[test]
fn nodes_are_below_their_entries_of_the_root() {
    let budget = DentryBudget::new(1 << 20);
    let cache = DirectoryIndexCache::new(&budget);
    let (mut bytes, mut node) = (root(), vec![0; 1024]);
    let mut index = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
    let entry = |hash, block| IndexEntry { hash, block: LogicalBlock::new(block) };
    index.insert_after(0, entry(100, 2)).unwrap();
    index.raise_into(&mut node, &LAYOUT, LogicalBlock::new(3)).unwrap();
    index.insert_after(0, entry(1000, 4)).unwrap();
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    assert!(find(&cache, 7).is_none());
    cache.add_node(0, &IndexBlock::trusted(&node, IndexKind::Node));
    assert_eq!(find(&cache, 7), Some((1, Some(100))));
    assert_eq!(find(&cache, 100), Some((2, Some(1000))));
    cache.insert_after(Some(0), 1, entry(200, 5));
    assert_eq!(find(&cache, 100), Some((2, Some(200))));
    assert_eq!(find(&cache, 201), Some((5, Some(1000))));
    assert!(find(&cache, 1000).is_none());
    let mut other = vec![0; 1024];
    init_node(&mut other, &LAYOUT, LogicalBlock::new(6));
    cache.add_node(1, &IndexBlock::trusted(&other, IndexKind::Node));
    assert_eq!(find(&cache, 1000), Some((6, None)));
    cache.clear();
    assert!(find(&cache, 7).is_none());
}

#[test]
fn memory_is_bounded() {
    let budget = DentryBudget::new(100);
    let cache = DirectoryIndexCache::new(&budget);
    cache.add_root(&IndexBlock::trusted(&root(), IndexKind::Root));
    assert!(find(&cache, 7).is_none() && !cache.wants_blocks());
    assert_eq!(budget.bytes(), 0);
}

/// The budget is asked again after a while.
#[test]
fn a_refusal_is_not_for_good() {
    let budget = DentryBudget::new(2000);
    let cache = DirectoryIndexCache::new(&budget);
    assert!(budget.take(2000));
    let bytes = root();
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    budget.give(2000);
    let passed = (0..).take_while(|_| !cache.wants_blocks()).count();
    assert_eq!(passed, REFUSED_SEARCHES as usize);
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    assert_eq!(find(&cache, 7), Some((1, None)));
}

/// A thread that found a block unknown, which another one has cached since, doesn't make others miss it.
#[test]
fn known_entries_are_not_set_again() {
    let budget = DentryBudget::new(1 << 20);
    let cache = DirectoryIndexCache::new(&budget);
    let mut bytes = root();
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    let mut index = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
    let entry = IndexEntry { hash: 100, block: LogicalBlock::new(2) };
    index.insert_after(0, entry).unwrap();
    // Were it set, it would have the entry.
    cache.add_root(&IndexBlock::trusted(&bytes, IndexKind::Root));
    assert_eq!(find(&cache, 200), Some((1, None)));
    assert_eq!(cache.find(|_| 200).map(|found| found.hash), Ok(200));
    cache.clear();
    assert_eq!(cache.find(|_| 200).map(|found| found.hash), Err(IndexMiss::Unknown));
}
