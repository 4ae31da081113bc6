//! Sets of numbers: bitmaps that take memory only where something is in them.

use drystone_ondisk::bitmap;
use std::collections::BTreeMap;

const CHUNK_BYTES: usize = 4096;
const CHUNK_BITS: u64 = CHUNK_BYTES as u64 * 8;

/// A set of numbers.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    chunks: BTreeMap<u64, Box<[u8; CHUNK_BYTES]>>,
}

impl NumberSet {
    /// Adds a number; whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        let chunk = self.chunks.entry(number / CHUNK_BITS);
        let chunk = chunk.or_insert_with(|| Box::new([0; CHUNK_BYTES]));
        !bitmap::set(&mut chunk[..], (number % CHUNK_BITS) as usize)
    }

    /// Takes a number away; whether it was there.
    pub fn remove(&mut self, number: u64) -> bool {
        let chunk = self.chunks.get_mut(&(number / CHUNK_BITS));
        chunk.is_some_and(|chunk| bitmap::clear(&mut chunk[..], (number % CHUNK_BITS) as usize))
    }

    /// Whether a number is there.
    pub fn contains(&self, number: u64) -> bool {
        let chunk = self.chunks.get(&(number / CHUNK_BITS));
        chunk.is_some_and(|chunk| bitmap::test(&chunk[..], (number % CHUNK_BITS) as usize))
    }

    /// All numbers, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().flat_map(|(chunk, bits)| {
            let ones = (0..bits.len() * 8).filter(|bit| bitmap::test(&bits[..], *bit));
            ones.map(move |bit| chunk * CHUNK_BITS + bit as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        let mut set = NumberSet::default();
        for (number, is_new) in [(5, true), (u64::MAX, true), (70_000, true), (5, false)] {
            assert_eq!(set.insert(number), is_new);
        }
        assert_eq!(set.numbers().collect::<Vec<_>>(), [5, 70_000, u64::MAX]);
        assert!(set.remove(70_000) && !set.remove(70_000) && !set.contains(6));
        assert_eq!(set.numbers().count(), 2);
    }
}
