//! Splitting a full leaf by hash.

use super::CONTINUATION;
use crate::dir::{
    DirectoryBlock, DirectoryBlockBuilder, DirectoryLayout, Entry, NewEntry, NoRoom, record_length,
};
use crate::hash::NameHash;

/// Where the place of an entry in its block lies beside its hash.
const PLACE_BITS: u32 = 32;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// How a leaf was split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafSplit {
    /// Least hash of the upper leaf, with the continuation bit where names of the same hash stay
    /// in the lower one: what the index entry of the upper leaf stores.
    pub hash: u32,
    /// Entries that stay below.
    pub lower_count: usize,
    /// Entries that move up.
    pub upper_count: usize,
}

/// Distributes the entries of a leaf over two fresh ones so that each holds about half the bytes
/// and every name in the lower one hashes no higher than any in the upper one.
///
/// `.` and `..` are left out: they live in the root. Seal both after the entry that asked for the
/// split has been inserted into the one that its hash selects.
///
/// # Errors
/// The leaf has fewer than two entries.
///
/// # Panics
/// If the fresh leaves are shorter than the source.
pub fn split_leaf(
    source: &DirectoryBlock<'_>,
    layout: &DirectoryLayout,
    mut hash_of: impl FnMut(&Entry<'_>) -> NameHash,
    lower: &mut [u8],
    upper: &mut [u8],
) -> Result<LeafSplit, NoRoom> {
    let entries: Vec<Entry<'_>> = source.entries().filter(|entry| !entry.is_dot()).collect();
    // The index only knows majors; with its place behind it each entry keeps block order within one.
    let mut order: Vec<u64> = (0..)
        .zip(&entries)
        .map(|(place, entry): (u64, _)| u64::from(hash_of(entry).major) << PLACE_BITS | place)
        .collect();
    order.sort_unstable();
    let entry = |key: u64| &entries[(key & PLACE_MASK) as usize];
    let major = |key: u64| (key >> PLACE_BITS) as u32;
    let length = |key: u64| record_length(entry(key).name, layout);
    let total: usize = order.iter().map(|&key| length(key)).sum();
    let mut below = 0;
    let middle = order.iter().position(|&key| {
        below += length(key);
        below * 2 > total
    });
    let at = middle.unwrap_or(0).max(1);
    let (Some(&last), Some(&first)) = (order.get(at - 1), order.get(at)) else {
        return Err(NoRoom);
    };
    let continued = if major(last) == major(first) { CONTINUATION } else { 0 };
    let hash = major(first) | continued;
    let (stay, go) = order.split_at(at);
    for (block, part) in [(lower, stay), (upper, go)] {
        let mut builder = DirectoryBlockBuilder::new(block, layout);
        for &key in part {
            let packed = builder.push(&NewEntry::from(*entry(key)));
            assert!(packed.is_ok(), "a part of a leaf fits a leaf");
        }
        builder.finish();
    }
    Ok(LeafSplit { hash, lower_count: stay.len(), upper_count: go.len() })
}
