//! Name hashes and casefolding against `debugfs dx_hash`.

use crate::image::tools_available;
use drystone_ext4_format::casefold::fold;
use drystone_ext4_format::hash::{HashVersion, NameHash, NameHasher};
use std::fmt::Write;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// The last two numbers of each line that `dx_hash` prints.
fn hashes(commands: &str) -> Vec<NameHash> {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, commands).unwrap();
    let output = Command::new("debugfs").arg("-f").arg(&script).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let hex = |word: &str| {
        u32::from_str_radix(word.trim_start_matches("0x").trim_end_matches(')'), 16).unwrap()
    };
    let parse = |line: &str| {
        let (_, numbers) = line.rsplit_once(" is ").unwrap();
        let (major, minor) = numbers.split_once(" (minor ").unwrap();
        NameHash { major: hex(major), minor: hex(minor) }
    };
    output.lines().filter(|line| line.starts_with("Hash of")).map(parse).collect()
}

#[test]
fn hashes_of_random_names() {
    if !tools_available() {
        return;
    }
    const SEED: &str = "6f1c2e4a-8d3b-4f5a-9c7e-012345678fed";
    const SEED_WORDS: [u32; 4] = [0x4a2e_1c6f, 0x5a4f_3b8d, 0x2301_7e9c, 0xed8f_6745];
    // A fixed linear congruence: the names need variety, not randomness.
    let mut state = 42_u64;
    let mut next = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let letters: Vec<char> =
        ('a'..='z').chain('A'..='Z').chain("ßäéñ日本한글😀_+.".chars()).collect();
    let mut cases = Vec::new();
    let mut commands = String::new();
    for _ in 0..600 {
        let length = 1 + next(62);
        let name: String =
            (0..length).map(|_| letters[next(letters.len() as u64) as usize]).collect();
        let raw = next(6) as u8;
        writeln!(commands, "dx_hash -h {raw} -s {SEED} {name}").unwrap();
        cases.push((HashVersion::from_raw(raw).unwrap(), name));
    }
    let expected = hashes(&commands);
    assert_eq!(expected.len(), cases.len());
    for ((version, name), expected) in cases.iter().zip(expected) {
        let hash = NameHasher::new(*version, SEED_WORDS).hash(name.as_bytes());
        assert_eq!(hash, expected, "{version:?} {name}");
    }
}

#[test]
fn folded_names() {
    if !tools_available() {
        return;
    }
    let bases = ["", "a\u{301}", "\u{3b1}"];
    let blocks = [
        0xa1..0x600_u32,
        0x610..0x660,
        0x900..0xa00,
        0x10a0..0x1100,
        0x13a0..0x1400,
        0x1ab0..0x1b00,
        0x1c80..0x1cc0,
        0x1dc0..0x2000,
        0x2070..0x2200,
        0x2c00..0x2d30,
        0xa640..0xa7ff,
        0xab30..0xabc0,
        0xac00..0xac40,
        0xf900..0xfb50,
        0xff01..0xffa0,
        0x10400..0x10600,
        0x10c80..0x10d80,
        0x11380..0x113d8,
        0x118a0..0x118e0,
        0x11930..0x11948,
        0x16e40..0x16eb0,
        0x1d150..0x1d1c0,
        0x1e900..0x1e950,
        0x2f800..0x2fa20,
    ];
    let mut names = Vec::new();
    for character in blocks.into_iter().flatten().filter_map(char::from_u32) {
        if character.is_whitespace() || character.is_control() {
            continue;
        }
        names.extend(bases.map(|base| format!("{base}{character}\u{323}x")));
    }
    let mut commands = String::new();
    for name in &names {
        writeln!(commands, "dx_hash -c -e utf8-12.1 -h half_md4 {name}").unwrap();
    }
    let expected = hashes(&commands);
    assert_eq!(expected.len(), names.len());
    let hasher = NameHasher::new(HashVersion::HalfMd4, [0; 4]);
    let wrong: Vec<_> = names
        .iter()
        .zip(expected)
        .filter(|(name, expected)| hasher.hash(fold(name).as_bytes()) != *expected)
        .map(|(name, _)| name.escape_unicode().to_string())
        .collect();
    assert!(wrong.is_empty(), "{} differ: {:?}", wrong.len(), &wrong[..wrong.len().min(40)]);
}
