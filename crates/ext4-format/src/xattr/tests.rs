//! Attribute areas and blocks against a model and on arbitrary bytes.

use super::*;
use crate::checksum::ChecksumSeed;
use crate::error::AttributeProblem;
use proptest::prelude::*;

const OWN: InodeNumber = InodeNumber::new(12);
const BLOCK: PhysicalBlock = PhysicalBlock::new(99);
const IN_INODE: AttributePlace = AttributePlace { inode: OWN, block: None };
const IN_BLOCK: AttributePlace = AttributePlace { inode: OWN, block: Some(BLOCK) };

fn name(full: &str) -> AttributeName {
    AttributeName::parse(full.as_bytes()).unwrap()
}

fn sample() -> AttributeSet {
    let mut set = AttributeSet::new();
    set.set(name("user.comment"), AttributeValue::Inline(b"hello".to_vec()));
    set.set(name("user.empty"), AttributeValue::Inline(Vec::new()));
    set.set(name("security.x"), AttributeValue::Inline(vec![7; 8]));
    let large = name("trusted.large");
    let value = AttributeValue::in_inode(&large, InodeNumber::new(50), 5000, 0x1234_5678);
    set.set(large, value);
    set
}

#[test]
fn sets_survive_an_inode_and_a_block() {
    let set = sample();
    let mut area = vec![0xaa; set.length_in_inode()];
    set.encode_in_inode(&mut area).unwrap();
    let read = XattrView::check_in_inode(&area, IN_INODE).unwrap();
    assert_eq!(AttributeSet::read(&read), set);
    let mut block = vec![0xaa; 1024];
    set.encode_block(&mut block, 3).unwrap();
    let read = AttributesBlock::check(&block, IN_BLOCK).unwrap();
    assert_eq!(AttributeSet::read(&read.attributes()), set);
    assert_eq!(read.reference_count(), 3);
    assert_ne!(read.hash(), 0);
    for entry in read.attributes().iter() {
        read.attributes().verify_hash(&entry, 0x1234_5678, IN_BLOCK).unwrap();
    }
    let found = read.attributes().find(AttributeName::USER, b"comment").unwrap();
    assert_eq!(found.value, Value::Inline(b"hello"));
    assert_eq!(found.full_name().unwrap(), b"user.comment");
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let set = sample();
    let needed = set.length_in_inode();
    let mut area = vec![0xaa; needed - 1];
    let error = set.encode_in_inode(&mut area).unwrap_err();
    assert_eq!(error, NoAttributeRoom { needed, available: needed - 4 });
    assert!(area.iter().all(|&byte| byte == 0xaa));
    assert!(set.encode_block(&mut [0; 64], 1).is_err());
}

#[test]
fn the_seal_covers_block_and_place() {
    let seed = Some(ChecksumSeed::from_uuid(&[5; 16]));
    let mut block = vec![0; 1024];
    sample().encode_block(&mut block, 1).unwrap();
    seal_block(&mut block, seed, BLOCK);
    verify_block(&block, seed, OWN, BLOCK).unwrap();
    assert!(verify_block(&block, seed, OWN, PhysicalBlock::new(98)).is_err());
    set_reference_count(&mut block, 2);
    assert!(verify_block(&block, seed, OWN, BLOCK).is_err());
    verify_block(&block, None, OWN, BLOCK).unwrap();
}

#[test]
fn signed_hashes_are_right_too() {
    let high = b"\xe4\xf6";
    let mut block = vec![0; 1024];
    let mut set = AttributeSet::new();
    let name = AttributeName { index: AttributeName::USER, suffix: high.to_vec() };
    set.set(name, AttributeValue::Inline(b"value".to_vec()));
    set.encode_block(&mut block, 1).unwrap();
    // Over signed characters: ((-28 << 5) rotated) ^ -10, then the value's words.
    let signed = [0xe4_u8, 0xf6]
        .iter()
        .fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ (byte as i8 as i32 as u32));
    let words = [u32::from_le_bytes(*b"valu"), u32::from(b'e')];
    let signed = words.iter().fold(signed, |hash, word| hash.rotate_left(16) ^ word);
    assert_ne!(signed, entry_hash(high, b"value"));
    block[44..48].copy_from_slice(&signed.to_le_bytes());
    first_hash_is_right(&block).unwrap();
    block[44] ^= 1;
    first_hash_is_right(&block).unwrap_err();
}

fn first_hash_is_right(block: &[u8]) -> Result<(), Corrupt> {
    let attributes = AttributesBlock::check(block, IN_BLOCK).unwrap().attributes();
    attributes.verify_hash(&attributes.iter().next().unwrap(), 0, IN_BLOCK)
}

/// e2fsck and Linux take whole words.
#[test]
fn hashes_cover_the_bytes_behind_a_value() {
    let mut block = vec![0; 1024];
    let mut set = AttributeSet::new();
    set.set(name("user.comment"), AttributeValue::Inline(b"hello".to_vec()));
    set.encode_block(&mut block, 1).unwrap();
    let attributes = AttributesBlock::check(&block, IN_BLOCK).unwrap().attributes();
    let entry = attributes.iter().next().unwrap();
    let behind = entry.value_start + entry.value_length();
    first_hash_is_right(&block).unwrap();
    block[behind] = 1;
    first_hash_is_right(&block).unwrap_err();
}

#[test]
fn checks_name_the_problem() {
    let mut set = AttributeSet::new();
    set.set(name("user.a"), AttributeValue::Inline(b"1111".to_vec()));
    set.set(name("user.b"), AttributeValue::Inline(b"2222".to_vec()));
    let mut good = vec![0; 1024];
    set.encode_block(&mut good, 1).unwrap();
    let damaged = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        match AttributesBlock::check(&bad, IN_BLOCK) {
            Err(Corrupt::Attributes { offset, problem, .. }) => (offset, problem),
            other => panic!("unexpected {other:?}"),
        }
    };
    assert_eq!(damaged(0, &[1]), (0, AttributeProblem::Magic { found: 0xea02_0001 }));
    assert_eq!(damaged(4, &[0]), (0, AttributeProblem::ReferenceCount { found: 0 }));
    assert_eq!(damaged(8, &[2]), (0, AttributeProblem::Blocks { found: 2 }));
    let bounds = |start, length| AttributeProblem::ValueBounds { start, length };
    assert_eq!(damaged(34, &[0, 4]), (32, bounds(1024, 4)));
    assert_eq!(damaged(34, &[40, 0]), (32, bounds(40, 4)));
    assert_eq!(damaged(34, &good[54..56]).1, AttributeProblem::ValueOverlap { start: 1016 });
    assert_eq!(damaged(68, b"a"), (52, AttributeProblem::Duplicate));
    let inode = InodeNumber::new(9);
    assert_eq!(damaged(36, &[9]), (32, AttributeProblem::InodeValue { inode }));
}

#[test]
fn inode_values_keep_their_count_in_time_fields() {
    let fields = InodeValueFields { reference_count: 0x1_0000_0002, hash: 77 };
    assert_eq!(fields.to_inode(), (1, 2, 77));
    assert_eq!(InodeValueFields::from_inode(1, 2, 77), fields);
}

fn any_set() -> impl Strategy<Value = AttributeSet> {
    let suffix = proptest::collection::vec(any::<u8>(), 1..20);
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec((0_u8..12, suffix, value), 0..8).prop_map(|attributes| {
        let mut set = AttributeSet::new();
        for (index, suffix, value) in attributes {
            // Index 0 with an offset of 0 would look like the end only if the name were empty.
            set.set(AttributeName { index, suffix }, AttributeValue::Inline(value));
        }
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_set_survives(set in any_set()) {
        let mut area = vec![0; 1024];
        set.encode_in_inode(&mut area).unwrap();
        let read = XattrView::check_in_inode(&area, IN_INODE).unwrap();
        prop_assert_eq!(AttributeSet::read(&read), set.clone());
        let mut block = vec![0; 1024];
        set.encode_block(&mut block, 1).unwrap();
        let read = AttributesBlock::check(&block, IN_BLOCK).unwrap();
        prop_assert_eq!(AttributeSet::read(&read.attributes()), set);
    }

    #[test]
    fn any_bytes_are_attributes_or_an_error(
        tail in proptest::collection::vec(prop_oneof![0_u8..16, any::<u8>()], 0..128),
    ) {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&tail);
        if let Ok(read) = XattrView::check_in_inode(&bytes, IN_INODE) {
            let _ = AttributeSet::read(&read);
        }
        if bytes.len() >= 12 {
            bytes[4..12].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        }
        let _ = AttributesBlock::check(&bytes, IN_BLOCK);
        seal_block(&mut bytes, Some(ChecksumSeed::from_stored(1)), BLOCK);
    }
}
