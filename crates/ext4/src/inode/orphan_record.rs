//! Where an inode is recorded as an orphan. In memory only.

use drystone_sync::atomic::{AtomicU64, Ordering};

/// The place in the record, as one number that only `orphan` understands.
#[derive(Debug, Default)]
pub(crate) struct OrphanRecord(AtomicU64);

impl OrphanRecord {
    /// Not recorded.
    pub const NONE: u64 = 0;

    /// Whether the inode is recorded.
    pub fn is_recorded(&self) -> bool {
        self.get() != Self::NONE
    }

    /// The place.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes the place.
    #[inline]
    pub fn set(&self, place: u64) {
        self.0.store(place, Ordering::Relaxed);
    }
}
