//! Splitting a full leaf by hash.

use super::CONTINUATION;
use crate::dir::{DirectoryBlock, DirectoryLayout, DirectoryPlace, Entry, Kept, pack};
use crate::error::Corrupt;
use crate::hash::NameHash;

/// How a leaf's entries are divided between two, so that each gets about half of the bytes and no
/// name in the lower one hashes higher than a name in the upper one.
///
/// `.` and `..` are left out: they live in the root.
#[derive(Debug, Clone)]
pub struct LeafSplit {
    /// Least hash of the upper leaf, with the continuation bit where names of the same hash stay
    /// in the lower one: what the index entry of the upper leaf stores.
    pub hash: u32,
    layout: DirectoryLayout,
    /// The entries, in the order of the block.
    entries: Vec<Key>,
    /// The least entry that moves to the upper leaf.
    first: Key,
}

/// An entry: its order, and what is needed to move it. The index knows only majors; entries with
/// the same major keep the order of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

impl Key {
    fn new(hash: NameHash, kept: Kept) -> Self {
        // Both are less than the 64 KiB of the largest block.
        let place = (kept.offset as u64) << 16 | kept.used as u64;
        Self(u64::from(hash.major) << 32 | place)
    }

    fn major(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn kept(self) -> Kept {
        Kept { offset: usize::from((self.0 >> 16) as u16), used: usize::from(self.0 as u16) }
    }
}

impl LeafSplit {
    /// Plans the split of a leaf; nothing if that has fewer than two entries.
    ///
    /// # Errors
    /// The first record that breaks the chain.
    pub fn plan(
        source: &DirectoryBlock<'_>,
        place: DirectoryPlace,
        mut hash_of: impl FnMut(&Entry<'_>) -> NameHash,
    ) -> Result<Option<Self>, Corrupt> {
        let mut entries = Vec::with_capacity(source.entries_max());
        source.visit_checked(place, |entry, used| {
            if !entry.is_dot() {
                entries.push(Key::new(hash_of(entry), Kept { offset: entry.offset, used }));
            }
        })?;
        let mut order = entries.clone();
        order.sort_unstable();
        let total: usize = order.iter().map(|key| key.kept().used).sum();
        let mut below = 0;
        let middle = order.iter().position(|key| {
            below += key.kept().used;
            below * 2 > total
        });
        let at = middle.unwrap_or(0).max(1);
        let (Some(&last), Some(&first)) = (order.get(at - 1), order.get(at)) else {
            return Ok(None);
        };
        let continued = if last.major() == first.major() { CONTINUATION } else { 0 };
        let hash = first.major() | continued;
        Ok(Some(Self { hash, layout: source.layout(), entries, first }))
    }

    /// Copies the entries that move up from the leaf to a fresh block of zeros. Seal it after the
    /// entry that asked for the split has been inserted, if its hash selects this one.
    ///
    /// # Panics
    /// If the blocks are shorter than the leaf that the split was planned for.
    pub fn fill_upper(&self, source: &[u8], upper: &mut [u8]) {
        let go = self.entries.iter().filter(|&&key| key >= self.first);
        pack::pack_into(upper, &self.layout, source, go.map(|key| key.kept()));
    }

    /// Makes the leaf, or a copy of it, the lower one: removes the entries that move up.
    ///
    /// # Panics
    /// As [`fill_upper`](Self::fill_upper).
    pub fn keep_lower(&self, leaf: &mut [u8]) {
        let stay = self.entries.iter().filter(|&&key| key < self.first);
        pack::pack_within(leaf, &self.layout, stay.map(|key| key.kept()));
    }
}
