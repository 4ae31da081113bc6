//! What of a source's space has been copied.
//!
//! Each block of an image is one file's. A crafted image has many files that share blocks, and what
//! comes out of it would be larger than the image without bound. So the places of each file are noted
//! when it is copied, and a file whose places were copied as another's is refused. Hard links are
//! copied once. On images with the feature `shared_blocks`, files may share; there the sum is bounded.

use super::ends::Place;
use std::collections::BTreeMap;

/// How often more than the source can store may come out of it where files may share space.
const SHARED_FACTOR_MAX: u64 = 16;

/// The places that were copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Ends by start, apart from each other and without contact.
    ranges: BTreeMap<u64, u64>,
    shared_bytes: u64,
}

impl Copied {
    /// Notes where a file is stored. Returns why it is not to be copied.
    pub fn note(
        &mut self,
        places: &[Place],
        source_bytes: impl Fn() -> u64,
    ) -> Result<(), &'static str> {
        for place in places {
            if place.is_shared {
                self.shared_bytes = self.shared_bytes.saturating_add(place.end - place.start);
                if self.shared_bytes > source_bytes().saturating_mul(SHARED_FACTOR_MAX) {
                    return Err("files share more blocks than an image can be meant to hold");
                }
            } else if !self.add(place.start, place.end) {
                return Err("its blocks are those of another file, or twice its own");
            }
        }
        Ok(())
    }

    /// Adds a range; false if some of it is there.
    fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let before = self.ranges.range(..end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, before_end)| before_end > start) {
            return false;
        }
        let start = before.filter(|(_, end)| *end == start).map_or(start, |(start, _)| start);
        let end = self.ranges.remove(&end).unwrap_or(end);
        self.ranges.insert(start, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_twice() {
        let mut copied = Copied::default();
        assert!(copied.add(10, 20) && copied.add(30, 40) && copied.add(20, 30));
        assert_eq!(copied.ranges.iter().collect::<Vec<_>>(), [(&10, &40)]);
        for (start, end) in [(10, 11), (39, 41), (0, 11), (0, 100), (15, 16)] {
            assert!(!copied.add(start, end), "{start}..{end}");
        }
        assert!(copied.add(0, 10) && copied.add(40, 50) && copied.add(60, 70));
        assert_eq!(copied.ranges.iter().collect::<Vec<_>>(), [(&0, &50), (&60, &70)]);
    }

    #[test]
    fn what_is_shared_is_bounded() {
        let mut copied = Copied::default();
        let place = Place { start: 0, end: 100, is_shared: true };
        for _ in 0..16 {
            assert!(copied.note(&[place], || 100).is_ok());
        }
        assert!(copied.note(&[place], || 100).is_err());
    }
}
