//! The free runs of a group, by size.
//!
//! # State
//! A *buddy* is a free, aligned run of 2^order clusters whose neighbour, with which it would form a
//! run of the next order, is not entirely free. Every free cluster is in exactly one buddy, so a
//! search for a run of some order looks only at the levels from that order on.

const WORD_BITS: u32 = 64;

/// The free runs of a group.
#[derive(Debug)]
pub(super) struct Buddy {
    /// A level for each order; bit `n` of level `order` is the run from `n << order` on.
    levels: Vec<BuddyLevel>,
}

#[derive(Debug)]
struct BuddyLevel {
    words: Box<[u64]>,
    count: u32,
}

impl BuddyLevel {
    fn new(bits: u32) -> BuddyLevel {
        BuddyLevel {
            words: vec![0; bits.div_ceil(WORD_BITS) as usize].into_boxed_slice(),
            count: 0,
        }
    }

    fn test(&self, bit: u32) -> bool {
        let word = self.words.get((bit / WORD_BITS) as usize);
        word.is_some_and(|word| word & (1 << (bit % WORD_BITS)) != 0)
    }

    fn flip(&mut self, bit: u32) {
        self.words[(bit / WORD_BITS) as usize] ^= 1 << (bit % WORD_BITS);
    }

    fn first(&self) -> Option<u32> {
        let index = self.words.iter().position(|&word| word != 0)?;
        // Bits of a level are numbered with 32 bits.
        Some(index as u32 * WORD_BITS + self.words[index].trailing_zeros())
    }
}

impl Buddy {
    /// No free run among `clusters` clusters.
    pub fn new(clusters: u32) -> Buddy {
        let orders = clusters.checked_ilog2().map_or(0, |order| order + 1);
        Buddy { levels: (0..orders).map(|order| BuddyLevel::new(clusters >> order)).collect() }
    }

    /// The largest order that has a free run.
    pub fn largest_order(&self) -> Option<u32> {
        // There are at most 32 levels.
        self.levels.iter().rposition(|level| level.count > 0).map(|order| order as u32)
    }

    /// The start of a free run of an order, from the smallest buddy that holds one.
    pub fn find(&self, order: u32) -> Option<u32> {
        let levels = self.levels.iter().enumerate().skip(order as usize);
        let (order, level) = levels.into_iter().find(|(_, level)| level.count > 0)?;
        level.first().map(|bit| bit << order)
    }

    /// Adds a run that was not free.
    pub fn add(&mut self, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let aligned = if at == 0 { u32::MAX } else { at.trailing_zeros() };
            let order = aligned.min((end - at).ilog2());
            self.put(order, at >> order);
            at += 1 << order;
        }
    }

    /// Adds a buddy, and merges it with its neighbour as long as that is free.
    fn put(&mut self, mut order: u32, mut bit: u32) {
        loop {
            let level = &mut self.levels[order as usize];
            if !level.test(bit ^ 1) {
                level.flip(bit);
                level.count += 1;
                return;
            }
            level.flip(bit ^ 1);
            level.count -= 1;
            order += 1;
            bit >>= 1;
        }
    }

    /// Removes a run that is free.
    pub fn remove(&mut self, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let found = (0..).zip(&self.levels).find(|(order, level)| level.test(at >> order));
            let Some((order, _)) = found else {
                unreachable!("cluster {at} is removed from the buddies, but is in none of them");
            };
            let level = &mut self.levels[order as usize];
            level.flip(at >> order);
            level.count -= 1;
            let first = at >> order << order;
            let behind = first + (1 << order);
            let stop = behind.min(end);
            self.add(first, at);
            self.add(stop, behind);
            at = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_ondisk::bitmap;
    use proptest::prelude::*;

    /// The levels, rebuilt from the free runs.
    fn from_bits(taken: &[u8], clusters: u32) -> Buddy {
        let mut buddy = Buddy::new(clusters);
        for run in bitmap::zero_runs(taken, 0..clusters as usize) {
            buddy.add(run.start as u32, run.end as u32);
        }
        buddy
    }

    #[test]
    fn finds_the_smallest_that_has_room() {
        let mut buddy = Buddy::new(100);
        assert_eq!((buddy.largest_order(), buddy.find(0)), (None, None));
        buddy.add(0, 100);
        assert_eq!(buddy.largest_order(), Some(6));
        assert_eq!((buddy.find(0), buddy.find(3), buddy.find(6)), (Some(96), Some(64), Some(0)));
        buddy.remove(0, 1);
        assert_eq!((buddy.largest_order(), buddy.find(5)), (Some(5), Some(32)));
    }

    proptest! {
        #[test]
        fn changes_lead_to_the_same_as_a_new_count(
            clusters in 1u32..300,
            runs in prop::collection::vec((0u32..300, 1u32..80), 1..40),
        ) {
            let mut taken = [0u8; 40];
            let mut buddy = from_bits(&taken, clusters);
            for (start, length) in runs {
                let start = start % clusters;
                let end = (start + length).min(clusters);
                let bits = start as usize..end as usize;
                if bitmap::find_one(&taken, bits.clone()).is_none() {
                    bitmap::set_range(&mut taken, bits);
                    buddy.remove(start, end);
                } else if bitmap::find_zero(&taken, bits.clone()).is_none() {
                    bitmap::clear_range(&mut taken, bits);
                    buddy.add(start, end);
                }
                let expected = from_bits(&taken, clusters);
                for (level, other) in buddy.levels.iter().zip(&expected.levels) {
                    prop_assert_eq!(&level.words, &other.words);
                    prop_assert_eq!(level.count, other.count);
                }
                for order in 0..9 {
                    if let Some(start) = buddy.find(order) {
                        let bits = start as usize..(start + (1 << order)) as usize;
                        prop_assert_eq!(bitmap::find_one(&taken, bits), None);
                    }
                }
            }
        }
    }
}
