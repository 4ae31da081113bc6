//! Names in a FAT directory: long names, and the short name (8.3) of each.
//!
//! # Reference
//! Microsoft FAT Specification, 7 "Long Name Implementation".

use std::collections::{HashMap, HashSet};

/// UTF-16 units of a long name.
const UNITS_MAX: usize = 255;
/// Units that an entry of a long name holds.
pub const UNITS_PER_ENTRY: usize = 13;
const BASE_BYTES: usize = 8;
const SUFFIX_BYTES: usize = 3;
const FORBIDDEN: &[char] = &['"', '*', '/', ':', '<', '>', '?', '\\', '|', '\u{7f}'];

/// A name as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatName {
    /// The long name, in UTF-16; empty if the short one says it all.
    pub long: Vec<u16>,
    /// Eight characters and three, padded with spaces.
    pub short: [u8; BASE_BYTES + SUFFIX_BYTES],
}

impl FatName {
    /// Entries of the directory that it takes.
    pub fn entries(&self) -> u64 {
        self.long.len().div_ceil(UNITS_PER_ENTRY) as u64 + 1
    }

    /// What ties the long name to the short one.
    pub fn checksum(&self) -> u8 {
        self.short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte))
    }
}

/// Returns how the names of a directory are stored, in their order. Fails with the index of a name that can't be
/// stored, and the reason.
pub fn stored_names(names: &[&[u8]]) -> Result<Vec<FatName>, (usize, String)> {
    let mut folded = HashMap::new();
    let mut used = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        let text = check(name).map_err(|problem| (index, problem.to_owned()))?;
        if let Some(other) = folded.insert(fold(text), text) {
            return Err((index, format!("FAT doesn't tell it from '{other}'")));
        }
        // Names that are valid short names, whatever their case, keep them: a made-up short name of another
        // file would be found in their place.
        used.extend(exact(&fold(text)));
    }
    // The next number for names that begin alike.
    let mut next = HashMap::new();
    let stored = names.iter().filter_map(|name| check(name).ok()).map(|text| {
        if let Some(short) = exact(text) {
            return FatName { long: Vec::new(), short };
        }
        let (base, suffix, is_lossy) = squeezed(text);
        let plain = joined(&base, &suffix);
        let mut short = plain;
        // It was kept for this name.
        let mut is_free = !is_lossy;
        let number = next.entry(plain).or_insert(1_u32);
        while !is_free {
            let tail = format!("~{number}");
            *number += 1;
            let kept = base.len().min(BASE_BYTES - tail.len());
            short = joined(&[&base[..kept], tail.as_bytes()].concat(), &suffix);
            is_free = used.insert(short);
        }
        FatName { long: text.encode_utf16().collect(), short }
    });
    Ok(stored.collect())
}

fn check(name: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(name).map_err(|_| "FAT has names in Unicode only")?;
    if text.chars().any(|c| c < ' ' || FORBIDDEN.contains(&c)) {
        return Err("a name in FAT has no control characters and none of \" * / : < > ? \\ |");
    }
    if text.ends_with(['.', ' ']) || text.starts_with(' ') {
        return Err("a name in FAT doesn't begin with a space, or end with one or a dot");
    }
    if text.encode_utf16().count() > UNITS_MAX {
        return Err("a name in FAT has at most 255 characters");
    }
    Ok(text)
}

/// Two names that are equal after this are the same name for FAT.
fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).collect()
}

fn is_short(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"$%'-_@~`!(){}^#&".contains(&byte)
}

/// The short name of a name that needs no long one.
fn exact(text: &str) -> Option<[u8; BASE_BYTES + SUFFIX_BYTES]> {
    let (base, suffix) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let fits = (1..=BASE_BYTES).contains(&base.len()) && suffix.len() <= SUFFIX_BYTES;
    let is_plain = base.bytes().chain(suffix.bytes()).all(is_short);
    (fits && is_plain).then(|| joined(base.as_bytes(), suffix.as_bytes()))
}

/// The base and the suffix of a short name, and whether something was left out or replaced.
fn squeezed(text: &str) -> (Vec<u8>, Vec<u8>, bool) {
    let mut is_lossy = false;
    let mut part = |text: &str, length: usize| {
        let mut bytes = Vec::new();
        for c in text.chars() {
            match u8::try_from(c.to_ascii_uppercase()) {
                Ok(b' ' | b'.') => is_lossy = true,
                Ok(byte) if is_short(byte) => bytes.push(byte),
                _ => {
                    is_lossy = true;
                    bytes.push(b'_');
                }
            }
        }
        is_lossy |= bytes.len() > length;
        bytes.truncate(length);
        bytes
    };
    // A dot at the start doesn't begin a suffix.
    let inner = text.trim_start_matches('.');
    let (base, suffix) = inner.rsplit_once('.').unwrap_or((inner, ""));
    let (base, suffix) = (part(base, BASE_BYTES), part(suffix, SUFFIX_BYTES));
    (base, suffix, is_lossy || inner.len() < text.len())
}

fn joined(base: &[u8], suffix: &[u8]) -> [u8; BASE_BYTES + SUFFIX_BYTES] {
    let mut short = [b' '; BASE_BYTES + SUFFIX_BYTES];
    short[..base.len()].copy_from_slice(base);
    short[BASE_BYTES..BASE_BYTES + suffix.len()].copy_from_slice(suffix);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(names: &[&str]) -> Vec<String> {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let text = |name: &FatName| String::from_utf8(name.short.to_vec()).unwrap();
        stored_names(&names).unwrap().iter().map(text).collect()
    }

    #[test]
    fn short_names_are_unique() {
        let names = [
            "BOOTX64.EFI",
            "bootx64.efj",
            "long name.txt",
            "LONGNA~1.TXT",
            "long name2.txt",
            ".hidden",
            "a.tar.gz",
            "ä",
            "a+b",
            "loader.conf",
            "EFI",
        ];
        let expected = [
            "BOOTX64 EFI",
            "BOOTX64 EFJ",
            "LONGNA~2TXT",
            "LONGNA~1TXT",
            "LONGNA~3TXT",
            "HIDDEN~1   ",
            "ATAR~1  GZ ",
            "_~1     ",
            "A_B~1   ",
            "LOADER~1CON",
            "EFI     ",
        ];
        let padded: Vec<String> = expected.iter().map(|name| format!("{name:11}")).collect();
        assert_eq!(stored(&names), padded);
        let many: Vec<String> = (0..2000).map(|number| format!("a long name {number}")).collect();
        let many = stored(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(many.iter().collect::<HashSet<_>>().len(), 2000);
        assert_eq!(many[1999], "ALO~2000   ");
    }

    /// A lookup compares with long and short names alike.
    #[test]
    fn a_short_name_is_not_the_name_of_another_file() {
        let names = ["long name.txt", "longna~1.txt", "Other.txt"];
        assert_eq!(stored(&names), ["LONGNA~2TXT", "LONGNA~1TXT", "OTHER   TXT"]);
    }

    #[test]
    fn what_fat_can_not_name_is_refused() {
        for name in ["a:b", "a.", "a ", " a", "\u{7}", &"a".repeat(256)] {
            assert_eq!(stored_names(&[name.as_bytes()]).unwrap_err().0, 0, "{name}");
        }
        assert!(stored_names(&[b"\xff"]).is_err());
        let (index, problem) = stored_names(&[b"x", b"File", b"fILE"]).unwrap_err();
        assert_eq!((index, problem.as_str()), (2, "FAT doesn't tell it from 'File'"));
    }
}
