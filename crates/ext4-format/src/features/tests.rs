//! Features by their names and numbers.

use super::*;

#[test]
fn a_list_sets_and_clears() {
    let change = Features::parse("^metadata_csum,64bit extents,^has_journal").unwrap();
    let before = Features {
        read_only_compat: ReadOnlyCompat::METADATA_CSUM | ReadOnlyCompat::SPARSE_SUPER,
        ..Features::NONE
    };
    assert_eq!(before.apply(&change).to_string(), "extent,64bit,sparse_super");
    let change = Features::parse("64bit,none,quota").unwrap();
    assert_eq!(before.apply(&change).to_string(), "quota");
    assert_eq!(Features::parse("nope").unwrap_err().name, "nope");
    assert!(Features::parse("feature_x99").is_err());
}

#[test]
fn unknown_flags_have_numbers() {
    let features = Features { incompat: Incompat::from_bits_retain(1 << 27), ..Features::NONE };
    assert_eq!(features.to_string(), "FEATURE_I27");
    assert_eq!(Features::from_name("FEATURE_I27"), Some(features));
    assert!(features.check_readable().is_err());
    let features = Features { read_only_compat: ReadOnlyCompat::SHARED_BLOCKS, ..Features::NONE };
    assert!(features.check_readable().is_ok());
    assert_eq!(
        features.check_writable().unwrap_err(),
        Unsupported::ReadOnlyCompatFeatures { features: "shared_blocks".to_owned() }
    );
}
