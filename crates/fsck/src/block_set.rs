//! Sets of blocks or clusters: bitmaps that take memory only where some numbers, but not all, are in them.

use crate::image::Error;
use crate::memory::{Memory, MemoryShare};
use drystone_ondisk::bitmap;
use std::collections::BTreeMap;
use std::ops::Range;

/// So small that a few numbers here and there take little, and that long runs fill whole chunks.
const CHUNK_BYTES: usize = 512;
const CHUNK_BITS: u64 = CHUNK_BYTES as u64 * 8;
/// What an entry of the map takes beside its bits.
const ENTRY_BYTES: u64 = 40;

type Bits = [u8; CHUNK_BYTES];

const ALL: Bits = [0xff; CHUNK_BYTES];

/// A set of numbers below a bound.
#[derive(Debug)]
pub(crate) struct BlockSet {
    /// The bits of each chunk that isn't empty; none for a full one.
    chunks: BTreeMap<usize, Option<Box<Bits>>>,
    bound: u64,
    memory: MemoryShare,
    /// Numbers that may still come one by one.
    numbers_left: usize,
    is_exceeded: bool,
}

impl BlockSet {
    /// An empty set, which takes what it needs.
    pub fn new(bound: u64) -> Self {
        Self::within(bound, &Memory::new(u64::MAX))
    }

    /// An empty set, which shares a bound of memory.
    pub fn within(bound: u64, memory: &Memory) -> Self {
        Self::limited(bound, memory, usize::MAX)
    }

    /// The same for a set that takes in no more than so many numbers that come one by one.
    pub fn limited(bound: u64, memory: &Memory, numbers: usize) -> Self {
        let memory = memory.share();
        Self { chunks: BTreeMap::new(), bound, memory, numbers_left: numbers, is_exceeded: false }
    }

    /// Whether something isn't in the set only because of its limits.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded || self.memory.is_exceeded()
    }

    /// Fails if something isn't in the set only because of its memory.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn check_memory(&self) -> Result<(), Error> {
        self.memory.check()
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

    /// The bits of a chunk, as far as they are known.
    fn bits(&self, index: usize) -> Option<&Bits> {
        self.chunks.get(&index).map(|bits| bits.as_deref().unwrap_or(&ALL))
    }

    /// Sets bits of a chunk. `before` is told which were set before.
    fn set(&mut self, index: usize, piece: Range<usize>, before: impl FnOnce(&Bits)) {
        let is_all = piece.len() as u64 == CHUNK_BITS;
        match self.chunks.get_mut(&index) {
            Some(None) => before(&ALL),
            Some(Some(bits)) => {
                before(bits);
                bitmap::set_range(&mut bits[..], piece);
                if **bits == ALL {
                    self.chunks.insert(index, None);
                    self.memory.shrink(CHUNK_BYTES as u64);
                }
            }
            None => {
                let bytes = if is_all { 0 } else { CHUNK_BYTES as u64 };
                if self.memory.grow(bytes + ENTRY_BYTES) {
                    let mut bits = (!is_all).then(|| Box::new([0; CHUNK_BYTES]));
                    if let Some(bits) = &mut bits {
                        bitmap::set_range(&mut bits[..], piece);
                    }
                    self.chunks.insert(index, bits);
                }
            }
        }
    }

    /// Adds a number; whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.bound {
            return false;
        }
        let Some(left) = self.numbers_left.checked_sub(1) else {
            self.is_exceeded = true;
            return false;
        };
        self.numbers_left = left;
        let (index, bit) = ((number / CHUNK_BITS) as usize, (number % CHUNK_BITS) as usize);
        let mut was_there = false;
        self.set(index, bit..bit + 1, |bits| was_there = bitmap::test(&bits[..], bit));
        !was_there && !self.memory.is_exceeded()
    }

    /// Adds a range; those that were in it before are added to `twice`.
    pub fn insert_range(&mut self, range: Range<u64>, twice: &mut BlockSet) {
        for (index, piece) in self.pieces(range) {
            let base = index as u64 * CHUNK_BITS;
            self.set(index, piece.clone(), |bits| {
                for run in one_runs(bits, piece) {
                    twice.add_range(base + run.start as u64..base + run.end as u64);
                }
            });
        }
    }

    pub fn add_range(&mut self, range: Range<u64>) {
        for (index, piece) in self.pieces(range) {
            self.set(index, piece, |_| {});
        }
    }

    /// Adds the numbers of another set of the same bound.
    pub fn add_all(&mut self, other: &BlockSet) {
        for (&index, bits) in &other.chunks {
            let Some(bits) = bits else {
                self.set(index, 0..CHUNK_BITS as usize, |_| {});
                continue;
            };
            for run in one_runs(bits, 0..CHUNK_BITS as usize) {
                self.set(index, run, |_| {});
            }
        }
    }

    /// Whether another set of the same bound has one of the numbers.
    pub fn meets(&self, other: &BlockSet) -> bool {
        let (few, many) = match self.chunks.len() < other.chunks.len() {
            true => (self, other),
            false => (other, self),
        };
        few.chunks.iter().any(|(index, bits)| {
            let bits = bits.as_deref().unwrap_or(&ALL);
            let has_both =
                |others: &Bits| bits.iter().zip(others).any(|(one, other)| one & other != 0);
            many.bits(*index).is_some_and(has_both)
        })
    }

    /// The numbers that another set of the same bound has as well.
    pub fn shared_with(&self, other: &BlockSet) -> BlockSet {
        let mut shared = BlockSet::new(self.bound);
        for (index, bits) in &other.chunks {
            let Some(own) = self.bits(*index) else { continue };
            let mut both = *own;
            let bits = bits.as_deref().unwrap_or(&ALL);
            both.iter_mut().zip(bits).for_each(|(own, other)| *own &= other);
            for run in one_runs(&both, 0..CHUNK_BITS as usize) {
                shared.set(*index, run, |_| {});
            }
        }
        shared
    }

    /// Bytes that the set takes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether a number of a range is in the set.
    pub fn has_any(&self, range: Range<u64>) -> bool {
        self.pieces(range).any(|(index, piece)| {
            self.bits(index).is_some_and(|bits| bitmap::find_one(&bits[..], piece).is_some())
        })
    }

    /// The runs of numbers of a range that are in the set.
    pub fn runs(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, piece) in self.pieces(range) {
            let Some(bits) = self.bits(index) else { continue };
            let base = index as u64 * CHUNK_BITS;
            for run in one_runs(bits, piece) {
                let run = base + run.start as u64..base + run.end as u64;
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
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
            let Some(bits) = self.bits(index) else { continue };
            // Pieces start and, but for the last, end at whole bytes.
            let from = (index as u64 * CHUNK_BITS + piece.start as u64 - start) as usize / 8;
            let held = &bits[piece.start / 8..piece.end.div_ceil(8)];
            bytes[from..from + held.len()].copy_from_slice(held);
        }
        bytes
    }
}

/// The runs of ones in a piece of a chunk.
fn one_runs(bits: &Bits, piece: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut from = piece.start;
    std::iter::from_fn(move || {
        let start = bitmap::find_one(&bits[..], from..piece.end)?;
        let end = bitmap::find_zero(&bits[..], start..piece.end).unwrap_or(piece.end);
        from = end;
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_chunks() {
        let mut set = BlockSet::new(100_000);
        let mut twice = BlockSet::new(100_000);
        assert!(set.is_empty());
        set.insert_range(32_000..70_000, &mut twice);
        assert!(twice.is_empty());
        set.insert_range(69_999..70_002, &mut twice);
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
        assert!(set.shared_with(&other).is_empty() && !set.meets(&other));
        other.insert(19);
        assert_eq!(set.shared_with(&other).runs(0..100_000).first(), Some(&(19..20)));
        assert!(set.meets(&other) && other.meets(&set));
        set.add_all(&other);
        assert_eq!(set.runs(0..100_000), [10..30, 40_000..40_010]);
    }

    #[test]
    fn full_chunks_take_no_bits() {
        let memory = Memory::new(3 * (ENTRY_BYTES + CHUNK_BYTES as u64));
        let mut set = BlockSet::within(1 << 40, &memory);
        for chunk in 0..10 {
            set.add_range(chunk * CHUNK_BITS..(chunk + 1) * CHUNK_BITS - 1);
            set.add_range((chunk + 1) * CHUNK_BITS - 1..(chunk + 1) * CHUNK_BITS);
        }
        set.add_range(10 * CHUNK_BITS..20 * CHUNK_BITS);
        assert!(set.runs(0..1 << 20).iter().eq([&(0..20 * CHUNK_BITS)]));
        assert!(!set.is_exceeded() && !set.insert(17));
        let mut twice = BlockSet::new(1 << 40);
        set.insert_range(19 * CHUNK_BITS + 5..20 * CHUNK_BITS + 7, &mut twice);
        assert!(twice.runs(0..1 << 20).iter().eq([&(19 * CHUNK_BITS + 5..20 * CHUNK_BITS)]));
        assert_eq!(set.bytes(20 * CHUNK_BITS - 8, 16), [0xff, 0x7f]);
        let mut other = BlockSet::new(1 << 40);
        other.add_all(&set);
        drop(set);
        assert!(other.runs(0..1 << 20).iter().eq([&(0..20 * CHUNK_BITS + 7)]));
        assert_eq!(memory.left(), 3 * (ENTRY_BYTES + CHUNK_BYTES as u64));
    }

    #[test]
    fn limits_are_kept_and_told() {
        let memory = Memory::new(2 * (ENTRY_BYTES + CHUNK_BYTES as u64));
        let mut set = BlockSet::within(1 << 20, &memory);
        set.add_range(1..2 * CHUNK_BITS - 1);
        assert!(!set.is_exceeded());
        set.add_range(CHUNK_BITS..2 * CHUNK_BITS + 1);
        assert!(set.is_exceeded() && set.check_memory().is_err());
        assert_eq!(set.runs(0..1 << 20).last(), Some(&(1..2 * CHUNK_BITS)));
        let mut set = BlockSet::limited(1 << 20, &Memory::new(u64::MAX), 3);
        assert_eq!([1, 2, 2, 3].map(|number| set.insert(number)), [true, true, false, false]);
        assert!(set.is_exceeded() && set.check_memory().is_ok());
    }
}
