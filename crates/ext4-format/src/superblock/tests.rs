//! Superblocks that are made here pass the check, and keep what is set.

use super::*;
use crate::features::Incompat;
use crate::hash::HashVersion;
use crate::testing;
use drystone_ondisk::crc32c;

#[test]
fn a_new_superblock_passes_its_own_check() {
    let geometry = testing::geometry();
    let mut superblock = Superblock::create(&geometry).unwrap();
    superblock.set_volume_name(b"a name that is much too long");
    superblock.set_free_blocks_count(250_000);
    superblock.set_flags(SuperblockFlags::UNSIGNED_HASH);
    superblock.set_hash_version(HashVersion::HalfMd4);
    superblock.set_creation_time_seconds(1 << 33);
    let mut bytes = superblock.encode();
    let read = Superblock::check(&bytes).unwrap();
    assert_eq!(read, superblock);
    assert_eq!(read.layout(), &Layout::new(&geometry).unwrap());
    assert_eq!(read.volume_name(), b"a name that is m");
    assert_eq!(read.hash_version(), Some(HashVersion::HalfMd4Unsigned));
    assert_eq!(read.creation_time_seconds(), 1 << 33);
    bytes[0x78] ^= 1;
    let error = Superblock::check(&bytes).unwrap_err();
    assert!(matches!(error, FormatError::Corrupt(Corrupt::SuperblockChecksum { .. })));
    bytes[0x60] |= 0x80;
    let error = Superblock::check(&bytes).unwrap_err();
    assert!(matches!(error, FormatError::Corrupt(Corrupt::SuperblockChecksum { .. })));
    bytes[0x62] |= 0x80;
    let features = "FEATURE_I23".to_owned();
    let error = Superblock::check(&bytes).unwrap_err();
    assert_eq!(error, Unsupported::IncompatFeatures { features }.into());
    assert!(matches!(
        Superblock::check(&[0; SUPERBLOCK_BYTES]).unwrap_err(),
        FormatError::Corrupt(Corrupt::SuperblockMagic { found: 0 })
    ));
}

#[test]
fn a_journal_device_is_called_so() {
    let mut bytes = Superblock::create(&testing::geometry()).unwrap().encode();
    bytes[0x60] |= Incompat::JOURNAL_DEV.bits() as u8;
    let checksum = crc32c(!0, &bytes[..0x3fc]).to_le_bytes();
    bytes[0x3fc..].copy_from_slice(&checksum);
    assert_eq!(Superblock::check(&bytes).unwrap_err(), Unsupported::JournalDevice.into());
}

#[test]
fn a_half_changed_image_is_refused() {
    let mut image = vec![0; 4096];
    mark_half_changed(&mut image);
    assert_eq!(image, [0; 4096]);
    let superblock = Superblock::create(&testing::geometry()).unwrap();
    image[1024..2048].copy_from_slice(&superblock.encode());
    mark_half_changed(&mut image);
    let error = Superblock::check(&image[1024..]).unwrap_err();
    let features = "FEATURE_I31".to_owned();
    assert_eq!(error, Unsupported::IncompatFeatures { features }.into());
}

#[test]
fn errors_are_recorded_and_forgotten() {
    let mut superblock = Superblock::create(&testing::geometry()).unwrap();
    let before = superblock.clone();
    let error = |inode| ErrorRecord {
        time_seconds: 1_800_000_000,
        inode,
        block: 1 << 40,
        function: "check".to_owned(),
        line: 7,
        code: 2,
    };
    superblock.record_error(&error(12));
    superblock.record_error(&error(13));
    assert_eq!(superblock.first_error(), Some(error(12)));
    assert_eq!(superblock.last_error(), Some(error(13)));
    assert_eq!(superblock.error_count(), 2);
    assert!(superblock.state().contains(StateFlags::ERRORS));
    superblock.clear_errors();
    superblock.set_state(StateFlags::CLEAN);
    assert_eq!(superblock, before);
}

#[test]
fn changing_features_checks_again() {
    let superblock = Superblock::create(&testing::geometry()).unwrap();
    let change = Features::parse("^64bit").unwrap();
    let narrow = superblock.with_features(superblock.features().apply(&change)).unwrap();
    assert_eq!(narrow.layout().descriptor_size(), 32);
    let change = Features::parse("compression").unwrap();
    assert!(superblock.with_features(superblock.features().apply(&change)).is_err());
}
