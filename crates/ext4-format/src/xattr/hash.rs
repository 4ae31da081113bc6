//! Hashes of attributes, by which equal blocks are found.
//!
//! The first implementation added name bytes as plain `char`, so images written on x86 hold
//! hashes over signed characters; unsigned ones are written today. Both are right.

const NAME_SHIFT: u32 = 5;
const VALUE_SHIFT: u32 = 16;

fn mix(hash: u32, shift: u32, word: u32) -> u32 {
    hash.rotate_left(shift) ^ word
}

fn name_hash(name: &[u8], signed: bool) -> u32 {
    name.iter().fold(0, |hash, &byte| {
        let character = if signed { byte as i8 as i32 as u32 } else { u32::from(byte) };
        mix(hash, NAME_SHIFT, character)
    })
}

fn with_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, VALUE_SHIFT, u32::from_le_bytes(word))
    })
}

/// The hash of an entry whose value lies beside it.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    with_value(name_hash(name, false), value)
}

/// The hash of an entry whose value lies in an inode, from the hash of that value.
#[must_use]
pub fn inode_value_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    with_value(name_hash(name, false), &value_hash.to_le_bytes())
}

/// Whether a stored hash fits name and value under either reading of characters.
#[must_use]
pub fn entry_hash_fits(stored: u32, name: &[u8], value: &[u8]) -> bool {
    [false, true].iter().any(|&signed| with_value(name_hash(name, signed), value) == stored)
}

/// The hash of a block: of the hashes of its entries in order, or 0 (never shared) if one has
/// none.
#[must_use]
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0;
    for entry in entry_hashes {
        if entry == 0 {
            return 0;
        }
        hash = mix(hash, VALUE_SHIFT, entry);
    }
    hash
}
