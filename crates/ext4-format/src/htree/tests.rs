//! Index blocks against a model and on arbitrary bytes.

use super::*;
use crate::checksum::ChecksumSeed;
use crate::dir::{
    DirectoryBlock, DirectoryBlockBuilder, DirectoryLayout, DirectoryPlace, EntryType, NewEntry,
    NoRoom,
};
use crate::error::{Corrupt, IndexProblem};
use crate::hash::{HashVersion, NameHash, NameHasher};
use crate::ids::InodeNumber;
use crate::ids::LogicalBlock;
use proptest::prelude::*;

const OWN: InodeNumber = InodeNumber::new(12);
const LIMITS: IndexLimits = IndexLimits { directory_blocks: 1 << 20, large_directory: false };

fn place(block: u32) -> DirectoryPlace {
    DirectoryPlace { inode: OWN, block: LogicalBlock::new(block) }
}

fn layout(checksum: bool) -> DirectoryLayout {
    DirectoryLayout {
        file_type: true,
        checksum: checksum.then(|| ChecksumSeed::from_uuid(&[1; 16]).inode(OWN, 7)),
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(100_000),
    }
}

fn entry(hash: u32, block: u32) -> IndexEntry {
    IndexEntry { hash, block: LogicalBlock::new(block) }
}

fn root(length: usize, layout: &DirectoryLayout) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let version = HashVersion::HalfMd4Unsigned;
    init_root(&mut bytes, layout, OWN, InodeNumber::ROOT, version, LogicalBlock::new(1));
    bytes
}

#[test]
fn a_fresh_root_is_sound() {
    for (length, checksum, limit) in
        [(1024, true, 123), (1024, false, 124), (4096, true, 507), (65536, true, 8187)]
    {
        let layout = layout(checksum);
        let mut bytes = root(length, &layout);
        let view = IndexBlock::check_root(&bytes, &layout, place(0), &LIMITS).unwrap();
        assert_eq!((view.limit(), view.count(), view.levels()), (limit, 1, Some(0)));
        assert_eq!(view.hash_version(), Some(HashVersion::HalfMd4));
        assert_eq!(view.parent(), Some(InodeNumber::ROOT));
        // To a reader that knows no index, the root is an ordinary block.
        let linear = DirectoryBlock::trusted(&bytes, &layout.without_tail());
        assert_eq!(linear.parent(), Some(InodeNumber::ROOT));
        seal(&mut bytes, IndexKind::Root, &layout);
        verify(&bytes, IndexKind::Root, &layout, place(0)).unwrap();
    }
}

#[test]
fn index_blocks_get_room_for_checksums_unless_they_are_full() {
    let (bare, sealed) = (layout(false), layout(true));
    for count in [1, 2, 122, 123, 124_u32] {
        let mut bytes = root(1024, &bare);
        let mut block = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
        for number in 1..count {
            let last = block.view().count() - 1;
            block.insert_after(last, entry(number * 100, 1 + number)).unwrap();
        }
        let before = bytes.clone();
        let mut block = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
        if count == 124 {
            assert_eq!(block.set_checksummed(true), Err(NoRoom));
            assert_eq!(bytes, before);
            continue;
        }
        block.set_checksummed(true).unwrap();
        seal(&mut bytes, IndexKind::Root, &sealed);
        verify(&bytes, IndexKind::Root, &sealed, place(0)).unwrap();
        let view = IndexBlock::check_root(&bytes, &sealed, place(0), &LIMITS).unwrap();
        assert_eq!((view.count(), view.limit()), (count as u16, 123));
        IndexBlockMut::trusted(&mut bytes, IndexKind::Root).set_checksummed(false).unwrap();
        assert_eq!(bytes, before);
    }
}

#[test]
fn nodes_split_and_roots_rise() {
    let layout = layout(true);
    let mut bytes = root(1024, &layout);
    let mut block = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
    for number in 1..123_u32 {
        let hash = number * 100;
        let position = block.view().search(hash);
        block.insert_after(position, entry(hash, 1 + number)).unwrap();
    }
    assert!(block.view().is_full());
    assert!(block.insert_after(0, entry(2, 3)).is_err());
    let mut node = vec![0; 1024];
    block.raise_into(&mut node, &layout, LogicalBlock::new(500)).unwrap();
    let root = IndexBlock::check_root(&bytes, &layout, place(0), &LIMITS).unwrap();
    assert_eq!((root.levels(), root.count()), (Some(1), 1));
    assert_eq!(root.get(0), Some(entry(0, 500)));
    let mut upper = vec![0; 1024];
    let mut lower = IndexBlockMut::trusted(&mut node, IndexKind::Node);
    let hash = lower.split_into(&mut upper, &layout).unwrap();
    assert_eq!(hash, 6100);
    for (bytes, count) in [(&mut node, 61), (&mut upper, 62)] {
        seal(bytes, IndexKind::Node, &layout);
        verify(bytes, IndexKind::Node, &layout, place(500)).unwrap();
        let view = IndexBlock::check_node(bytes, &layout, place(500), &LIMITS).unwrap();
        assert_eq!(view.count(), count);
        assert_eq!(view.limit(), 126);
    }
}

#[test]
fn checks_name_the_problem() {
    let layout = layout(true);
    let good = root(1024, &layout);
    let damaged = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        match IndexBlock::check_root(&bad, &layout, place(0), &LIMITS) {
            Err(Corrupt::DirectoryIndex { problem, .. }) => problem,
            other => panic!("unexpected {other:?}"),
        }
    };
    assert_eq!(damaged(0, 13), IndexProblem::Disguise);
    assert_eq!(damaged(28, 9), IndexProblem::HashVersion { found: 9 });
    assert_eq!(damaged(29, 7), IndexProblem::RootInfo);
    assert_eq!(damaged(30, 2), IndexProblem::Levels { found: 2, limit: 1 });
    assert_eq!(damaged(32, 124), IndexProblem::Limit { found: 124, expected: 123 });
    assert_eq!(damaged(34, 0), IndexProblem::Count { count: 0, limit: 123 });
    let block = LogicalBlock::new(0);
    assert_eq!(damaged(36, 0), IndexProblem::Target { position: 0, block, blocks: 1 << 20 });
}

#[test]
fn a_split_between_equal_hashes_continues() {
    let layout = layout(false);
    let mut full = vec![0; 1024];
    let mut builder = DirectoryBlockBuilder::new(&mut full, &layout);
    let names: Vec<String> = (0..40).map(|number| format!("name{number:02}")).collect();
    for name in &names {
        let inode = InodeNumber::new(20);
        let new =
            NewEntry { name: name.as_bytes(), inode, entry_type: EntryType::Regular, hash: None };
        builder.push(&new).unwrap();
    }
    builder.finish();
    let source = DirectoryBlock::check(&full, &layout, place(1)).unwrap();
    let same = |_: &crate::dir::Entry<'_>| NameHash { major: 8, minor: 0 };
    let split = LeafSplit::plan(&source, place(1), same).unwrap().unwrap();
    assert_eq!(split.hash, 9);
    let mut upper = vec![0; 1024];
    split.fill_upper(&full, &mut upper);
    split.keep_lower(&mut full);
    for (half, names) in [(&full, &names[..20]), (&upper, &names[20..])] {
        let half = DirectoryBlock::check(half, &layout, place(1)).unwrap();
        assert!(half.entries().map(|entry| entry.name).eq(names.iter().map(String::as_bytes)));
    }
    let mut bytes = root(1024, &layout);
    let mut index = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
    index.insert_after(0, entry(split.hash, 2)).unwrap();
    assert_eq!(index.view().search(8), 0);
    assert!(index.view().continues_after(0, 8));
    assert!(!index.view().continues_after(0, 10));
    assert_eq!(index.view().search(10), 1);
}

fn plan(layout: &DirectoryLayout) -> DirectoryPlan<'_> {
    DirectoryPlan { own: OWN, parent: InodeNumber::ROOT, layout, block_size: 1024 }
}

#[test]
fn empty_directories_can_be_built() {
    let layout = layout(true);
    let blocks = build_linear(&plan(&layout), []);
    assert_eq!(blocks.len(), 1);
    let view = DirectoryBlock::check(&blocks[0], &layout, place(0)).unwrap();
    view.check_dots(place(0)).unwrap();
    let blocks = build_hashed(&plan(&layout), HashVersion::Tea, false, &mut []).unwrap();
    assert_eq!(blocks.len(), 2);
    let limits = IndexLimits { directory_blocks: 2, large_directory: false };
    IndexBlock::check_root(&blocks[0], &layout, place(0), &limits).unwrap();
}

#[test]
fn too_many_entries_for_the_levels_are_refused() {
    let layout = layout(true);
    let name = [b'n'; 255];
    let new = |number: u32| {
        let hash = NameHash { major: number * 2, minor: 0 };
        let inode = InodeNumber::new(20);
        (hash, NewEntry { name: &name, inode, entry_type: EntryType::Regular, hash: None })
    };
    // Three such names fill a leaf of 1 KiB; a root and one level lead to 123 * 126 leaves.
    let mut entries: Vec<_> = (0..123 * 126 * 3 + 1).map(new).collect();
    let version = HashVersion::Tea;
    assert!(build_hashed(&plan(&layout), version, false, &mut entries).is_err());
    let blocks = build_hashed(&plan(&layout), version, true, &mut entries).unwrap();
    let directory_blocks = blocks.len() as u32;
    let limits = IndexLimits { directory_blocks, large_directory: true };
    let root = IndexBlock::check_root(&blocks[0], &layout, place(0), &limits).unwrap();
    assert_eq!((root.levels(), root.count()), (Some(2), 1));
    let node = root.get(0).unwrap().block;
    let node = IndexBlock::check_node(&blocks[node.get() as usize], &layout, place(1), &limits);
    assert_eq!(node.unwrap().count(), 124);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn leaves_split_by_hash(count in 2_u32..40) {
        let layout = layout(true);
        let hasher = NameHasher::new(HashVersion::HalfMd4, [0; 4]);
        let mut full = vec![0; 1024];
        let mut builder = DirectoryBlockBuilder::new(&mut full, &layout);
        for number in 0..count {
            let name = format!("f{number}");
            let inode = InodeNumber::new(20);
            let entry_type = EntryType::Regular;
            let new = NewEntry { name: name.as_bytes(), inode, entry_type, hash: None };
            builder.push(&new).unwrap();
        }
        builder.finish();
        let source = DirectoryBlock::check(&full, &layout, place(1)).unwrap();
        let hash_of = |entry: &crate::dir::Entry<'_>| hasher.hash(entry.name);
        let split = LeafSplit::plan(&source, place(1), hash_of).unwrap().unwrap();
        let mut upper = vec![0; 1024];
        split.fill_upper(&full, &mut upper);
        split.keep_lower(&mut full);
        let lower = DirectoryBlock::check(&full, &layout, place(1)).unwrap();
        let upper = DirectoryBlock::check(&upper, &layout, place(2)).unwrap();
        prop_assert!(lower.entries().all(|e| hasher.hash(e.name).major < split.hash));
        prop_assert!(upper.entries().all(|e| hasher.hash(e.name).major >= split.hash));
        prop_assert_eq!(lower.entries().count() + upper.entries().count(), count as usize);
    }

    #[test]
    fn search_finds_the_last_that_is_not_above(
        mut hashes in proptest::collection::vec(any::<u32>(), 0..100),
        wanted in any::<u32>(),
    ) {
        hashes.sort_unstable();
        let layout = layout(true);
        let mut bytes = root(1024, &layout);
        let mut block = IndexBlockMut::trusted(&mut bytes, IndexKind::Root);
        for (position, &hash) in (0..).zip(&hashes) {
            block.insert_after(position, entry(hash, 7)).unwrap();
        }
        let view = IndexBlock::check_root(&bytes, &layout, place(0), &LIMITS).unwrap();
        let expected = hashes.iter().filter(|&&hash| hash <= wanted).count();
        prop_assert_eq!(usize::from(view.search(wanted)), expected);
    }

    #[test]
    fn any_bytes_are_an_index_or_an_error(
        mut bytes in proptest::collection::vec(prop_oneof![0_u8..13, any::<u8>()], 0..128),
        checksum in any::<bool>(),
    ) {
        let layout = layout(checksum);
        let _ = IndexBlock::check_root(&bytes, &layout, place(0), &LIMITS);
        let _ = IndexBlock::check_node(&bytes, &layout, place(0), &LIMITS);
        for kind in [IndexKind::Root, IndexKind::Node] {
            let _ = verify(&bytes, kind, &layout, place(0));
            let view = IndexBlock::trusted(&bytes, kind);
            let _ = (view.search(77), view.entries().count(), view.levels());
            seal(&mut bytes, kind, &layout);
            let mut block = IndexBlockMut::trusted(&mut bytes, kind);
            let _ = block.insert_after(0, entry(4, 5));
            block.set_block(0, LogicalBlock::new(9));
        }
    }
}
