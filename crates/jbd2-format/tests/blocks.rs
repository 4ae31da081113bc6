//! What is written is read back, in every layout; damage is refused; nothing panics.

use drystone_jbd2_format::{
    ChecksumKind, Commit, CompatFeatures, Corrupt, DescriptorBuilder, FastCommit, FastCommitRecord,
    FastCommitScan, Format, IncompatFeatures, NewJournal, RevokeBuilder, Superblock, Tag, TagFlags,
    TransactionChecksum, check_commit, check_descriptor, check_revoke, encode_commit,
    encode_fast_commits, format_journal_superblock,
};
use proptest::prelude::*;

const SEQUENCE: u32 = 0xffff_fff0;

fn layouts(block_size_bytes: u32) -> Vec<Format> {
    let checksums = [
        (CompatFeatures::empty(), IncompatFeatures::empty()),
        (CompatFeatures::CHECKSUM, IncompatFeatures::empty()),
        (CompatFeatures::empty(), IncompatFeatures::CHECKSUM_V2),
        (CompatFeatures::empty(), IncompatFeatures::CHECKSUM_V3),
    ];
    let widths = [IncompatFeatures::empty(), IncompatFeatures::WIDE];
    checksums
        .into_iter()
        .flat_map(|(compat, incompat)| widths.map(|width| (compat, incompat | width)))
        .map(|(compat, incompat)| Format::new(block_size_bytes, [9; 16], compat, incompat))
        .collect()
}

fn new_journal() -> NewJournal {
    NewJournal {
        block_size_bytes: 4096,
        length_blocks: 1024,
        first_block: 1,
        uuid: [3; 16],
        users: vec![],
        user_count: 1,
        incompat: IncompatFeatures::CHECKSUM_V3 | IncompatFeatures::FAST_COMMIT,
        fast_commit_blocks: 0,
    }
}

#[test]
fn tag_sizes() {
    let sizes: Vec<_> = layouts(4096).iter().map(|format| format.tag_bytes()).collect();
    assert_eq!(sizes, [8, 12, 8, 12, 10, 14, 16, 16]);
}

#[test]
fn full_descriptors() {
    for block_size in [1024, 4096, 65536] {
        for format in layouts(block_size) {
            let mut builder = DescriptorBuilder::new(&format, SEQUENCE);
            let mut expected = Vec::new();
            while !builder.is_full() {
                let number = expected.len() as u64;
                let high = if format.is_wide() { number << 32 } else { 0 };
                let checksum = match format.checksums() {
                    ChecksumKind::V3 => (number as u32).wrapping_mul(0x0101_0101),
                    ChecksumKind::V2 => number as u32 & 0xffff,
                    _ => 0,
                };
                builder.push(high | number, number.is_multiple_of(3), checksum);
                expected.push((high | number, number.is_multiple_of(3), checksum));
            }
            assert_eq!(expected.len(), format.tags_per_descriptor());
            let bytes = builder.finish();
            let tags: Vec<_> = check_descriptor(&format, &bytes, SEQUENCE, 5).unwrap().collect();
            let found: Vec<_> = tags
                .iter()
                .map(|tag| (tag.block, tag.flags.contains(TagFlags::ESCAPE), tag.checksum))
                .collect();
            assert_eq!(found, expected);
            assert!(tags.last().unwrap().flags.contains(TagFlags::LAST));
            assert!(check_descriptor(&format, &bytes, SEQUENCE + 1, 5).is_err());
        }
    }
}

#[test]
fn full_revoke_blocks() {
    for format in layouts(1024) {
        let mut builder = RevokeBuilder::new(&format, SEQUENCE);
        let mut expected = Vec::new();
        while !builder.is_full() {
            let high = if format.is_wide() { 1 << 40 } else { 0 };
            expected.push(high | expected.len() as u64);
            builder.push(expected[expected.len() - 1]);
        }
        assert_eq!(expected.len(), format.revokes_per_block());
        let mut bytes = builder.finish();
        let found: Vec<_> = check_revoke(&format, &bytes, SEQUENCE, 5).unwrap().collect();
        assert_eq!(found, expected);
        bytes[12..16].copy_from_slice(&2000_u32.to_be_bytes());
        assert!(check_revoke(&format, &bytes, SEQUENCE, 5).is_err());
    }
}

/// Of a commit block.
const COMMIT_FIELDS_BYTES: usize = 60;

#[test]
fn commit_blocks() {
    let commit = Commit { seconds: 1 << 33, nanoseconds: 5 };
    let mut checksum = TransactionChecksum::new();
    checksum.update(&[1; 1024]);
    for format in layouts(1024) {
        let bytes = encode_commit(&format, SEQUENCE, commit, &checksum);
        assert_eq!(check_commit(&format, &bytes, SEQUENCE, 5, &checksum), Ok(commit));
        let mut other = checksum.clone();
        other.update(&[2; 1024]);
        let is_v1 = format.checksums() == ChecksumKind::V1;
        assert_eq!(check_commit(&format, &bytes, SEQUENCE, 5, &other).is_err(), is_v1);
    }
}

#[test]
fn every_flipped_bit_is_found_with_block_checksums() {
    let features = IncompatFeatures::CHECKSUM_V3 | IncompatFeatures::WIDE;
    let format = Format::new(1024, [9; 16], CompatFeatures::empty(), features);
    let mut builder = DescriptorBuilder::new(&format, SEQUENCE);
    builder.push(77, false, 1);
    let descriptor = builder.finish();
    let mut builder = RevokeBuilder::new(&format, SEQUENCE);
    builder.push(77);
    let revoke = builder.finish();
    let checksum = TransactionChecksum::new();
    let commit = encode_commit(&format, SEQUENCE, Commit { seconds: 1, nanoseconds: 2 }, &checksum);
    for bit in 0..1024 * 8 {
        let flipped = |block: &[u8]| {
            let mut block = block.to_vec();
            block[bit / 8] ^= 1 << (bit % 8);
            block
        };
        assert!(check_descriptor(&format, &flipped(&descriptor), SEQUENCE, 5).is_err());
        assert!(check_revoke(&format, &flipped(&revoke), SEQUENCE, 5).is_err());
        // What a torn write leaves after the fields doesn't count.
        let is_field = bit / 8 < COMMIT_FIELDS_BYTES;
        let checked = check_commit(&format, &flipped(&commit), SEQUENCE, 5, &checksum);
        assert_eq!(checked.is_err(), is_field, "bit {bit}");
    }
}

#[test]
fn copies_are_checked_as_they_stand_in_the_log() {
    for format in layouts(1024) {
        let mut copy = vec![4; 1024];
        let checksum = format.copy_checksum(SEQUENCE, &copy);
        let tag = Tag { block: 1, flags: TagFlags::empty(), checksum };
        assert!(tag.check_copy(&format, SEQUENCE, &copy, 5).is_ok());
        copy[1000] ^= 1;
        let has_checksums = matches!(format.checksums(), ChecksumKind::V2 | ChecksumKind::V3);
        assert_eq!(tag.check_copy(&format, SEQUENCE, &copy, 5).is_err(), has_checksums);
    }
}

#[test]
fn superblocks() {
    let bytes = format_journal_superblock(&new_journal());
    let mut superblock = Superblock::check(&bytes).unwrap();
    assert_eq!((superblock.start(), superblock.sequence()), (None, 1));
    assert_eq!((superblock.log(), superblock.fast_commit_area()), (1..768, 769..1024));
    superblock.set_log(Some(767), 5);
    let mut bytes = superblock.to_bytes();
    let superblock = Superblock::check(&bytes).unwrap();
    assert_eq!((superblock.start(), superblock.sequence()), (Some(767), 5));
    bytes[0x50] = 4;
    bytes[0xfc] ^= 1;
    assert!(matches!(Superblock::check(&bytes), Err(Corrupt::SuperblockChecksum { .. })));
    bytes[0x28..0x2c].copy_from_slice(&0x100_u32.to_be_bytes());
    let unknown = Corrupt::UnknownFeatures { set: "incompat", bits: 0x100 };
    assert_eq!(Superblock::check(&bytes).unwrap_err(), unknown);
    bytes[4..8].copy_from_slice(&3_u32.to_be_bytes());
    let superblock = Superblock::check(&bytes).unwrap();
    assert!(superblock.is_version_1() && superblock.incompat().is_empty());
    assert_eq!(superblock.log(), 1..1024);
}

/// The complete fast commits of transaction 7.
fn scan(area: &[u8]) -> Vec<FastCommit> {
    let mut scan = FastCommitScan::new(7);
    for block in area.chunks(1024) {
        if !scan.block(block) {
            break;
        }
    }
    scan.finish().expect("features that are known")
}

fn records(count: u8) -> FastCommit {
    (0..count).map(|byte| FastCommitRecord { tag: 6, value: Box::new([byte; 164]) }).collect()
}

#[test]
fn fast_commits() {
    let commits = vec![records(1), records(40), vec![], records(6)];
    let area = encode_fast_commits(&commits, 7, 1024);
    assert!(area.len().is_multiple_of(1024) && area.len() > 8 * 1024);
    assert_eq!(scan(&area), commits);
    assert!(scan(&encode_fast_commits(&commits, 8, 1024)).is_empty(), "of another transaction");
    assert!(scan(&[0; 2048]).is_empty());
    // Leftovers of an earlier transaction follow those of this one.
    let old = encode_fast_commits(&commits, 6, 1024);
    let first = encode_fast_commits(&commits[..1], 7, 1024);
    assert_eq!(scan(&[&first, &old[first.len()..]].concat()), commits[..1]);
    // Without its last block, or with a byte changed, a commit and all that follow don't count.
    assert_eq!(scan(&area[..area.len() - 3 * 1024]), commits[..1]);
    assert_eq!(scan(&area[..area.len() - 2 * 1024]), commits[..2]);
    for (place, whole) in [(20, 0), (1500, 1), (area.len() - 1000, 3)] {
        let mut area = area.clone();
        area[place] ^= 1;
        assert_eq!(scan(&area), commits[..whole], "byte {place}");
    }
    let mut strange = encode_fast_commits(&[], 7, 1024);
    assert!(strange.is_empty());
    strange = encode_fast_commits(&commits[..1], 7, 1024);
    strange[4] = 1;
    assert!(scan(&strange).is_empty(), "the checksum covers the features");
}

/// Linux ends a sync that had nothing to write with a fast commit without records.
#[test]
fn a_fast_commit_that_linux_wrote() {
    let mut scan = FastCommitScan::new(3);
    assert!(scan.block(&encode_fast_commits(&[records(1)], 3, 4096)));
    let mut block = vec![0; 4096];
    block[..12].copy_from_slice(&[8, 0, 0xfc, 0x0f, 3, 0, 0, 0, 0xd0, 0x6d, 0x0f, 0xc8]);
    assert!(scan.block(&block));
    assert_eq!(scan.finish().unwrap(), [records(1), vec![]]);
}

proptest! {
    #[test]
    fn no_block_makes_a_check_panic(mut bytes in prop::collection::vec(any::<u8>(), 1024), kind in 0u32..7) {
        bytes[..4].copy_from_slice(&drystone_jbd2_format::MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&kind.to_be_bytes());
        bytes[8..12].copy_from_slice(&SEQUENCE.to_be_bytes());
        let checksum = TransactionChecksum::new();
        for format in layouts(1024) {
            if let Ok(tags) = check_descriptor(&format, &bytes, SEQUENCE, 1) {
                prop_assert!(tags.count() <= 1024 / 8);
            }
            if let Ok(blocks) = check_revoke(&format, &bytes, SEQUENCE, 1) {
                prop_assert!(blocks.count() <= 1024 / 4);
            }
            let _ = check_commit(&format, &bytes, SEQUENCE, 1, &checksum);
        }
        let _ = Superblock::check(&bytes);
        let mut scan = FastCommitScan::new(u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]));
        bytes[..4].copy_from_slice(&[9, 0, 8, 0]);
        while scan.block(&bytes) && bytes.len() > 4 {
            bytes.truncate(bytes.len() / 2);
        }
        let _ = scan.finish();
    }
}

/// Counting on from the last possible block number must not overflow.
#[test]
fn a_journal_of_the_greatest_length_has_a_fast_commit_area() {
    let mut bytes = format_journal_superblock(&NewJournal {
        incompat: IncompatFeatures::empty(),
        ..new_journal()
    });
    bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let superblock = Superblock::check(&bytes).unwrap();
    assert_eq!(superblock.length_blocks(), u32::MAX);
    assert!(superblock.fast_commit_area().is_empty());
}
