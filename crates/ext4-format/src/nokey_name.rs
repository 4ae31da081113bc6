//! How names of encrypted directories are shown without the key.
//!
//! Such a name is ciphertext, which may hold any byte, so it is shown encoded in base64 with the
//! alphabet for URLs: the two words of the name's hash, then the ciphertext, or its first 149 bytes
//! and a digest of the rest. The result has at most 252 characters and is unique in the directory.
//!
//! # Reference
//! "Filesystem-level encryption (fscrypt)", section "Filenames", in the Linux kernel's
//! documentation; what a Linux mount without the key shows. The base64 is our own, since the crate for it would
//! be one more that the smallest library needs.

use crate::hash::NameHash;

/// The longest ciphertext that is shown in full.
const BYTES_MAX: usize = 149;
const HASH_LENGTH: usize = 8;
const DIGEST_LENGTH: usize = 32;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A decoded name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NokeyName {
    /// The name's hash in the index; zero if the directory has none.
    pub hash: NameHash,
    bytes: Vec<u8>,
    /// The digest of what follows `bytes`, if anything does.
    digest: Option<[u8; DIGEST_LENGTH]>,
}

impl NokeyName {
    fn new(hash: NameHash, ciphertext: &[u8]) -> NokeyName {
        let (bytes, rest) = ciphertext.split_at(ciphertext.len().min(BYTES_MAX));
        let digest = (!rest.is_empty()).then(|| hmac_sha256::Hash::hash(rest));
        NokeyName { hash, bytes: bytes.to_vec(), digest }
    }

    /// Decodes a name; `None` if it isn't an encoded one.
    #[must_use]
    pub fn decode(shown: &[u8]) -> Option<NokeyName> {
        let bytes = decode(shown)?;
        let (hash, bytes) = bytes.split_at_checked(HASH_LENGTH)?;
        let word = |at: usize| Some(u32::from_le_bytes(hash.get(at..at + 4)?.try_into().ok()?));
        let hash = NameHash { major: word(0)?, minor: word(4)? };
        let (bytes, digest) = match bytes.split_at_checked(BYTES_MAX) {
            Some((bytes, digest)) if !digest.is_empty() => (bytes, Some(digest.try_into().ok()?)),
            _ => (bytes, None),
        };
        Some(NokeyName { hash, bytes: bytes.to_vec(), digest })
    }

    /// The ciphertext, if the name holds all of it.
    #[must_use]
    pub fn ciphertext(&self) -> Option<&[u8]> {
        self.digest.is_none().then_some(&self.bytes)
    }

    /// Whether this name stands for `ciphertext`, whatever the hash says.
    #[must_use]
    pub fn matches(&self, ciphertext: &[u8]) -> bool {
        match self.digest {
            None => ciphertext == self.bytes,
            Some(_) => {
                ciphertext.starts_with(&self.bytes) && *self == Self::new(self.hash, ciphertext)
            }
        }
    }
}

/// Encodes a name, or the target of a symbolic link, which has no hash.
#[must_use]
pub fn encode(hash: NameHash, ciphertext: &[u8]) -> Vec<u8> {
    let name = NokeyName::new(hash, ciphertext);
    let mut bytes = Vec::with_capacity(HASH_LENGTH + BYTES_MAX + DIGEST_LENGTH);
    bytes.extend(hash.major.to_le_bytes());
    bytes.extend(hash.minor.to_le_bytes());
    bytes.extend(&name.bytes);
    bytes.extend(name.digest.iter().flatten());
    let mut shown = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        let bits = bits << (8 * (3 - group.len()));
        let characters = group.len() + 1;
        shown.extend((0..characters).map(|at| ALPHABET[bits >> (18 - 6 * at) & 63]));
    }
    shown
}

/// The length of the encoded name for this much ciphertext.
#[must_use]
pub fn encoded_length(ciphertext_bytes: u64) -> u64 {
    let digest = if ciphertext_bytes > BYTES_MAX as u64 { DIGEST_LENGTH } else { 0 };
    let bytes = ciphertext_bytes.min(BYTES_MAX as u64) + (HASH_LENGTH + digest) as u64;
    (bytes * 4).div_ceil(3)
}

fn decode(shown: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(shown.len() * 3 / 4);
    let (mut bits, mut count) = (0, 0);
    for character in shown {
        let value = ALPHABET.iter().position(|known| known == character)?;
        bits = bits << 6 | value;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // The unused bits of the last character must be zero; otherwise two names would mean the same.
    (bits == 0 && count < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_match_only_themselves() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in 1..=255 {
            let ciphertext: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let hash = NameHash { major: random.u32(..), minor: random.u32(..) };
            let shown = encode(hash, &ciphertext);
            assert!(shown.len() <= 252, "{length}");
            assert_eq!(encoded_length(length as u64), shown.len() as u64);
            let name = NokeyName::decode(&shown).expect("was encoded");
            assert_eq!(name.hash, hash);
            assert_eq!(name.ciphertext(), (length <= 149).then_some(&ciphertext[..]));
            assert!(name.matches(&ciphertext));
            let mut other = ciphertext.clone();
            other[random.usize(..length)] ^= 1 << random.u32(..8);
            assert!(!name.matches(&other));
            assert!(!name.matches(&ciphertext[1..]));
        }
    }

    #[test]
    fn what_is_no_such_name_is_refused() {
        for name in ["", "short", "file.txt", "AAAAAAAAAA=", "AAAAAAAAAAB"] {
            assert_eq!(NokeyName::decode(name.as_bytes()), None, "{name}");
        }
    }
}
