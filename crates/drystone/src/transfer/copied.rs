//! Notes which inodes and blocks of a source have been copied.
//!
//! An inode has as many names as it counts, and each block of an image is one inode's. In a crafted image
//! an inode has many names, and many inodes share blocks, and what comes out of it would be larger than
//! the image without bound. So inodes and their places are noted when they are copied: a second name of an
//! inode that counts no further one is refused, and so is an inode whose places were copied as another's.
//! Hard links are copied once. On images with the feature `shared_blocks`, files may share, and everywhere
//! inodes may share extended attributes; there the sum is bounded.

use super::ends::StoredRange;
use super::facts::Xattrs;
use drystone_vfs::{Errno, Error};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often more than the source can store may come out of it where files may share space.
const SHARED_FACTOR_MAX: u64 = 16;

/// Words of a page of inodes.
const PAGE_WORDS: usize = 8;
/// Inodes in a page.
const PAGE_INODES: u64 = 64 * PAGE_WORDS as u64;

/// What was copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// A bit for each inode, in pages. Inodes lie side by side, and a page is much smaller than the blocks
    /// in which an image holds as many: however inodes are strewn, this is a small part of the image.
    inodes: HashMap<u64, [u64; PAGE_WORDS]>,
    /// Inodes that were noted, of which the target then took nothing: they may be tried again.
    untaken: HashSet<u64>,
    /// Ends by start, apart from each other and without contact.
    ranges: BTreeMap<u64, u64>,
    shared_bytes: u64,
}

impl Copied {
    /// Notes an inode; false if it was noted before and is tried again. Returns why it is not to be
    /// copied.
    pub fn note(&mut self, inode: u64, is_directory: bool) -> Result<bool, Error> {
        if self.untaken.remove(&inode) {
            return Ok(false);
        }
        let page = self.inodes.entry(inode / PAGE_INODES).or_default();
        let word = &mut page[(inode % PAGE_INODES / 64) as usize];
        let bit = 1 << (inode % 64);
        if *word & bit == 0 {
            *word |= bit;
            return Ok(true);
        }
        Err(damage(match is_directory {
            true => "the directory has another place in the tree, unless it was moved meanwhile",
            false => "it was copied under another name, and counts no further one",
        }))
    }

    /// The target took nothing of an inode that was noted.
    pub fn set_untaken(&mut self, inode: u64) {
        self.untaken.insert(inode);
    }

    /// True if the target took nothing of an inode.
    pub fn is_untaken(&self, inode: u64) -> bool {
        self.untaken.contains(&inode)
    }

    /// Notes where an inode is stored. Returns why it is not to be copied.
    pub fn note_places(&mut self, places: &[StoredRange], source_bytes: u64) -> Result<(), Error> {
        for place in places {
            if place.is_shared {
                self.share(place.end - place.start, source_bytes)?;
            } else if !self.add(place.start, place.end) {
                return Err(damage("its blocks are those of another file, or twice its own"));
            }
        }
        Ok(())
    }

    /// Notes extended attributes, which inodes may share. Returns why they are not to be copied.
    pub fn note_xattrs(&mut self, xattrs: &Xattrs, source_bytes: u64) -> Result<(), Error> {
        let bytes: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.share(bytes as u64, source_bytes)
    }

    fn share(&mut self, bytes: u64, source_bytes: u64) -> Result<(), Error> {
        self.shared_bytes = self.shared_bytes.saturating_add(bytes);
        if self.shared_bytes > source_bytes.saturating_mul(SHARED_FACTOR_MAX) {
            return Err(damage("inodes share more than an image can be meant to hold"));
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

fn damage(detail: &'static str) -> Error {
    Error::with_detail(Errno::EUCLEAN, detail)
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
        let place = StoredRange { start: 0, end: 100, is_shared: true };
        for _ in 0..16 {
            assert!(copied.note_places(&[place], 100).is_ok());
        }
        assert!(copied.note_places(&[place], 100).is_err());
        let mut copied = Copied::default();
        let xattrs = vec![(b"user.x".to_vec(), vec![0; 94])];
        for _ in 0..16 {
            assert!(copied.note_xattrs(&xattrs, 100).is_ok());
        }
        assert!(copied.note_xattrs(&xattrs, 100).is_err());
    }

    #[test]
    fn inodes_are_copied_once() {
        let mut copied = Copied::default();
        let numbers = [0, 1, 63, 64, 511, 512, 513, 1 << 32, u64::MAX];
        for number in numbers {
            assert!(copied.note(number, false).unwrap(), "{number}");
        }
        for number in numbers {
            assert!(copied.note(number, false).is_err(), "{number}");
        }
        copied.set_untaken(64);
        assert!(!copied.note(64, false).unwrap());
        assert!(copied.note(64, false).is_err());
    }
}
