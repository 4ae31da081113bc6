//! Bit arrays over bytes, least significant bit first, as ext4 stores its bitmaps.
//!
//! Searches and counts work on 64-bit words. Bit numbers count from the start of the slice.
//! A bit number at or beyond the end of the slice is the caller's mistake and panics.

use std::ops::Range;

const WORD_BYTES: usize = 8;
const WORD_BITS: usize = 64;

/// Whether bit `bit` is set.
#[must_use]
pub fn test(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] & (1 << (bit % 8)) != 0
}

/// Sets bit `bit`; returns whether it was set before.
pub fn set(bytes: &mut [u8], bit: usize) -> bool {
    let mask = 1 << (bit % 8);
    let byte = &mut bytes[bit / 8];
    let before = *byte & mask != 0;
    *byte |= mask;
    before
}

/// Clears bit `bit`; returns whether it was set before.
pub fn clear(bytes: &mut [u8], bit: usize) -> bool {
    let mask = 1 << (bit % 8);
    let byte = &mut bytes[bit / 8];
    let before = *byte & mask != 0;
    *byte &= !mask;
    before
}

/// The 64 bits from word `index` on; bits past the end of the slice read as zero.
fn word(bytes: &[u8], index: usize) -> u64 {
    let tail = &bytes[index * WORD_BYTES..];
    match tail.first_chunk::<WORD_BYTES>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; WORD_BYTES];
            chunk[..tail.len()].copy_from_slice(tail);
            u64::from_le_bytes(chunk)
        }
    }
}

fn assert_range(bytes: &[u8], range: &Range<usize>) {
    assert!(range.end <= bytes.len() * 8, "bit range {range:?} exceeds {} bytes", bytes.len());
}

/// First bit in `range` for which `flip(word)` has a one.
fn find(bytes: &[u8], range: Range<usize>, flip: impl Fn(u64) -> u64) -> Option<usize> {
    assert_range(bytes, &range);
    if range.is_empty() {
        return None;
    }
    let first = range.start / WORD_BITS;
    let last = (range.end - 1) / WORD_BITS;
    let mut current = flip(word(bytes, first)) & (u64::MAX << (range.start % WORD_BITS));
    let mut index = first;
    loop {
        if current != 0 {
            let bit = index * WORD_BITS + current.trailing_zeros() as usize;
            return (bit < range.end).then_some(bit);
        }
        if index == last {
            return None;
        }
        index += 1;
        current = flip(word(bytes, index));
    }
}

/// First clear bit in `range`.
#[must_use]
pub fn find_zero(bytes: &[u8], range: Range<usize>) -> Option<usize> {
    find(bytes, range, |word| !word)
}

/// First set bit in `range`.
#[must_use]
pub fn find_one(bytes: &[u8], range: Range<usize>) -> Option<usize> {
    find(bytes, range, |word| word)
}

/// Start of the first run of at least `length` clear bits that lies within `range`.
///
/// A `length` of zero is found at the start of the range.
#[must_use]
pub fn find_zero_run(bytes: &[u8], range: Range<usize>, length: usize) -> Option<usize> {
    let mut from = range.start;
    loop {
        if length == 0 {
            return Some(from);
        }
        let start = find_zero(bytes, from..range.end)?;
        let wanted = start.checked_add(length).filter(|&end| end <= range.end)?;
        match find_one(bytes, start..wanted) {
            None => return Some(start),
            Some(one) => from = one + 1,
        }
    }
}

/// The runs of clear bits in `range`, in order.
pub fn zero_runs(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut from = range.start;
    std::iter::from_fn(move || {
        let start = find_zero(bytes, from..range.end)?;
        let end = find_one(bytes, start..range.end).unwrap_or(range.end);
        from = end;
        Some(start..end)
    })
}

/// Number of set bits in `range`.
#[must_use]
pub fn count_ones(bytes: &[u8], range: Range<usize>) -> usize {
    assert_range(bytes, &range);
    if range.is_empty() {
        return 0;
    }
    let first = range.start / WORD_BITS;
    let last = (range.end - 1) / WORD_BITS;
    let mut total = 0;
    for index in first..=last {
        let mut current = word(bytes, index);
        if index == first {
            current &= u64::MAX << (range.start % WORD_BITS);
        }
        if index == last {
            current &= u64::MAX >> (WORD_BITS - 1 - (range.end - 1) % WORD_BITS);
        }
        total += current.count_ones() as usize;
    }
    total
}

/// Number of clear bits in `range`.
#[must_use]
pub fn count_zeros(bytes: &[u8], range: Range<usize>) -> usize {
    range.len() - count_ones(bytes, range)
}

fn fill(bytes: &mut [u8], range: Range<usize>, ones: bool) {
    assert_range(bytes, &range);
    if range.is_empty() {
        return;
    }
    let mut apply = |byte: usize, mask: u8| {
        if ones {
            bytes[byte] |= mask;
        } else {
            bytes[byte] &= !mask;
        }
    };
    let first = range.start / 8;
    let last = (range.end - 1) / 8;
    let head = 0xffu8 << (range.start % 8);
    let tail = 0xffu8 >> (7 - (range.end - 1) % 8);
    if first == last {
        apply(first, head & tail);
        return;
    }
    apply(first, head);
    apply(last, tail);
    bytes[first + 1..last].fill(if ones { 0xff } else { 0 });
}

/// Sets every bit in `range`.
pub fn set_range(bytes: &mut [u8], range: Range<usize>) {
    fill(bytes, range, true);
}

/// Clears every bit in `range`.
pub fn clear_range(bytes: &mut [u8], range: Range<usize>) {
    fill(bytes, range, false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bools(bytes: &[u8]) -> Vec<bool> {
        (0..bytes.len() * 8).map(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).collect()
    }

    fn case() -> impl Strategy<Value = (Vec<u8>, Range<usize>)> {
        let byte = prop_oneof![Just(0u8), Just(0xffu8), any::<u8>()];
        prop::collection::vec(byte, 1..40).prop_flat_map(|bytes| {
            let bits = bytes.len() * 8;
            (Just(bytes), 0..=bits, 0..=bits).prop_map(|(bytes, a, b)| (bytes, a.min(b)..a.max(b)))
        })
    }

    proptest! {
        #[test]
        fn searches_agree_with_a_vector((bytes, range) in case(), length in 0usize..20) {
            let model = bools(&bytes);
            prop_assert_eq!(find_zero(&bytes, range.clone()), range.clone().find(|&b| !model[b]));
            prop_assert_eq!(find_one(&bytes, range.clone()), range.clone().find(|&b| model[b]));
            let ones = range.clone().filter(|&b| model[b]).count();
            prop_assert_eq!(count_ones(&bytes, range.clone()), ones);
            prop_assert_eq!(count_zeros(&bytes, range.clone()), range.len() - ones);
            let run = (range.start..=range.end)
                .find(|&s| s + length <= range.end && (s..s + length).all(|b| !model[b]));
            prop_assert_eq!(find_zero_run(&bytes, range.clone(), length), run);
            let in_runs: Vec<usize> = zero_runs(&bytes, range.clone()).flatten().collect();
            let zeros: Vec<usize> = range.filter(|&b| !model[b]).collect();
            prop_assert_eq!(in_runs, zeros);
        }

        #[test]
        fn updates_agree_with_a_vector((bytes, range) in case(), ones: bool) {
            let mut model = bools(&bytes);
            let mut by_range = bytes.clone();
            let mut by_bit = bytes;
            if ones { set_range(&mut by_range, range.clone()) } else { clear_range(&mut by_range, range.clone()) }
            for bit in range {
                let before = if ones { set(&mut by_bit, bit) } else { clear(&mut by_bit, bit) };
                prop_assert_eq!(before, model[bit]);
                model[bit] = ones;
                prop_assert_eq!(test(&by_bit, bit), ones);
            }
            prop_assert_eq!(bools(&by_range), model);
            prop_assert_eq!(by_range, by_bit);
        }
    }
}
