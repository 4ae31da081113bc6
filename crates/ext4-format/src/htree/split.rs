//! Splitting a full leaf by hash.

use super::CONTINUATION;
use crate::dir::{
    DirectoryBlock, DirectoryBlockBuilder, DirectoryLayout, Entry, NewEntry, NoRoom, record_length,
};
use crate::hash::NameHash;

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
    let mut entries: Vec<(NameHash, Entry<'_>)> = source
        .entries()
        .filter(|entry| !entry.is_dot())
        .map(|entry| (hash_of(&entry), entry))
        .collect();
    // The index only knows majors; a stable sort by them alone keeps block order within one.
    entries.sort_by_key(|(hash, _)| hash.major);
    let length = |entry: &Entry<'_>| record_length(entry.name, layout);
    let total: usize = entries.iter().map(|(_, entry)| length(entry)).sum();
    let mut below = 0;
    let middle = entries.iter().position(|(_, entry)| {
        below += length(entry);
        below * 2 > total
    });
    let at = middle.unwrap_or(0).max(1);
    let (Some(last), Some(first)) = (entries.get(at - 1), entries.get(at)) else {
        return Err(NoRoom);
    };
    let continued = if last.0.major == first.0.major { CONTINUATION } else { 0 };
    let hash = first.0.major | continued;
    let (stay, go) = entries.split_at(at);
    for (block, part) in [(lower, stay), (upper, go)] {
        let mut builder = DirectoryBlockBuilder::new(block, layout);
        for (_, entry) in part {
            let packed = builder.push(&NewEntry::from(*entry));
            assert!(packed.is_ok(), "a part of a leaf fits a leaf");
        }
        builder.finish();
    }
    Ok(LeafSplit { hash, lower_count: stay.len(), upper_count: go.len() })
}
