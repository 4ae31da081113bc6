//! Which inodes got other numbers.

use drystone_ext4_format::InodeNumber;

/// Inodes by their old and new numbers. No number is both.
#[derive(Debug, Default)]
pub(crate) struct InodeNumbers(Vec<(InodeNumber, InodeNumber)>);

impl InodeNumbers {
    /// Old and new numbers must both be higher than those before.
    pub fn push(&mut self, old: InodeNumber, new: InodeNumber) {
        let is_next = |last: &(InodeNumber, InodeNumber)| last.0 < old && last.1 < new;
        debug_assert!(self.0.last().is_none_or(is_next), "numbers are in order");
        self.0.push((old, new));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The new number of an inode that got one.
    pub fn get(&self, old: InodeNumber) -> Option<InodeNumber> {
        // Most inodes are in front of all that moved.
        if self.0.first().is_none_or(|first| old < first.0) {
            return None;
        }
        let found = self.0.binary_search_by_key(&old, |pair| pair.0);
        found.ok().map(|index| self.0[index].1)
    }

    /// Whether an inode that moved got this number.
    pub fn is_new(&self, number: InodeNumber) -> bool {
        self.0.binary_search_by_key(&number, |pair| pair.1).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_numbers_are_told_apart() {
        let mut numbers = InodeNumbers::default();
        assert!(numbers.is_empty() && numbers.get(InodeNumber::ROOT).is_none());
        for (old, new) in [(100, 12), (103, 13), (200, 40)] {
            numbers.push(InodeNumber::new(old), InodeNumber::new(new));
        }
        let get = |old| numbers.get(InodeNumber::new(old)).map(InodeNumber::get);
        assert_eq!([100, 103, 200].map(get), [Some(12), Some(13), Some(40)]);
        assert_eq!([12, 99, 101, 201].map(get), [None; 4]);
        let is_new = |new| numbers.is_new(InodeNumber::new(new));
        assert!([12, 13, 40].into_iter().all(is_new) && ![11, 14, 100].into_iter().any(is_new));
    }
}
