//! A run of inodes that a core has set aside.
//!
//! # State
//! One word: the number of the next inode, and how many are left. The word is the whole state, so a
//! compare-and-swap is right even if the word has changed and changed back (the ABA problem).

use drystone_ext4_format::InodeNumber;
use drystone_sync::atomic::{AtomicU64, Ordering};

/// The rest of a run, shared by the threads of a core.
#[derive(Debug)]
pub(super) struct InodeRun(AtomicU64);

/// Neighbouring inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InodeRange {
    pub first: InodeNumber,
    pub count: u32,
}

impl InodeRange {
    fn pack(run: Option<InodeRange>) -> u64 {
        run.map_or(0, |run| u64::from(run.count) << 32 | u64::from(run.first.get()))
    }

    fn unpack(word: u64) -> Option<InodeRange> {
        // The upper and the lower half.
        let (count, first) = ((word >> 32) as u32, word as u32);
        (count > 0).then(|| InodeRange { first: InodeNumber::new(first), count })
    }

    /// The run without its first inode.
    pub fn rest(self) -> Option<InodeRange> {
        let first = InodeNumber::new(self.first.get().wrapping_add(1));
        (self.count > 1).then(|| InodeRange { first, count: self.count - 1 })
    }
}

impl InodeRun {
    pub fn new() -> InodeRun {
        InodeRun(AtomicU64::new(0))
    }

    /// Takes the next inode.
    pub fn take(&self) -> Option<InodeNumber> {
        let rest = |word| InodeRange::unpack(word).map(|run| InodeRange::pack(run.rest()));
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, rest).ok()?;
        InodeRange::unpack(before).map(|run| run.first)
    }

    /// Stores another run, and returns what was left of the old one.
    pub fn replace(&self, run: Option<InodeRange>) -> Option<InodeRange> {
        InodeRange::unpack(self.0.swap(InodeRange::pack(run), Ordering::AcqRel))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gives_each_once_and_the_rest_back() {
        let run = InodeRun::new();
        assert_eq!(run.take(), None);
        let first = InodeNumber::new(u32::MAX - 2);
        assert_eq!(run.replace(Some(InodeRange { first, count: 3 })), None);
        assert_eq!(run.take(), Some(first));
        assert_eq!(run.take(), Some(InodeNumber::new(u32::MAX - 1)));
        let rest = run.replace(None);
        assert_eq!(rest, Some(InodeRange { first: InodeNumber::new(u32::MAX), count: 1 }));
        assert_eq!(run.take(), None);
    }
}
