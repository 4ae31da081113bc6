//! Case-insensitive names, as the `utf8-12.1.0` encoding of ext4 compares them.
//!
//! A name is folded character by character (full case folding, then canonical decomposition),
//! combining marks are put into canonical order, and default-ignorable characters are dropped.
//! Two names are the same entry when their folded bytes are equal, and the directory hash is
//! computed over the folded bytes. A name that is not UTF-8 is compared byte by byte, unless the
//! filesystem is strict, in which case it can't be created.
//!
//! The encoding is frozen at Unicode 12.1, the crates that do the work are newer. Characters that
//! were unassigned in 12.1 stay as they are; the table below lists those that a newer Unicode would
//! change. Unicode's stability policy covers the others.
//!
//! # Reference
//! Kernel documentation, "ext4 General Information", Case-insensitive file name lookups.

use caseless::Caseless;
use std::borrow::Cow;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// The encoding that the superblock names in `s_encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `utf8-12.1.0`, the only one that the format defines.
    Utf8V12_1,
}

impl Encoding {
    /// The encoding for a superblock's number, or `None` for an unknown one.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Utf8V12_1),
            _ => None,
        }
    }

    /// The number that the superblock stores.
    #[must_use]
    pub const fn to_raw(self) -> u16 {
        match self {
            Self::Utf8V12_1 => 1,
        }
    }
}

/// The bit of `s_encoding_flags` that forbids names outside the encoding.
pub const ENCODING_FLAG_STRICT: u16 = 1;

/// How casefolded directories of one filesystem compare names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Casefold {
    /// The encoding of names.
    pub encoding: Encoding,
    /// Whether a name outside the encoding is refused.
    pub strict: bool,
}

impl Casefold {
    /// Whether a name may be created in a casefolded directory.
    #[must_use]
    pub fn accepts(&self, name: &[u8]) -> bool {
        !self.strict || std::str::from_utf8(name).is_ok()
    }

    /// The bytes to hash and to compare: the folded name, or the name itself if it isn't UTF-8.
    #[must_use]
    pub fn key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        match std::str::from_utf8(name) {
            Ok(text) => Cow::Owned(fold(text).into_bytes()),
            Err(_) => Cow::Borrowed(name),
        }
    }

    /// Whether two names are the same entry.
    #[must_use]
    pub fn equal(&self, left: &[u8], right: &[u8]) -> bool {
        left == right || self.key(left) == self.key(right)
    }
}

/// Folds a name for comparison.
#[must_use]
pub fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    if name.is_ascii() {
        folded.push_str(name);
        folded.make_ascii_lowercase();
        return folded;
    }
    let mut characters: Vec<(u8, char)> = Vec::with_capacity(name.len());
    for character in name.chars() {
        expand(character, &mut characters);
    }
    // Canonical order: marks sort by class between two characters of class zero. Ignorable
    // characters are of class zero and separate marks, though they are dropped afterwards.
    let mut rest = &mut characters[..];
    while let Some(start) = rest.iter().position(|&(class, _)| class != 0) {
        let marks = &mut rest[start..];
        let end = marks.iter().position(|&(class, _)| class == 0).unwrap_or(marks.len());
        let (run, after) = marks.split_at_mut(end);
        run.sort_by_key(|&(class, _)| class);
        rest = after;
    }
    folded.extend(characters.iter().map(|&(_, c)| c).filter(|&c| !is_ignorable(c)));
    folded
}

/// Appends what one character folds to, each with its combining class.
fn expand(character: char, into: &mut Vec<(u8, char)>) {
    if in_ranges(character, CHANGED_AFTER_12_1) || is_ignorable(character) {
        into.push((0, character));
        return;
    }
    for folded in std::iter::once(character).default_case_fold() {
        decompose_canonical(folded, |part| {
            // A decomposition may end in a mark that folds itself (the iota subscript).
            for last in std::iter::once(part).default_case_fold() {
                into.push((canonical_combining_class(last), last));
            }
        });
    }
}

/// Whether a character carries no meaning for comparison (Default_Ignorable_Code_Point in 12.1).
fn is_ignorable(character: char) -> bool {
    in_ranges(character, IGNORABLE)
}

fn in_ranges(character: char, ranges: &[(u32, u32)]) -> bool {
    let point = character as u32;
    let after = ranges.partition_point(|&(first, _)| first <= point);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|&(_, last)| point <= last)
}

/// Default_Ignorable_Code_Point of Unicode 12.1, inclusive ranges.
const IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Characters that Unicode 13 to 18 gave a folding, a decomposition or a combining class.
const CHANGED_AFTER_12_1: &[(u32, u32)] = &[
    (0x5c8, 0x5c9),
    (0x897, 0x89f),
    (0x8ca, 0x8d2),
    (0xc3c, 0xc3c),
    (0x1715, 0x1715),
    (0x1abf, 0x1af0),
    (0x1c89, 0x1c89),
    (0x1dfa, 0x1dfa),
    (0x2c2f, 0x2c2f),
    (0xa7c0, 0xa7c0),
    (0xa7c7, 0xa7c7),
    (0xa7c9, 0xa7c9),
    (0xa7cb, 0xa7cc),
    (0xa7d0, 0xa7d0),
    (0xa7d6, 0xa7d6),
    (0xa7d8, 0xa7d8),
    (0xa7da, 0xa7da),
    (0xa7dc, 0xa7dc),
    (0xa7f5, 0xa7f5),
    (0xa82c, 0xa82c),
    (0x10570, 0x1057a),
    (0x1057c, 0x1058a),
    (0x1058c, 0x10592),
    (0x10594, 0x10595),
    (0x105c9, 0x105c9),
    (0x105e4, 0x105e4),
    (0x10d50, 0x10d65),
    (0x10d69, 0x10d6d),
    (0x10eab, 0x10eac),
    (0x10ecb, 0x10ecf),
    (0x10ef0, 0x10efb),
    (0x10efd, 0x10eff),
    (0x10f82, 0x10f85),
    (0x11070, 0x11070),
    (0x11383, 0x11383),
    (0x11385, 0x11385),
    (0x1138e, 0x1138e),
    (0x11391, 0x11391),
    (0x113c5, 0x113c5),
    (0x113c7, 0x113c8),
    (0x113ce, 0x113d0),
    (0x11938, 0x11938),
    (0x1193d, 0x1193e),
    (0x11943, 0x11943),
    (0x11f41, 0x11f42),
    (0x16121, 0x16128),
    (0x1612f, 0x1612f),
    (0x16d68, 0x16d6a),
    (0x16ff0, 0x16ff1),
    (0x1d127, 0x1d128),
    (0x1d250, 0x1d252),
    (0x1d25b, 0x1d25c),
    (0x1d25f, 0x1d25f),
    (0x1d280, 0x1d281),
    (0x1e08f, 0x1e08f),
    (0x1e2ae, 0x1e2ae),
    (0x1e4ec, 0x1e4ef),
    (0x1e5ee, 0x1e5ef),
    (0x1e6e3, 0x1e6e3),
    (0x1e6e6, 0x1e6e6),
    (0x1e6ee, 0x1e6ef),
    (0x1e6f5, 0x1e6f5),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_folds_to_lower_case() {
        assert_eq!(fold("README.TxT"), "readme.txt");
    }

    #[test]
    fn folds_fully_and_decomposes() {
        assert_eq!(fold("Straße"), "strasse");
        assert_eq!(fold("\u{1e9e}"), "ss");
        assert_eq!(fold("É"), "e\u{301}");
        assert_eq!(fold("e\u{301}"), "e\u{301}");
        assert_eq!(fold("\u{212b}"), "a\u{30a}");
        assert_eq!(fold("\u{130}"), "i\u{307}");
        assert_eq!(fold("한"), "\u{1112}\u{1161}\u{11ab}");
    }

    #[test]
    fn orders_marks() {
        assert_eq!(fold("a\u{301}\u{323}"), fold("a\u{323}\u{301}"));
        // A joiner separates marks and then disappears.
        assert_eq!(fold("a\u{301}\u{34f}\u{323}"), "a\u{301}\u{323}");
    }

    #[test]
    fn drops_ignorable_characters() {
        assert_eq!(fold("so\u{ad}ft\u{200d}"), "soft");
        assert_eq!(fold("\u{fe0f}"), "");
    }

    #[test]
    fn leaves_later_characters_alone() {
        assert_eq!(fold("\u{a7c7}\u{2c2f}"), "\u{a7c7}\u{2c2f}");
        assert_eq!(fold("a\u{301}\u{1ac1}"), "a\u{301}\u{1ac1}");
    }

    #[test]
    fn table_covers_the_crates_in_use() {
        // A newer Unicode in a dependency adds characters that the table has to list.
        assert_eq!(unicode_normalization::UNICODE_VERSION.0, 18, "extend CHANGED_AFTER_12_1");
        assert_eq!(caseless::UNICODE_VERSION.0, 16, "extend CHANGED_AFTER_12_1");
    }

    #[test]
    fn bytes_outside_the_encoding_compare_as_bytes() {
        let lax = Casefold { encoding: Encoding::Utf8V12_1, strict: false };
        let strict = Casefold { strict: true, ..lax };
        assert!(lax.equal(b"A", b"a"));
        assert!(!lax.equal(b"A\xff", b"a\xff"));
        assert!(lax.equal(b"A\xff", b"A\xff"));
        assert!(lax.accepts(b"\xff") && !strict.accepts(b"\xff"));
    }

    proptest::proptest! {
        #[test]
        fn folding_twice_changes_nothing(name in "\\PC{0,40}") {
            let once = fold(&name);
            proptest::prop_assert_eq!(fold(&once), once);
        }
    }
}
