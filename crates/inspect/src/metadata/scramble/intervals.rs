//! The intervals into which the index of a directory divides the hashes of names, before and after.
//!
//! Each hash in an index block starts an interval. The new intervals are as many and in the same order, but all of one
//! length, whatever the names were. Whoever moves a name to another interval of the same position keeps all that an index
//! says about the order of hashes, right or wrong.

use drystone_ext4_format::htree::CONTINUATION;

/// The least hashes of a directory's intervals, old and new, in order.
#[derive(Debug)]
pub(super) struct Intervals {
    /// As they are stored, with the bit that says that names with the hash are also in the leaf before.
    old: Vec<u32>,
    /// Without it.
    new: Vec<u32>,
}

/// All hashes.
const HASHES: u64 = 1 << 32;

impl Intervals {
    /// From the hashes in the index blocks of a directory. If there is a name that stays, it is given with its old and
    /// new hash, and both are in the same interval.
    pub fn new(mut old: Vec<u32>, kept: Option<(u32, u32)>) -> Self {
        old.push(0);
        old.sort_unstable();
        old.dedup();
        let mut intervals = Self { old, new: Vec::new() };
        let count = u64::from(intervals.count());
        let equal = |interval: u64| HASHES * interval / count;
        // The interval with the name that stays, where it starts, and where the next one does.
        let (fixed, start, next) = match kept {
            Some((old, new)) => {
                let fixed = u64::from(intervals.of_old(old));
                let start = equal(fixed).min(u64::from(new));
                (fixed, start, equal(fixed + 1).max(u64::from(new) + 2))
            }
            None => (0, 0, equal(1)),
        };
        let new = (0..count).map(|interval| {
            let start = if interval <= fixed {
                start * interval / fixed.max(1)
            } else {
                next + (HASHES - next) * (interval - fixed - 1) / (count - fixed - 1)
            };
            start as u32 & !CONTINUATION
        });
        intervals.new = new.collect();
        intervals
    }

    /// How many there are, at least one.
    pub fn count(&self) -> u32 {
        // No more than hashes, and one.
        self.old.len() as u32
    }

    /// How far the new interval of a name that stays is from its place among equal ones, as a part of all hashes.
    pub fn distance(&self, old: u32, new: u32) -> f64 {
        let middle = f64::from(self.of_old(old)) + 0.5;
        (middle / f64::from(self.count()) - f64::from(new) / HASHES as f64).abs()
    }

    /// The interval of an old hash of a name.
    pub fn of_old(&self, hash: u32) -> u32 {
        let behind = self.old.partition_point(|start| start & !CONTINUATION <= hash);
        behind.saturating_sub(1) as u32
    }

    /// The interval of a new one.
    pub fn of_new(&self, hash: u32) -> u32 {
        self.new.partition_point(|start| *start <= hash).saturating_sub(1) as u32
    }

    /// The interval that a hash in an index block starts.
    pub fn started_by(&self, stored: u32) -> u32 {
        match self.old.binary_search(&stored) {
            Ok(found) => found as u32,
            // In a block that can't be right.
            Err(_) => self.of_old(stored & !CONTINUATION),
        }
    }

    /// What a hash in an index block becomes.
    pub fn replace(&self, stored: u32) -> u32 {
        self.new_start(self.started_by(stored)) | stored & CONTINUATION
    }

    /// The first hash of a new interval.
    pub fn new_start(&self, interval: u32) -> u32 {
        self.new.get(interval as usize).copied().unwrap_or(0)
    }

    /// How many hashes a new interval has.
    pub fn new_length(&self, interval: u32) -> u32 {
        let next = self.new.get(interval as usize + 1).map_or(HASHES, |next| u64::from(*next));
        u32::try_from(next - u64::from(self.new_start(interval))).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_intervals_have_one_length() {
        let intervals = Intervals::new(vec![0x5000, 0x10, 0x11, 0xffff_fff0], None);
        assert_eq!(intervals.count(), 5);
        let starts: Vec<u32> = (0..5).map(|interval| intervals.new_start(interval)).collect();
        assert_eq!(starts, [0, 0x3333_3332, 0x6666_6666, 0x9999_9998, 0xcccc_cccc]);
        assert_eq!(intervals.replace(0x11), 0x6666_6667);
        assert_eq!(intervals.replace(0x5000), 0x9999_9998);
        assert_eq!(
            (intervals.of_old(0xf), intervals.of_old(0x10), intervals.of_old(0x12)),
            (0, 2, 2)
        );
        assert_eq!(intervals.started_by(0x10), 1);
        assert_eq!((intervals.of_new(0x3333_3330), intervals.of_new(0x3333_3332)), (0, 1));
        for interval in 0..5 {
            let start = intervals.new_start(interval);
            assert_eq!(intervals.of_new(start + (intervals.new_length(interval) - 1)), interval);
        }
    }

    #[test]
    fn a_name_that_stays_is_where_it_was() {
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..1000 {
            let old: Vec<u32> = (0..random.usize(0..50)).map(|_| random.u32(..) & !1).collect();
            let (before, after) = (random.u32(..) & !1, random.u32(1000..u32::MAX - 1000) & !1);
            let intervals = Intervals::new(old, Some((before, after)));
            assert_eq!(intervals.of_old(before), intervals.of_new(after));
            assert!(intervals.new.is_sorted_by(|one, other| one < other));
        }
    }
}
