//! Text that must not get into a copy.

use fastrand::Rng;
use std::collections::HashSet;

/// So many bytes of a secret in a row are a leak. Fewer may be there by chance.
const LEAK_BYTES: usize = 8;

/// Characters that no replacement has.
const CHARACTERS: &[u8] = b"!#$%&()*+,-:;<=>?@[]^_{|}~";

/// All secrets of an image.
pub struct Secrets {
    random: Rng,
    pieces: HashSet<[u8; LEAK_BYTES]>,
}

impl Secrets {
    pub fn new(seed: u64) -> Secrets {
        Secrets { random: Rng::with_seed(seed), pieces: HashSet::new() }
    }

    /// A new secret that can be a name.
    pub fn text(&mut self, length: usize) -> String {
        let text: Vec<u8> = (0..length).map(|_| *self.random.choice(CHARACTERS).unwrap()).collect();
        self.add(&text);
        String::from_utf8(text).unwrap()
    }

    /// A new secret of any bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length).map(|_| self.random.u8(1..)).collect();
        self.add(&bytes);
        bytes
    }

    fn add(&mut self, secret: &[u8]) {
        self.pieces.extend(
            secret.windows(LEAK_BYTES).map(|piece| <[u8; LEAK_BYTES]>::try_from(piece).unwrap()),
        );
    }

    /// Where the first secret is that some bytes hold.
    pub fn find_in(&self, bytes: &[u8]) -> Option<usize> {
        let is_secret = |piece: &[u8]| {
            piece[0] != 0 && self.pieces.contains(<&[u8; LEAK_BYTES]>::try_from(piece).unwrap())
        };
        bytes.windows(LEAK_BYTES).position(is_secret)
    }
}
