//! CRC-16 (ARC: polynomial 0x8005, reflected), the checksum of old group descriptors.
//!
//! # Reference
//! "Block Group Descriptors" in the kernel's ext4 data structure pages (`bg_checksum` under the
//! `uninit_bg` feature); the register starts from `!0`.

use crc_fast::{CrcAlgorithm, Digest};

/// Feeds `bytes` into the register `seed` and returns the register: no inversion at either end.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc16Arc, u64::from(seed));
    digest.update(bytes);
    digest.finalize() as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bitwise(seed: u16, bytes: &[u8]) -> u16 {
        let mut register = seed;
        for &byte in bytes {
            register ^= u16::from(byte);
            for _ in 0..8 {
                register = if register & 1 == 1 { (register >> 1) ^ 0xa001 } else { register >> 1 };
            }
        }
        register
    }

    #[test]
    fn known_vector() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }

    proptest! {
        #[test]
        fn agrees_with_bitwise(seed: u16, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(crc16(seed, &bytes), bitwise(seed, &bytes));
        }
    }
}
