//! Bytes of a file, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many ranges are kept. If there are more, they become one range with all gaps.
const RANGES_MAX: usize = 1024;

/// A set of bytes: ranges that don't touch, each by its beginning, with its end.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the bytes of a range.
    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&first, &last)) = self.0.range(..=end).next_back()
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
        if self.0.len() > RANGES_MAX
            && let (Some((&first, _)), Some((_, &last))) =
                (self.0.first_key_value(), self.0.last_key_value())
        {
            self.0 = BTreeMap::from([(first, last)]);
        }
    }

    /// Takes the bytes of a range out.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) = self.0.range(..range.end).next_back()
            && last > range.start
        {
            self.0.remove(&first);
            if last > range.end {
                self.0.insert(range.end, last);
            }
            if first < range.start {
                self.0.insert(first, range.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 60;

    proptest! {
        #[test]
        fn bytes_are_in_it_that_were_added_last(
            steps in prop::collection::vec((any::<bool>(), 0..BYTES, 0..BYTES), 0..40),
        ) {
            let mut ranges = Ranges::default();
            let mut expected = [false; BYTES as usize];
            for (adds, a, b) in steps {
                let range = a.min(b)..a.max(b);
                expected[range.start as usize..range.end as usize].fill(adds);
                if adds { ranges.add(range) } else { ranges.remove(range) }
                let mut found = [false; BYTES as usize];
                let mut before = None;
                for (&first, &last) in &ranges.0 {
                    prop_assert!(first < last && before.is_none_or(|before| before < first));
                    found[first as usize..last as usize].fill(true);
                    before = Some(last);
                }
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn very_many_become_one() {
        let mut ranges = Ranges::default();
        (0..=RANGES_MAX as u64).for_each(|number| ranges.add(2 * number..2 * number + 1));
        assert_eq!(ranges.0, BTreeMap::from([(0, 2 * RANGES_MAX as u64 + 1)]));
        ranges.remove(0..u64::MAX);
        assert!(ranges.is_empty());
    }
}
