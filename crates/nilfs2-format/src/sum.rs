//! Sums of superblocks, super roots and logs.
//!
//! # Reference
//! CRC-32 with the reflected polynomial 0xEDB88320; the register starts as the seed in the superblock
//! and isn't inverted at the end, so that sums chain.

use crc_fast::{CrcAlgorithm, Digest};

/// A running sum.
#[derive(Clone, Debug)]
pub struct Sum(Digest);

impl Sum {
    /// Starts with the volume's seed.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self(Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(seed)))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all that was added.
    #[must_use]
    pub fn finish(&self) -> u32 {
        // A 32-bit algorithm leaves the upper half zero; its final inversion is undone here.
        !(self.0.finalize() as u32)
    }

    /// The sum of some bytes.
    #[must_use]
    pub fn of(seed: u32, bytes: &[u8]) -> u32 {
        let mut sum = Self::new(seed);
        sum.update(bytes);
        sum.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitwise(seed: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(seed, |register, &byte| {
            (0..8).fold(register ^ u32::from(byte), |register, _| {
                if register & 1 == 1 { (register >> 1) ^ 0xedb8_8320 } else { register >> 1 }
            })
        })
    }

    #[test]
    fn agrees_with_the_definition_and_chains() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in [0, 1, 7, 64, 255, 256, 257, 5000] {
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let seed = random.u32(..);
            assert_eq!(Sum::of(seed, &bytes), bitwise(seed, &bytes), "{length} bytes");
            let (head, tail) = bytes.split_at(length / 3);
            assert_eq!(Sum::of(Sum::of(seed, head), tail), Sum::of(seed, &bytes));
        }
    }
}
