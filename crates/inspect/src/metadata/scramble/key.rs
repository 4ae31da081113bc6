//! The key of a scrambled copy, and the random bytes that it gives.

use siphasher::sip::SipHasher24;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// Makes what takes the place of private text. Whoever has the key can try which text a replacement stands for, so it
/// is never stored.
#[derive(Clone, Copy)]
pub struct ScrambleKey([u64; 2]);

/// What random bytes are for, so that no two uses share any.
#[derive(Clone, Copy, Hash)]
pub(super) enum Purpose {
    Uuid,
    Seed,
    Names,
    StoredHash,
    AttributeNames,
    Value,
    ValueInode,
    EncryptionPolicy,
    Text,
    Label,
}

impl ScrambleKey {
    /// A key that nobody knows.
    #[must_use]
    pub fn random() -> Self {
        // The standard library seeds it from the operating system.
        let random = RandomState::new();
        Self([0, 1].map(|half| random.hash_one(half)))
    }

    /// A key that anybody can make again: for tests.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self([seed, 0])
    }

    /// A number that depends on the purpose and on what is replaced.
    pub(super) fn number(&self, purpose: Purpose, of: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        purpose.hash(&mut hasher);
        of.hash(&mut hasher);
        hasher.finish()
    }

    /// Random bytes without end that depend on the purpose and on what is replaced.
    pub(super) fn stream(&self, purpose: Purpose, of: impl Hash) -> RandomStream {
        RandomStream {
            key: [self.number(purpose, (0, &of)), self.number(purpose, (1, &of))],
            at: 0,
        }
    }
}

impl std::fmt::Debug for ScrambleKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScrambleKey")
    }
}

/// Random bytes without end.
pub(super) struct RandomStream {
    key: [u64; 2],
    at: u64,
}

impl RandomStream {
    pub fn number(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(self.at);
        self.at += 1;
        hasher.finish()
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.number().to_le_bytes()[..piece.len()]);
        }
    }

    /// Fills bytes with letters, which a reader of a bug report can tell from damage.
    pub fn letters(&mut self, bytes: &mut [u8]) {
        self.fill(bytes);
        for byte in bytes {
            *byte = b'a' + *byte % 26;
        }
    }

    /// Replaces text by letters. Zeros stay, because they end text, and so does `kept`.
    pub fn text(&mut self, bytes: &mut [u8], kept: Option<u8>) {
        let mut letters = vec![0; bytes.len()];
        self.letters(&mut letters);
        for (byte, letter) in bytes.iter_mut().zip(letters) {
            if *byte != 0 && Some(*byte) != kept {
                *byte = letter;
            }
        }
    }
}
