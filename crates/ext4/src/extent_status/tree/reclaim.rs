//! Dropping facts to get memory back.

use super::ExtentCacheTree;

/// How far a reclaimer may go.
#[derive(Clone, Copy, Debug)]
pub(in crate::extent_status) struct ReclaimLimits {
    /// Facts that may still be looked at.
    pub looks_left: usize,
    /// Facts that may still be dropped.
    pub drops_left: usize,
    /// Spare those that were looked up since the last visit.
    pub spares_referenced: bool,
}

/// What a visit of a reclaimer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::extent_status) struct Reclaimed {
    /// Facts looked at.
    pub scanned: usize,
    /// Facts dropped.
    pub dropped: usize,
}

impl ExtentCacheTree {
    /// Drops facts from where the last visit stopped up to the last one. The next visit begins
    /// where the limits ended this one, or else with the first fact.
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
                // Its memory is what reclaim is for.
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

    /// Makes the next visit of a reclaimer begin with the first fact.
    pub fn rewind(&mut self) {
        self.resume = 0;
    }
}
