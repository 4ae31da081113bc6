//! Drops cached extents to free memory.

use super::ExtentCacheTree;

/// The limits of a visit of the reclaimer.
#[derive(Clone, Copy, Debug)]
pub(in crate::extent_status) struct ReclaimLimits {
    /// Extents that may still be looked at.
    pub looks_left: usize,
    /// Extents that may still be dropped.
    pub drops_left: usize,
    /// Spare extents that were looked up since the last visit.
    pub spares_referenced: bool,
}

/// The result of a visit of the reclaimer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::extent_status) struct Reclaimed {
    /// Extents looked at.
    pub scanned: usize,
    /// Extents dropped.
    pub dropped: usize,
}

impl ExtentCacheTree {
    /// Drops extents, from the one at which the last visit stopped to the last one. The next visit
    /// begins where the limits ended this one, or else with the first extent.
    pub fn reclaim(&mut self, limits: &mut ReclaimLimits) -> Reclaimed {
        let mut reclaimed = Reclaimed::default();
        let resume = std::mem::take(&mut self.resume);
        let (mut place, mut first) = self.locate(u64::from(resume));
        while let Some(chunk) = self.chunks.get_mut(place) {
            let mut position = 0;
            let mut stopped = None;
            let before = chunk.len();
            chunk.retain_mut(|entry| {
                let is_before = position < first;
                position += 1;
                if is_before || stopped.is_some() {
                    return true;
                }
                if limits.looks_left == 0 || limits.drops_left == 0 {
                    stopped = Some(entry.start);
                    return true;
                }
                limits.looks_left -= 1;
                reclaimed.scanned += 1;
                let is_spared = limits.spares_referenced && entry.take_reference();
                if is_spared || !entry.is_droppable() {
                    return true;
                }
                limits.drops_left -= 1;
                false
            });
            let dropped = before - chunk.len();
            reclaimed.dropped += dropped;
            self.length -= dropped;
            self.droppable -= dropped;
            if chunk.is_empty() {
                // Reclaim has to free memory, so empty chunks go.
                self.chunks.remove(place);
            } else {
                if chunk.len() <= chunk.capacity() / 4 {
                    chunk.shrink_to(2 * chunk.len());
                }
                place += 1;
            }
            if let Some(start) = stopped {
                self.resume = start;
                break;
            }
            first = 0;
        }
        if self.chunks.is_empty() {
            self.chunks = Vec::new();
        }
        reclaimed
    }

    /// Makes the next visit begin with the first extent.
    pub fn rewind(&mut self) {
        self.resume = 0;
    }
}
