//! A hash for tables by number, such as those of blocks and inodes.

use std::hash::Hasher;

/// Spreads numbers by [`spread`].
///
/// A table of numbers that an image chooses gets slow if the image is made for that, and stays right.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = spread(number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Multiplies by an odd constant, and folds high bits down.
#[must_use]
pub const fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_in_a_row_differ_in_their_low_and_high_bits() {
        let of = |bits: fn(u64) -> u64| (0..128).map(spread).map(bits).collect::<HashSet<u64>>();
        assert!(of(|hash| hash & 127).len() > 64);
        assert!(of(|hash| hash >> 57).len() > 64);
    }
}
