//! Hash maps for keys that need no defence against chosen collisions, such as inode numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A factor whose multiples spread over the whole word (2^64 divided by the golden ratio).
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map by 32-bit numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Inode numbers are dense; multiplying spreads them over a hash map's buckets well enough.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(byte)).wrapping_mul(SPREAD);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(SPREAD);
    }
}
