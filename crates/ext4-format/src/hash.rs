//! Hashes of file names, as hashed directories key their entries.
//!
//! A name hashes to a major value, whose low bit is always clear (the index uses that bit as a
//! continuation mark), and a minor value that orders names with equal majors. Three functions
//! exist, each over signed and unsigned characters because the first implementation hashed plain
//! `char`; a superblock flag says which of the two an image uses. SipHash serves directories that
//! are both encrypted and casefolded, under a key that comes from the encryption policy.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Hash Tree Directories; `debugfs
//! dx_hash` gives the test vectors.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// The largest position in a directory stream that 32-bit callers can hold; its double can't be
/// used as a hash because readers take it for the end of the directory.
const END_OF_DIRECTORY: u32 = 0x7fff_ffff;

/// Initial state where the superblock stores no seed: the constants of MD4.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Which function hashes names, as numbered in the superblock and in index roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashVersion {
    /// The first function, signed characters.
    Legacy,
    /// Half of MD4, signed characters: the default of `mke2fs`.
    HalfMd4,
    /// Tiny Encryption Algorithm, signed characters.
    Tea,
    /// The first function, unsigned characters.
    LegacyUnsigned,
    /// Half of MD4, unsigned characters.
    HalfMd4Unsigned,
    /// Tiny Encryption Algorithm, unsigned characters.
    TeaUnsigned,
    /// SipHash-2-4, only where a directory is both encrypted and casefolded.
    SipHash,
}

impl HashVersion {
    /// The version that a stored number means, or `None` for one that the format does not define.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            2 => Self::Tea,
            3 => Self::LegacyUnsigned,
            4 => Self::HalfMd4Unsigned,
            5 => Self::TeaUnsigned,
            6 => Self::SipHash,
            _ => return None,
        })
    }

    /// The number that superblocks and index roots store.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::Legacy => 0,
            Self::HalfMd4 => 1,
            Self::Tea => 2,
            Self::LegacyUnsigned => 3,
            Self::HalfMd4Unsigned => 4,
            Self::TeaUnsigned => 5,
            Self::SipHash => 6,
        }
    }

    /// The name that e2fsprogs has for it, with `_unsigned` for an unsigned sibling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::HalfMd4 => "half_md4",
            Self::Tea => "tea",
            Self::LegacyUnsigned => "legacy_unsigned",
            Self::HalfMd4Unsigned => "half_md4_unsigned",
            Self::TeaUnsigned => "tea_unsigned",
            Self::SipHash => "siphash",
        }
    }

    /// The unsigned sibling where the superblock says that characters are unsigned.
    ///
    /// Index roots store the signed number whichever applies, so this is needed on every read.
    #[must_use]
    pub const fn with_unsigned_chars(self, unsigned: bool) -> Self {
        match (self, unsigned) {
            (Self::Legacy, true) => Self::LegacyUnsigned,
            (Self::HalfMd4, true) => Self::HalfMd4Unsigned,
            (Self::Tea, true) => Self::TeaUnsigned,
            (version, _) => version,
        }
    }

    /// The signed sibling: the number that an index root stores.
    #[must_use]
    pub const fn stored_in_root(self) -> Self {
        match self {
            Self::LegacyUnsigned => Self::Legacy,
            Self::HalfMd4Unsigned => Self::HalfMd4,
            Self::TeaUnsigned => Self::Tea,
            version => version,
        }
    }

    /// Whether characters above 127 count as positive numbers.
    const fn is_unsigned(self) -> bool {
        matches!(self, Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned)
    }
}

/// The hash of a name. Ordered by major, then minor: the order of entries in a hashed directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NameHash {
    /// The value that the index compares; its low bit is clear.
    pub major: u32,
    /// Orders names within one major value; stored nowhere but in encrypted casefolded directories.
    pub minor: u32,
}

/// A hash function with its seed: what one filesystem (or one SipHash directory) uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    version: HashVersion,
    state: [u32; 4],
}

impl NameHasher {
    /// A hasher with the four seed words of the superblock (`s_hash_seed`, little-endian words).
    ///
    /// An all-zero seed means the built-in one. For [`HashVersion::SipHash`] the words are the
    /// 128-bit key, low word first, and zero stays zero.
    #[must_use]
    pub fn new(version: HashVersion, seed: [u32; 4]) -> Self {
        let unseeded = seed == [0; 4] && version != HashVersion::SipHash;
        Self { version, state: if unseeded { DEFAULT_SEED } else { seed } }
    }

    /// The function in use.
    #[must_use]
    pub const fn version(&self) -> HashVersion {
        self.version
    }

    /// The same seed with another function, as an index root may ask for.
    ///
    /// A zero seed stays the built-in one.
    #[must_use]
    pub const fn with_version(self, version: HashVersion) -> Self {
        Self { version, state: self.state }
    }

    /// Hashes a name. In a casefolded directory pass the folded name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let unsigned = self.version.is_unsigned();
        let (major, minor) = match self.version {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
                let mut state = self.state;
                for chunk in Chunks::<8>::new(name, unsigned) {
                    half_md4(&mut state, &chunk);
                }
                (state[1], state[2])
            }
            HashVersion::Tea | HashVersion::TeaUnsigned => {
                let mut state = self.state;
                for chunk in Chunks::<4>::new(name, unsigned) {
                    tea(&mut state, &chunk);
                }
                (state[0], state[1])
            }
            HashVersion::SipHash => {
                let key = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                let [a, b, c, d] = self.state;
                let mut hasher = SipHasher24::new_with_keys(key(a, b), key(c, d));
                hasher.write(name);
                let value = hasher.finish();
                // The high half selects the leaf, the low half breaks ties.
                ((value >> 32) as u32, value as u32)
            }
        };
        NameHash { major: usable_major(major), minor }
    }
}

/// Clears the continuation bit and avoids the value that means the end of a directory.
const fn usable_major(major: u32) -> u32 {
    let even = major & !1;
    if even == END_OF_DIRECTORY << 1 { (END_OF_DIRECTORY - 1) << 1 } else { even }
}

/// A byte as the `int` that the hash functions add up.
const fn character(byte: u8, unsigned: bool) -> u32 {
    if unsigned { byte as u32 } else { byte as i8 as i32 as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let product = character(byte, unsigned).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(last ^ product);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        (before, last) = (last, next);
    }
    last << 1
}

/// Cuts a name into blocks of `WORDS` big-endian words, padded with the length of the rest.
struct Chunks<'a, const WORDS: usize> {
    rest: &'a [u8],
    unsigned: bool,
}

impl<'a, const WORDS: usize> Chunks<'a, WORDS> {
    const fn new(name: &'a [u8], unsigned: bool) -> Self {
        Self { rest: name, unsigned }
    }
}

impl<const WORDS: usize> Iterator for Chunks<'_, WORDS> {
    type Item = [u32; WORDS];

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        // The length is a byte in every name that a directory can hold; longer inputs wrap, as the
        // 32-bit arithmetic of the format does.
        let length = self.rest.len() as u32;
        let pair = length | length << 8;
        let padding = pair | pair << 16;
        let (chunk, rest) = self.rest.split_at(self.rest.len().min(WORDS * 4));
        self.rest = rest;
        let mut words = [padding; WORDS];
        if self.unsigned || chunk.is_ascii() {
            // The usual case: no byte carries into the next.
            let mut whole = chunk.chunks_exact(4);
            let mut places = words.iter_mut();
            for (bytes, word) in (&mut whole).zip(&mut places) {
                *word = bytes.try_into().map_or(0, u32::from_be_bytes);
            }
            if let Some(word) = places.next() {
                for &byte in whole.remainder() {
                    *word = *word << 8 | u32::from(byte);
                }
            }
        } else {
            for (word, bytes) in words.iter_mut().zip(chunk.chunks(4)) {
                for &byte in bytes {
                    *word = character(byte, self.unsigned).wrapping_add(*word << 8);
                }
            }
        }
        Some(words)
    }
}

/// Eight steps. Inlined, so that constants are folded.
#[inline(always)]
fn half_md4_round(
    state: &mut [u32; 4],
    input: &[u32; 8],
    constant: u32,
    order: [usize; 8],
    shifts: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, word) in order.into_iter().enumerate() {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
        (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
    }
    *state = [a, b, c, d];
}

/// One block of MD4 with eight of its sixteen steps a round.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let mut next = *state;
    // Round constants of MD4: none, the square root of 2, the square root of 3.
    let choose = |b: u32, c: u32, d: u32| d ^ (b & (c ^ d));
    half_md4_round(&mut next, input, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], choose);
    let most = |b: u32, c: u32, d: u32| (b & c).wrapping_add((b ^ c) & d);
    half_md4_round(&mut next, input, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], most);
    let odd = |b: u32, c: u32, d: u32| b ^ c ^ d;
    half_md4_round(&mut next, input, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], odd);
    for (word, add) in state.iter_mut().zip(next) {
        *word = word.wrapping_add(add);
    }
}

/// One block of the Tiny Encryption Algorithm, 16 cycles, the name as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut left, mut right) = (state[0], state[1]);
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(
            (right << 4).wrapping_add(key[0])
                ^ right.wrapping_add(sum)
                ^ (right >> 5).wrapping_add(key[1]),
        );
        right = right.wrapping_add(
            (left << 4).wrapping_add(key[2])
                ^ left.wrapping_add(sum)
                ^ (left >> 5).wrapping_add(key[3]),
        );
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests;
