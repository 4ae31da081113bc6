//! Which pieces of an image a log has.
//!
//! A change of a large image has very many pieces, most of which are neighbours: a bit for each is enough.

use std::collections::BTreeMap;

const CHUNK_PIECES: u64 = 4096;

/// A set of pieces, by their numbers.
#[derive(Debug, Default)]
pub(super) struct PieceSet {
    /// The bits of each chunk that isn't empty.
    chunks: BTreeMap<u64, Box<[u64; (CHUNK_PIECES / 64) as usize]>>,
}

impl PieceSet {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn contains(&self, number: u64) -> bool {
        let (chunk, word, bit) = place(number);
        self.chunks.get(&chunk).is_some_and(|words| words[word] & bit != 0)
    }

    pub fn insert(&mut self, number: u64) {
        let (chunk, word, bit) = place(number);
        let words =
            self.chunks.entry(chunk).or_insert_with(|| Box::new([0; (CHUNK_PIECES / 64) as usize]));
        words[word] |= bit;
    }
}

/// The chunk of a number, the word in it, and the bit.
const fn place(number: u64) -> (u64, usize, u64) {
    let within = number % CHUNK_PIECES;
    (number / CHUNK_PIECES, (within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_told_apart() {
        let mut set = PieceSet::default();
        assert!(set.is_empty() && !set.contains(0));
        let numbers = [0, 1, 63, 64, 4095, 4096, 1 << 40, u64::MAX];
        for number in numbers {
            assert!(!set.contains(number), "{number}");
            set.insert(number);
            set.insert(number);
            assert!(set.contains(number) && !set.is_empty(), "{number}");
        }
        assert!([2, 62, 65, 4094, 4097, u64::MAX - 1].iter().all(|&other| !set.contains(other)));
    }
}
