//! Directory blocks against a model and on arbitrary bytes.

use super::*;
use crate::checksum::ChecksumSeed;
use crate::error::DirectoryProblem;
use crate::hash::NameHash;
use proptest::prelude::*;
use std::collections::BTreeMap;

const OWN: InodeNumber = InodeNumber::new(12);
const PLACE: DirectoryPlace = DirectoryPlace { inode: OWN, block: LogicalBlock::new(3) };

fn layout(checksum: bool, file_type: bool, stores_hashes: bool) -> DirectoryLayout {
    DirectoryLayout {
        file_type,
        checksum: checksum.then(|| ChecksumSeed::from_uuid(&[1; 16]).inode(OWN, 7)),
        encrypted: stores_hashes,
        casefolded: stores_hashes,
        inode_last: InodeNumber::new(1000),
    }
}

fn any_layout() -> impl Strategy<Value = DirectoryLayout> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(a, b, c)| layout(a, b, c))
}

fn entry(name: &[u8], inode: u32) -> NewEntry<'_> {
    let hash = Some(NameHash { major: inode * 2, minor: inode });
    NewEntry { name, inode: InodeNumber::new(inode), entry_type: EntryType::Symlink, hash }
}

#[test]
fn a_new_directory_has_two_entries() {
    for (length, layout) in [(1024, layout(true, true, true)), (65536, layout(false, false, false))]
    {
        let mut bytes = vec![0xaa; length];
        init_with_dots(&mut bytes, &layout, OWN, InodeNumber::ROOT);
        let block = DirectoryBlock::check(&bytes, &layout, PLACE).unwrap();
        block.check_dots(PLACE).unwrap();
        assert_eq!(block.parent(), Some(InodeNumber::ROOT));
        assert!(block.is_empty());
        assert_eq!(block.live_bytes(), 24);
        let mut block = DirectoryBlockMut::trusted(&mut bytes, &layout);
        block.set_parent(InodeNumber::new(44)).unwrap();
        assert_eq!(block.view().parent(), Some(InodeNumber::new(44)));
    }
}

#[test]
fn removed_entries_can_be_read_as_long_as_their_bytes_are_there() {
    for layout in [layout(true, true, false), layout(false, false, false)] {
        let mut bytes = vec![0; 1024];
        init_with_dots(&mut bytes, &layout, OWN, InodeNumber::ROOT);
        let mut block = DirectoryBlockMut::trusted(&mut bytes, &layout);
        for (number, name) in [(20, "kept"), (21, "one"), (22, "another"), (23, "last")] {
            block.insert(&entry(name.as_bytes(), number)).unwrap();
        }
        let offsets: Vec<_> = block.view().entries().map(|entry| entry.offset).collect();
        let (kept, one, last) = (offsets[2], offsets[3], offsets[5]);
        // As Linux before 5.13 and debugfs remove: the record in front becomes longer, and that is all.
        let end = layout.records_end(1024);
        bytes[kept + 4..kept + 6].copy_from_slice(&((end - kept) as u16).to_le_bytes());
        let block = DirectoryBlock::check(&bytes, &layout, PLACE).unwrap();
        let names = |block: &DirectoryBlock<'_>| -> Vec<(u32, String)> {
            let deleted = block.deleted_entries();
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            deleted.iter().map(|entry| (entry.inode.get(), text(entry.name))).collect()
        };
        let all = [(21, "one"), (22, "another"), (23, "last")];
        let all: Vec<_> = all.iter().map(|(number, name)| (*number, name.to_string())).collect();
        assert_eq!(names(&block), all);
        assert_eq!(block.entries().count(), 3);
        // An inode that can't exist, and a name that can't: neither was an entry.
        bytes[last..last + 4].copy_from_slice(&1001u32.to_le_bytes());
        bytes[one + 8] = b'/';
        let block = DirectoryBlock::check(&bytes, &layout, PLACE).unwrap();
        assert_eq!(names(&block), all[1..2]);
    }
}

#[test]
fn an_empty_block_of_64_kib_is_one_record() {
    let layout = layout(false, true, false);
    let mut bytes = vec![0; 65536];
    init_empty(&mut bytes, &layout);
    assert_eq!(bytes[4..6], [0xff, 0xff]);
    assert_eq!(DirectoryBlock::check(&bytes, &layout, PLACE).unwrap().entries().count(), 0);
    let mut block = DirectoryBlockMut::check(&mut bytes, &layout, PLACE).unwrap();
    assert_eq!(block.insert(&entry(b"first", 5)), Ok(0));
    assert_eq!(block.insert(&entry(b"second", 6)), Ok(16));
    assert_eq!(block.remove(0), Ok(()));
    assert_eq!(block.remove(0), Err(NoEntry));
    assert_eq!(block.remove(16), Ok(()));
    assert_eq!(block.view().live_bytes(), 0);
}

#[test]
fn the_seal_covers_the_records() {
    let layout = layout(true, true, false);
    let mut bytes = vec![0; 1024];
    init_empty(&mut bytes, &layout);
    assert!(matches!(verify(&bytes, &layout, PLACE), Err(Corrupt::DirectoryChecksum { .. })));
    seal(&mut bytes, &layout);
    verify(&bytes, &layout, PLACE).unwrap();
    bytes[500] ^= 1;
    assert!(verify(&bytes, &layout, PLACE).is_err());
    bytes[1024 - 5] = 0;
    let missing = PLACE.corrupt(1012, DirectoryProblem::MissingTail);
    assert_eq!(verify(&bytes, &layout, PLACE), Err(missing.clone()));
    assert_eq!(DirectoryBlock::check(&bytes, &layout, PLACE).unwrap_err(), missing);
}

#[test]
fn checks_name_the_record() {
    let layout = layout(false, true, false);
    let mut good = vec![0; 1024];
    init_empty(&mut good, &layout);
    let mut block = DirectoryBlockMut::trusted(&mut good, &layout);
    block.insert(&entry(b"one", 20)).unwrap();
    block.insert(&entry(b"two", 21)).unwrap();
    let damaged = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        match DirectoryBlock::check(&bad, &layout, PLACE) {
            Err(Corrupt::Directory { inode: OWN, offset, problem, .. }) => (offset, problem),
            other => panic!("unexpected {other:?}"),
        }
    };
    let last = InodeNumber::new(1000);
    let inode = InodeNumber::new(1001);
    assert_eq!(damaged(12, &[0xe9, 3]), (12, DirectoryProblem::InodeNumber { inode, last }));
    assert_eq!(
        damaged(16, &[0xf8, 3]),
        (12, DirectoryProblem::RecordTooLong { length: 1016, room: 1012 })
    );
    assert_eq!(damaged(16, &[14, 0]), (12, DirectoryProblem::RecordUnaligned { length: 14 }));
    assert_eq!(
        damaged(16, &[8, 0]),
        (12, DirectoryProblem::RecordTooShort { length: 8, needed: 12 })
    );
    assert_eq!(damaged(6, &[5]), (0, DirectoryProblem::RecordTooShort { length: 12, needed: 16 }));
    let inode = InodeNumber::new(20);
    assert_eq!(damaged(6, &[0]), (0, DirectoryProblem::EmptyName { inode }));
    assert_eq!(damaged(7, &[9]), (0, DirectoryProblem::EntryType { found: 9 }));
    assert_eq!(damaged(9, b"/"), (0, DirectoryProblem::NameByte { byte: b'/' }));
    // The second record reaches the end, so one that stops 8 bytes short leaves a stump.
    assert!(matches!(damaged(16, &[0xec, 3]), (1016, DirectoryProblem::RecordTooShort { .. })));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, u32),
    Remove(usize),
    Retarget(usize, u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    let name = proptest::collection::vec(b'a'..=b'd', 1..40);
    prop_oneof![
        3 => (name, 1..1000_u32).prop_map(|(name, inode)| Step::Insert(name, inode)),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), 1..1000_u32).prop_map(|(at, inode)| Step::Retarget(at, inode)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn removed_entries_are_looked_for_in_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), layout in any_layout(),
    ) {
        for entry in DirectoryBlock::trusted(&bytes, &layout).deleted_entries() {
            prop_assert!(!entry.name.is_empty() && entry.inode <= layout.inode_last);
        }
    }

    #[test]
    fn behaves_like_a_map(
        layout in any_layout(),
        steps in proptest::collection::vec(any_step(), 0..80),
    ) {
        let mut bytes = vec![0; 1024];
        init_empty(&mut bytes, &layout);
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in steps {
            let mut block = DirectoryBlockMut::check(&mut bytes, &layout, PLACE).unwrap();
            let pick = |at: usize| model.keys().nth(at % model.len().max(1)).cloned();
            match step {
                Step::Insert(name, inode) if !model.contains_key(&name) => {
                    let room = block.view().has_room(&name);
                    let offset = block.insert(&entry(&name, inode));
                    prop_assert_eq!(offset.is_ok(), room);
                    if let Ok(offset) = offset {
                        let found = block.view().entry_at(offset).unwrap();
                        prop_assert_eq!(found.hash.is_some(), layout.stores_hashes());
                        model.insert(name, inode);
                    }
                }
                Step::Insert(..) => {}
                Step::Remove(at) => {
                    if let Some(name) = pick(at) {
                        let offset = block.view().find(&name).unwrap().offset;
                        block.remove(offset).unwrap();
                        model.remove(&name);
                    }
                }
                Step::Retarget(at, inode) => {
                    if let Some(name) = pick(at) {
                        let offset = block.view().find(&name).unwrap().offset;
                        block.set_target(offset, InodeNumber::new(inode), EntryType::Fifo).unwrap();
                        model.insert(name, inode);
                    }
                }
            }
        }
        let block = DirectoryBlock::check(&bytes, &layout, PLACE).unwrap();
        let listed: BTreeMap<Vec<u8>, u32> =
            block.entries().map(|e| (e.name.to_vec(), e.inode.get())).collect();
        prop_assert_eq!(&listed, &model);
        let mut packed = vec![0; 1024];
        let mut builder = DirectoryBlockBuilder::new(&mut packed, &layout);
        for entry in block.entries() {
            builder.push(&entry.into()).unwrap();
        }
        prop_assert_eq!(builder.room(), layout.records_end(1024) - block.live_bytes());
        builder.finish();
        let packed = DirectoryBlock::check(&packed, &layout, PLACE).unwrap();
        prop_assert_eq!(packed.entries().count(), model.len());
    }

    #[test]
    fn any_bytes_are_a_block_or_an_error(
        layout in any_layout(),
        mut bytes in proptest::collection::vec(prop_oneof![0_u8..16, any::<u8>()], 0..128),
    ) {
        let _ = DirectoryBlock::check(&bytes, &layout, PLACE);
        let _ = verify(&bytes, &layout, PLACE);
        let view = DirectoryBlock::trusted(&bytes, &layout);
        let _ = (view.parent(), view.live_bytes(), view.has_room(b"name"), view.is_empty());
        let offsets: Vec<_> = view.entries().map(|entry| entry.offset).collect();
        seal(&mut bytes, &layout);
        let mut block = DirectoryBlockMut::trusted(&mut bytes, &layout);
        let _ = block.insert(&entry(b"name", 9));
        for offset in offsets {
            let _ = block.remove(offset);
        }
        let _ = block.set_parent(OWN);
    }
}
