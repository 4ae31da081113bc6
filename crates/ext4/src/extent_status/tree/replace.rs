//! Replaces what is cached about a range. All changes of a tree but the fast path and reclaim end
//! here.

use super::entry::PackedExtent;
use super::{CachedExtent, ExtentCacheTree};

/// The rest of an extent that was cut, and its look-up mark.
type Rest = Option<(CachedExtent, bool)>;

impl ExtentCacheTree {
    fn count_out(&mut self, is_droppable: bool) {
        self.length -= 1;
        self.droppable -= usize::from(is_droppable);
    }

    /// Replaces what is cached about `[from, to)`.
    pub(super) fn replace(&mut self, from: u64, to: u64, with: Option<CachedExtent>) {
        if self.chunks.is_empty() {
            return;
        }
        let (target, mut index) = self.locate(from);
        let [mut left, mut right] = self.cut(target, index, from, to);
        let mut target = target;
        let mut with = with;
        if let Some(fact) = &mut with {
            // The new extent may continue the rests of the one that it cuts.
            if let Some(merged) = left.and_then(|(left, _)| left.merge(fact)) {
                (*fact, left) = (merged, None);
            }
            if let Some(merged) = right.and_then(|(right, _)| fact.merge(&right)) {
                (*fact, right) = (merged, None);
            }
            if left.is_none() {
                self.merge_left(&mut target, &mut index, fact);
            }
            if right.is_none() {
                self.merge_right(target, index, fact);
            }
        }
        for (fact, referenced) in
            [left, with.map(|fact| (fact, false)), right].into_iter().flatten()
        {
            index += usize::from(self.add(target, index, fact, referenced));
        }
        if self.chunks[target].is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(target);
        }
    }

    /// Removes the entries that overlap `[from, to)`, from the entry at `index` of chunk `target`
    /// on. Returns the rests on both sides. Chunk `target` stays, even if it is empty then.
    fn cut(&mut self, target: usize, index: usize, from: u64, to: u64) -> [Rest; 2] {
        let (mut left, mut right) = (None, None);
        let (mut place, mut first) = (target, index);
        while let Some(chunk) = self.chunks.get_mut(place) {
            let last = first + chunk[first..].partition_point(|entry| u64::from(entry.start) < to);
            let is_end = last < chunk.len();
            let mut droppable = 0;
            for entry in chunk.drain(first..last) {
                let (fact, referenced) = (entry.fact(), entry.is_referenced());
                droppable += usize::from(fact.status.is_droppable());
                left = left.or(fact.overlap(0, from).map(|fact| (fact, referenced)));
                right = right.or(fact.overlap(to, u64::MAX).map(|fact| (fact, referenced)));
            }
            self.length -= last - first;
            self.droppable -= droppable;
            if chunk.is_empty() && place != target {
                self.chunks.remove(place);
            } else {
                place += 1;
            }
            if is_end {
                break;
            }
            first = 0;
        }
        [left, right]
    }

    /// Merges the entry before `index` into `fact`, if `fact` continues it.
    fn merge_left(&mut self, target: &mut usize, index: &mut usize, fact: &mut CachedExtent) {
        let place = if *index > 0 { *target } else { target.wrapping_sub(1) };
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let position = if *index > 0 { *index - 1 } else { chunk.len().wrapping_sub(1) };
        let Some(merged) = chunk.get(position).and_then(|entry| entry.fact().merge(fact)) else {
            return;
        };
        let is_droppable = chunk.remove(position).is_droppable();
        *fact = merged;
        if place == *target {
            *index -= 1;
        } else if chunk.is_empty() {
            self.chunks.remove(place);
            *target -= 1;
        }
        self.count_out(is_droppable);
    }

    /// Merges the entry at `index` into `fact`, if it continues `fact`.
    fn merge_right(&mut self, target: usize, index: usize, fact: &mut CachedExtent) {
        let is_inside = self.chunks.get(target).is_some_and(|chunk| index < chunk.len());
        let (place, position) = if is_inside { (target, index) } else { (target + 1, 0) };
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let Some(merged) = chunk.get(position).and_then(|entry| fact.merge(&entry.fact())) else {
            return;
        };
        let is_droppable = chunk.remove(position).is_droppable();
        *fact = merged;
        if chunk.is_empty() && place != target {
            self.chunks.remove(place);
        }
        self.count_out(is_droppable);
    }

    /// Inserts an entry if there is room for it; returns whether there was.
    fn add(&mut self, target: usize, index: usize, fact: CachedExtent, referenced: bool) -> bool {
        let chunk = &mut self.chunks[target];
        let has_room = chunk.len() < chunk.capacity();
        assert!(
            has_room || fact.status.is_droppable(),
            "no room was reserved for delayed data at block {}",
            fact.logical
        );
        if has_room {
            chunk.insert(index, PackedExtent::new(fact, referenced));
            self.length += 1;
            self.droppable += usize::from(fact.status.is_droppable());
        }
        has_room
    }
}
