//! Sets of blocks or clusters: bitmaps that take memory only where something is in them.

use drystone_ondisk::bitmap;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

const CHUNK_BYTES: usize = 4096;
const CHUNK_BITS: u64 = CHUNK_BYTES as u64 * 8;

/// A set of numbers below a bound.
#[derive(Debug)]
pub(crate) struct BlockSet {
    chunks: BTreeMap<usize, Box<[u8; CHUNK_BYTES]>>,
    bound: u64,
    limits: Limits,
}

/// What may still come into a set.
#[derive(Debug)]
struct Limits {
    chunks: usize,
    /// Numbers that come one by one.
    numbers: usize,
    is_exceeded: bool,
}

impl BlockSet {
    pub fn new(bound: u64) -> Self {
        Self::limited(bound, usize::MAX, usize::MAX)
    }

    /// A set that takes in no more than so many chunks of memory, and so many numbers that come one by one.
    pub fn limited(bound: u64, chunks: usize, numbers: usize) -> Self {
        let limits = Limits { chunks, numbers, is_exceeded: false };
        Self { chunks: BTreeMap::new(), bound, limits }
    }

    /// Whether something isn't in the set only because of its limits.
    pub fn is_exceeded(&self) -> bool {
        self.limits.is_exceeded
    }

    /// The parts of a range that lie in one chunk each; what lies beyond the bound is left out.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let end = range.end.min(self.bound);
        let mut from = range.start;
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let chunk = from / CHUNK_BITS;
            let base = chunk * CHUNK_BITS;
            let to = end.min(base + CHUNK_BITS);
            let piece = (from - base) as usize..(to - base) as usize;
            from = to;
            Some((chunk as usize, piece))
        })
    }

    fn chunk(&mut self, index: usize) -> Option<&mut [u8; CHUNK_BYTES]> {
        match self.chunks.entry(index) {
            Entry::Occupied(chunk) => Some(chunk.into_mut()),
            Entry::Vacant(place) => {
                let Some(left) = self.limits.chunks.checked_sub(1) else {
                    self.limits.is_exceeded = true;
                    return None;
                };
                self.limits.chunks = left;
                Some(place.insert(Box::new([0; CHUNK_BYTES])))
            }
        }
    }

    /// Adds a number; whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.bound {
            return false;
        }
        let Some(left) = self.limits.numbers.checked_sub(1) else {
            self.limits.is_exceeded = true;
            return false;
        };
        self.limits.numbers = left;
        let chunk = self.chunk((number / CHUNK_BITS) as usize);
        chunk.is_some_and(|chunk| !bitmap::set(&mut chunk[..], (number % CHUNK_BITS) as usize))
    }

    /// Adds a range; those that were in it before are added to `twice`.
    pub fn insert_range(&mut self, range: Range<u64>, twice: &mut BlockSet) -> bool {
        let mut any = false;
        for (index, piece) in self.pieces(range) {
            let Some(chunk) = self.chunk(index) else { continue };
            let base = index as u64 * CHUNK_BITS;
            let mut from = piece.start;
            while let Some(bit) = bitmap::find_one(&chunk[..], from..piece.end) {
                any = true;
                let end = bitmap::find_zero(&chunk[..], bit..piece.end).unwrap_or(piece.end);
                twice.add_range(base + bit as u64..base + end as u64);
                from = end;
            }
            bitmap::set_range(&mut chunk[..], piece);
        }
        any
    }

    pub fn add_range(&mut self, range: Range<u64>) {
        for (index, piece) in self.pieces(range) {
            if let Some(chunk) = self.chunk(index) {
                bitmap::set_range(&mut chunk[..], piece);
            }
        }
    }

    /// Adds the numbers of another set of the same bound.
    pub fn add_all(&mut self, other: BlockSet) {
        for (index, chunk) in other.chunks {
            match self.chunks.entry(index) {
                Entry::Vacant(place) => drop(place.insert(chunk)),
                Entry::Occupied(mut own) => {
                    for (own, other) in own.get_mut().iter_mut().zip(&chunk[..]) {
                        *own |= other;
                    }
                }
            }
        }
    }

    /// The numbers that another set of the same bound has as well.
    pub fn shared_with(&self, other: &BlockSet) -> BlockSet {
        let mut shared = BlockSet::new(self.bound);
        for (&index, chunk) in &other.chunks {
            let Some(own) = self.chunks.get(&index) else { continue };
            let pairs = || own.iter().zip(&chunk[..]).map(|(own, other)| own & other);
            if pairs().any(|both| both != 0)
                && let Some(shared) = shared.chunk(index)
            {
                shared.iter_mut().zip(pairs()).for_each(|(byte, both)| *byte = both);
            }
        }
        shared
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The runs of numbers of a range that are in the set.
    pub fn runs(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, piece) in self.pieces(range) {
            let Some(chunk) = self.chunks.get(&index) else { continue };
            let base = index as u64 * CHUNK_BITS;
            let mut from = piece.start;
            while let Some(bit) = bitmap::find_one(&chunk[..], from..piece.end) {
                let end = bitmap::find_zero(&chunk[..], bit..piece.end).unwrap_or(piece.end);
                let run = base + bit as u64..base + end as u64;
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
                from = end;
            }
        }
        runs
    }

    /// All numbers of the set as runs, cut where chunks end.
    pub fn all_runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.chunks.keys().flat_map(|&index| {
            let start = index as u64 * CHUNK_BITS;
            self.runs(start..start + CHUNK_BITS)
        })
    }

    /// The bits of `count` numbers from `start` on as bytes. `start` is a multiple of 8.
    pub fn bytes(&self, start: u64, count: u64) -> Vec<u8> {
        debug_assert!(start.is_multiple_of(8));
        let mut bytes = vec![0; count.div_ceil(8) as usize];
        for (index, piece) in self.pieces(start..start + count) {
            let Some(chunk) = self.chunks.get(&index) else { continue };
            // Pieces start and, but for the last, end at whole bytes.
            let from = (index as u64 * CHUNK_BITS + piece.start as u64 - start) as usize / 8;
            let held = &chunk[piece.start / 8..piece.end.div_ceil(8)];
            bytes[from..from + held.len()].copy_from_slice(held);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_chunks() {
        let mut set = BlockSet::new(100_000);
        let mut twice = BlockSet::new(100_000);
        assert!(set.is_empty());
        assert!(!set.insert_range(32_000..70_000, &mut twice));
        assert!(set.insert_range(69_999..70_002, &mut twice));
        assert_eq!(twice.runs(0..100_000).first(), Some(&(69_999..70_000)));
        assert_eq!(set.runs(0..200_000).last(), Some(&(32_000..70_002)));
        assert!(set.insert(5) && !set.insert(5) && !set.insert(100_000));
        assert_eq!(set.bytes(0, 16), [0x20, 0]);
        assert_eq!(set.bytes(69_984, 24), [0xff, 0xff, 0x03]);
    }

    #[test]
    fn sets_are_united_and_intersected() {
        let [mut set, mut other] = [(); 2].map(|()| BlockSet::new(100_000));
        set.add_range(10..20);
        other.add_range(20..30);
        other.add_range(40_000..40_010);
        assert!(set.shared_with(&other).is_empty());
        other.insert(19);
        assert_eq!(set.shared_with(&other).runs(0..100_000).first(), Some(&(19..20)));
        set.add_all(other);
        assert_eq!(set.runs(0..100_000), [10..30, 40_000..40_010]);
    }

    #[test]
    fn limits_are_kept_and_told() {
        let mut set = BlockSet::limited(1 << 20, 2, 3);
        set.add_range(0..2 * CHUNK_BITS);
        assert!(!set.is_exceeded());
        set.add_range(CHUNK_BITS..2 * CHUNK_BITS + 1);
        assert!(set.is_exceeded());
        assert_eq!(set.runs(0..1 << 20).last(), Some(&(0..2 * CHUNK_BITS)));
        let mut set = BlockSet::limited(1 << 20, 2, 3);
        assert_eq!([1, 2, 2, 3].map(|number| set.insert(number)), [true, true, false, false]);
        assert!(set.is_exceeded());
    }
}
