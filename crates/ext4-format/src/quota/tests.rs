//! Quota files against a model and on arbitrary bytes.

use super::*;
use crate::error::{Corrupt, QuotaProblem};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn entry(id: u32, space_bytes: u64) -> QuotaEntry {
    QuotaEntry { id, space_bytes, inodes: 3, ..QuotaEntry::default() }
}

fn open(bytes: &[u8]) -> Result<QuotaFile<MemoryQuotaBlocks>, Corrupt> {
    QuotaFile::open(QuotaKind::User, MemoryQuotaBlocks::from_bytes(bytes))
}

#[test]
fn a_fresh_file_has_two_blocks() {
    let bytes = build(QuotaKind::User, []);
    assert_eq!(bytes.len(), 2 * BLOCK_LENGTH);
    let mut file = open(&bytes).unwrap();
    assert_eq!(file.entries(), Ok(vec![]));
    assert_eq!(file.get(0), Ok(None));
    let wrong = QuotaFile::open(QuotaKind::Group, MemoryQuotaBlocks::from_bytes(&bytes));
    assert!(matches!(wrong, Err(Corrupt::Quota { problem: QuotaProblem::Magic { .. }, .. })));
}

#[test]
fn an_empty_entry_of_the_superuser_is_kept() {
    let bytes = build(QuotaKind::User, [QuotaEntry::default()]);
    let mut file = open(&bytes).unwrap();
    assert_eq!(file.get(0), Ok(Some(QuotaEntry::default())));
}

#[test]
fn a_tree_that_meets_itself_is_refused() {
    let mut bytes = build(QuotaKind::User, [entry(1, 5)]);
    // Every reference of the root leads to the same block.
    let first: [u8; 4] = bytes[1024..1028].try_into().unwrap();
    for reference in bytes[1024..2048].chunks_mut(4) {
        reference.copy_from_slice(&first);
    }
    let problem = QuotaProblem::Shared { target: u32::from_le_bytes(first) };
    let error = Corrupt::Quota { kind: QuotaKind::User, block: 1, problem };
    assert_eq!(open(&bytes).unwrap().entries(), Err(error));
}

/// A block of entries that was overwritten costs those alone.
#[test]
fn entries_of_sound_blocks_can_be_read() {
    let all: Vec<QuotaEntry> = (0..100).map(|id| entry(id, 5)).collect();
    let mut bytes = build(QuotaKind::User, all.iter().copied());
    // The last of the blocks that hold entries.
    let (length, per_block) = (bytes.len(), 14);
    let kept = 100 / per_block * per_block;
    bytes[length - 1024..].fill(b'X');
    let mut file = open(&bytes).unwrap();
    assert!(file.entries().is_err());
    assert_eq!(file.readable_entries(), Ok((all[..kept].to_vec(), (100 - kept) as u64)));
}

/// Ids that differ in each of their bytes.
fn spread() -> Vec<QuotaEntry> {
    let mut ids: Vec<u32> = (0..40).chain([700, 70_000, 20 << 24, 20 << 24 | 5]).collect();
    ids.sort_unstable();
    ids.into_iter().map(|id| QuotaEntry { space_hard_limit: 9, ..entry(id, 5) }).collect()
}

fn salvaged(bytes: &[u8]) -> (Vec<QuotaEntry>, u64) {
    let blocks = MemoryQuotaBlocks::from_bytes(bytes);
    QuotaFile::open_without_head(QuotaKind::User, blocks).unwrap().readable_entries().unwrap()
}

#[test]
fn a_damaged_head_costs_no_entry() {
    let mut bytes = build(QuotaKind::User, spread());
    bytes[..1024].fill(b'X');
    assert!(open(&bytes).is_err());
    assert_eq!(salvaged(&bytes), (spread(), 0));
}

/// Nor does what leads to the blocks of references for the last byte: with large blocks, all that is one block.
#[test]
fn entries_without_a_way_to_them_are_found() {
    let sound = build(QuotaKind::User, spread());
    for fill in [0, b'X', 1] {
        let mut bytes = sound.clone();
        bytes[..2048].fill(fill);
        assert_eq!(salvaged(&bytes).0, spread());
        bytes[..1024].copy_from_slice(&sound[..1024]);
        assert_eq!(open(&bytes).unwrap().readable_entries().unwrap().0, spread());
        // Blocks 3 and 4 are those below the root.
        bytes[3 * 1024..5 * 1024].fill(fill);
        assert_eq!(salvaged(&bytes).0, spread());
    }
}

/// Without any reference, no block is taken for one of entries; that there may have been some is told.
#[test]
fn what_may_be_no_entry_is_not_read() {
    let mut bytes = build(QuotaKind::User, spread());
    for block in bytes.chunks_mut(1024).skip(1) {
        if block[8..10] == [0, 0] || block[12..16] != [0; 4] {
            block.fill(0);
        }
    }
    assert_eq!(salvaged(&bytes), (vec![], spread().len() as u64));
    bytes[1024..].fill(b'X');
    assert_eq!(salvaged(&bytes), (vec![], 256));
    // The references of these look like the header and an entry.
    let ids = [2, 22, 60].map(|id| entry(id, 5));
    let mut bytes = build(QuotaKind::User, ids);
    bytes[1024..2048].fill(0);
    assert_eq!(salvaged(&bytes).0, ids);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn behaves_like_a_map(
        steps in proptest::collection::vec((prop_oneof![0_u32..50, any::<u32>()], any::<u64>()), 0..60),
    ) {
        let mut model = BTreeMap::new();
        let mut file = QuotaFile::create(QuotaKind::User, MemoryQuotaBlocks::default()).unwrap();
        for (id, space) in steps {
            file.set(&entry(id, space)).unwrap();
            model.insert(id, entry(id, space));
        }
        for (&id, expected) in &model {
            prop_assert_eq!(file.get(id), Ok(Some(*expected)));
        }
        let bytes = file.into_blocks().to_bytes();
        let listed = open(&bytes).unwrap().entries().unwrap();
        prop_assert_eq!(listed, model.into_values().collect::<Vec<_>>());
    }

    #[test]
    fn damage_is_an_error_or_an_answer(
        at in 0_usize..8192,
        byte in any::<u8>(),
        id in 0_u32..40,
    ) {
        let mut bytes = build(QuotaKind::User, (0..30).map(|id| entry(id, 100)));
        let length = bytes.len();
        bytes[at % length] = byte;
        salvaged(&bytes);
        if let Ok(mut file) = open(&bytes) {
            let _ = file.entries();
            let _ = file.get(id);
            let _ = file.set(&entry(id, 7));
            let _ = file.set(&entry(id + 1000, 7));
        }
    }
}
