//! Hashes of names, as other programs compute them.

use super::*;

/// The seed 6f1c2e4a-8d3b-4f5a-9c7e-012345678fed as superblock words.
const SEED: [u32; 4] = [0x4a2e_1c6f, 0x5a4f_3b8d, 0x2301_7e9c, 0xed8f_6745];

#[test]
fn agrees_with_debugfs() {
    // From e2fsprogs 1.47.0: debugfs -R 'dx_hash -h VERSION -s SEED NAME'.
    let vectors: &[(u8, &str, u32, u32)] = &[
        (0, "a", 0xe74b53e2, 0x0),
        (0, "hello", 0x32252546, 0x0),
        (0, "lost+found", 0x5e2aba24, 0x0),
        (0, "äöü", 0xe32d0194, 0x0),
        (0, &"x".repeat(31), 0xa365191c, 0x0),
        (0, &"y".repeat(32), 0x71586034, 0x0),
        (0, &"z".repeat(33), 0x7851e27c, 0x0),
        (0, &"w".repeat(255), 0x839cf226, 0x0),
        (0, "日本語のファイル名.txt", 0xac85d92e, 0x0),
        (1, "a", 0xfb8de6e0, 0x8353917d),
        (1, "hello", 0xf34013dc, 0x3ee2e3),
        (1, "lost+found", 0x2faef52e, 0x5bbf1c51),
        (1, "äöü", 0x7ef7764c, 0x18dd5a62),
        (1, &"x".repeat(31), 0x7b5ec4d8, 0x2eef166c),
        (1, &"y".repeat(32), 0x96838530, 0x5dbc1ba7),
        (1, &"z".repeat(33), 0x20aea1a8, 0xb37a4f05),
        (1, &"w".repeat(255), 0x6fc45262, 0x2c15523),
        (1, "日本語のファイル名.txt", 0x880b6840, 0xeb7a5cff),
        (2, "a", 0xc5b734e0, 0x6f0e120f),
        (2, "hello", 0xd8e1b35c, 0x1576c6c7),
        (2, "lost+found", 0x544bb8d2, 0x583fb3d2),
        (2, "äöü", 0xf7ac3178, 0xb6b2a25f),
        (2, &"x".repeat(31), 0xb94b4f3a, 0x616f304f),
        (2, &"y".repeat(32), 0xa2caf216, 0xf4d530c7),
        (2, &"z".repeat(33), 0x96d2f096, 0x75730eb0),
        (2, &"w".repeat(255), 0xd197698c, 0x88da5179),
        (2, "日本語のファイル名.txt", 0xf6c91962, 0xdc1036bb),
        (3, "a", 0xe74b53e2, 0x0),
        (3, "hello", 0x32252546, 0x0),
        (3, "lost+found", 0x5e2aba24, 0x0),
        (3, "äöü", 0xd21e5596, 0x0),
        (3, &"x".repeat(31), 0xa365191c, 0x0),
        (3, &"y".repeat(32), 0x71586034, 0x0),
        (3, &"z".repeat(33), 0x7851e27c, 0x0),
        (3, &"w".repeat(255), 0x839cf226, 0x0),
        (3, "日本語のファイル名.txt", 0xe4053258, 0x0),
        (4, "a", 0xfb8de6e0, 0x8353917d),
        (4, "hello", 0xf34013dc, 0x3ee2e3),
        (4, "lost+found", 0x2faef52e, 0x5bbf1c51),
        (4, "äöü", 0x79c291f0, 0x7d60e63a),
        (4, &"x".repeat(31), 0x7b5ec4d8, 0x2eef166c),
        (4, &"y".repeat(32), 0x96838530, 0x5dbc1ba7),
        (4, &"z".repeat(33), 0x20aea1a8, 0xb37a4f05),
        (4, &"w".repeat(255), 0x6fc45262, 0x2c15523),
        (4, "日本語のファイル名.txt", 0x867d9846, 0x399269ae),
        (5, "a", 0xc5b734e0, 0x6f0e120f),
        (5, "hello", 0xd8e1b35c, 0x1576c6c7),
        (5, "lost+found", 0x544bb8d2, 0x583fb3d2),
        (5, "äöü", 0x336de2f8, 0x2a25a94c),
        (5, &"x".repeat(31), 0xb94b4f3a, 0x616f304f),
        (5, &"y".repeat(32), 0xa2caf216, 0xf4d530c7),
        (5, &"z".repeat(33), 0x96d2f096, 0x75730eb0),
        (5, &"w".repeat(255), 0xd197698c, 0x88da5179),
        (5, "日本語のファイル名.txt", 0xc6a00a48, 0xa71cc034),
    ];
    for &(raw, name, major, minor) in vectors {
        let version = HashVersion::from_raw(raw).unwrap();
        let hash = NameHasher::new(version, SEED).hash(name.as_bytes());
        assert_eq!(hash, NameHash { major, minor }, "{version:?} {name:?}");
    }
}

#[test]
fn zero_seed_is_the_built_in_one() {
    let hash = NameHasher::new(HashVersion::HalfMd4, [0; 4]).hash(b"lost+found");
    assert_eq!(hash, NameHash { major: 0x591d_e422, minor: 0x6ffc_56e0 });
    let hash = NameHasher::new(HashVersion::Tea, [0; 4]).hash(b"lost+found");
    assert_eq!(hash, NameHash { major: 0x2dbf_9e80, minor: 0xbfeb_ee4f });
}

#[test]
fn end_of_directory_is_never_a_hash() {
    assert_eq!(usable_major(0xffff_ffff), 0xffff_fffc);
    assert_eq!(usable_major(0xffff_fffe), 0xffff_fffc);
    assert_eq!(usable_major(0xffff_fffd), 0xffff_fffc);
    assert_eq!(usable_major(3), 2);
}

#[test]
fn siphash_takes_the_high_half_first() {
    // The reference vector of SipHash-2-4: key 00..0f, input 00..0e gives a129ca6149be45e5.
    let key = [0x0302_0100, 0x0706_0504, 0x0b0a_0908, 0x0f0e_0d0c];
    let name: Vec<u8> = (0..15).collect();
    let hash = NameHasher::new(HashVersion::SipHash, key).hash(&name);
    assert_eq!(hash, NameHash { major: 0xa129_ca60, minor: 0x49be_45e5 });
}

#[test]
fn versions_survive_a_round_trip() {
    for raw in 0..=6 {
        let version = HashVersion::from_raw(raw).unwrap();
        assert_eq!(version.to_raw(), raw);
        assert_eq!(version.stored_in_root().with_unsigned_chars(raw > 2 && raw < 6), version);
    }
    assert_eq!(HashVersion::from_raw(7), None);
}
