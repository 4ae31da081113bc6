//! The facts about one inode, in the order of its blocks.
//!
//! # State
//! Sorted runs of entries of 16 bytes ([`Chunk`]), in a sorted list. A look-up searches two arrays;
//! a change moves the entries of one chunk.
//!
//! # Invariants
//! - Facts don't overlap, and neighbours that could be one fact are one.
//! - No chunk is empty, but for one that is alone.
//! - A change allocates nothing: [`Tree::reserve`] does that before. Without a reservation a change
//!   forgets what it has no room for. That is why a cached fact can't stand in the way of a change
//!   of the image, and why delayed extents, which may not be forgotten, need the reservation.

use super::fact::{Fact, Status};
use drystone_sync::atomic::{AtomicU64, Ordering};

/// Entries of a chunk, at most.
const CHUNK_LENGTH_MAX: usize = 64;
/// Room of the first chunk: most files have few extents.
const FIRST_CHUNK_LENGTH: usize = 4;
/// Entries that one change may add: what is left of a fact on both sides, and the new one.
const ADDED_MAX: usize = 3;

const STATUS_SHIFT: u32 = 60;
const PHYSICAL_MASK: u64 = (1 << STATUS_SHIFT) - 1;
const REFERENCED: u64 = 1 << 62;

/// A fact as it is kept.
#[derive(Debug)]
struct Entry {
    start: u32,
    length: u32,
    /// The block of the device, the status, and whether it was looked up since a reclaimer came by.
    word: AtomicU64,
}

impl Entry {
    fn new(fact: Fact, referenced: bool) -> Entry {
        debug_assert!(fact.length > 0 && fact.physical <= PHYSICAL_MASK, "{fact:?}");
        let status = match fact.status {
            Status::Written => 0,
            Status::Unwritten => 1,
            Status::Delayed => 2,
            Status::Hole => 3,
        };
        let referenced = if referenced { REFERENCED } else { 0 };
        let word = fact.physical & PHYSICAL_MASK | status << STATUS_SHIFT | referenced;
        Entry { start: fact.logical, length: fact.length, word: AtomicU64::new(word) }
    }

    fn fact(&self) -> Fact {
        let word = self.word.load(Ordering::Relaxed);
        let status = match word >> STATUS_SHIFT & 3 {
            0 => Status::Written,
            1 => Status::Unwritten,
            2 => Status::Delayed,
            _ => Status::Hole,
        };
        Fact { logical: self.start, length: self.length, physical: word & PHYSICAL_MASK, status }
    }

    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.length)
    }

    fn is_droppable(&self) -> bool {
        self.fact().status.is_droppable()
    }

    fn is_referenced(&self) -> bool {
        self.word.load(Ordering::Relaxed) & REFERENCED != 0
    }

    /// Notes a look-up. Reclaim needs the tree's lock exclusively, so nothing is lost.
    fn reference(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & REFERENCED == 0 {
            self.word.store(word | REFERENCED, Ordering::Relaxed);
        }
    }

    /// Whether it was looked up since this was asked last.
    fn take_reference(&mut self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !REFERENCED, Ordering::Relaxed);
        word & REFERENCED != 0
    }
}

type Chunk = Vec<Entry>;
/// What is left of a fact, and whether that was looked up.
type Rest = Option<(Fact, bool)>;

fn start_of(chunk: &Chunk) -> u32 {
    chunk.first().map_or(0, |entry| entry.start)
}

/// How far a reclaimer may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Facts that may still be looked at.
    pub looks_left: usize,
    /// Facts that may still be dropped.
    pub drops_left: usize,
    /// Spare those that were looked up since the last visit.
    pub spares_referenced: bool,
}

/// What a visit of a reclaimer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reclaimed {
    /// Facts looked at.
    pub scanned: usize,
    /// Facts dropped.
    pub dropped: usize,
}

/// What is known about an inode.
#[derive(Debug, Default)]
pub(super) struct Tree {
    chunks: Vec<Chunk>,
    length: usize,
    droppable: usize,
    /// The block that the next visit of a reclaimer begins at.
    resume: u32,
}

impl Tree {
    /// Facts that are held.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Those of them that may be dropped.
    pub fn droppable(&self) -> usize {
        self.droppable
    }

    /// The first block behind all facts.
    pub fn end(&self) -> u64 {
        self.chunks.last().and_then(|chunk| chunk.last()).map_or(0, Entry::end)
    }

    /// What is known about a block.
    pub fn lookup(&self, logical: u32) -> Option<Fact> {
        let chunk = match self.chunks.as_slice() {
            [only] => only,
            chunks => {
                let behind = chunks.partition_point(|chunk| start_of(chunk) <= logical);
                &chunks[behind.checked_sub(1)?]
            }
        };
        let behind = chunk.partition_point(|entry| entry.start <= logical);
        let entry = &chunk[behind.checked_sub(1)?];
        if u64::from(logical) >= entry.end() {
            return None;
        }
        entry.reference();
        Some(entry.fact())
    }

    /// The chunk and the place in it of the first entry that ends behind `from`. The place may be
    /// behind the chunk's last entry.
    fn locate(&self, from: u64) -> (usize, usize) {
        let behind = self.chunks.partition_point(|chunk| u64::from(start_of(chunk)) <= from);
        let chunk = behind.saturating_sub(1);
        let place = |chunk: &Chunk| chunk.partition_point(|entry| entry.end() <= from);
        (chunk, self.chunks.get(chunk).map_or(0, place))
    }

    /// Makes room for one change at `from`. False if there is no memory.
    pub fn reserve(&mut self, from: u64) -> bool {
        self.try_reserve(from).is_ok()
    }

    fn try_reserve(&mut self, from: u64) -> Result<(), std::collections::TryReserveError> {
        let (place, index) = self.locate(from);
        let is_last = place + 1 >= self.chunks.len();
        self.chunks.try_reserve(1)?;
        let Some(chunk) = self.chunks.get_mut(place) else {
            let mut first = Chunk::new();
            first.try_reserve_exact(FIRST_CHUNK_LENGTH)?;
            self.chunks.push(first);
            return Ok(());
        };
        let length = chunk.len();
        if length + ADDED_MAX > CHUNK_LENGTH_MAX {
            // Files mostly grow at their end, which leaves full chunks behind.
            let middle = if is_last && index + 1 >= length { length - 4 } else { length / 2 };
            let mut upper = Chunk::new();
            upper.try_reserve_exact(CHUNK_LENGTH_MAX)?;
            upper.extend(chunk.drain(middle..));
            self.chunks.insert(place + 1, upper);
        } else if chunk.capacity() - length < ADDED_MAX {
            let wanted = (2 * length).clamp(FIRST_CHUNK_LENGTH, CHUNK_LENGTH_MAX);
            chunk.try_reserve_exact((wanted - length).max(ADDED_MAX))?;
        }
        Ok(())
    }

    /// Notes what is at a range from now on, whatever was known about it.
    pub fn set(&mut self, fact: Fact) {
        if !self.extend(&fact) {
            self.set_anew(fact);
        }
    }

    /// Lets a fact grow into the beginning of the next one, as a file that is written from its start
    /// does into the hole behind its end. False if that isn't what it is.
    pub fn extend(&mut self, fact: &Fact) -> bool {
        let behind = self.chunks.partition_point(|chunk| start_of(chunk) <= fact.logical);
        let Some(chunk) = self.chunks.get_mut(behind.wrapping_sub(1)) else { return false };
        let behind = chunk.partition_point(|entry| entry.start <= fact.logical);
        let [.., previous, next] = &mut chunk[..behind] else { return false };
        if next.start != fact.logical || next.end() <= fact.end() {
            return false;
        }
        let Some(merged) = previous.fact().merge(fact) else { return false };
        previous.length = merged.length;
        next.start += fact.length;
        next.length -= fact.length;
        if next.fact().status.is_mapped() {
            // The numbers of blocks stay below the status.
            let word = next.word.load(Ordering::Relaxed) + u64::from(fact.length);
            next.word.store(word, Ordering::Relaxed);
        }
        true
    }

    fn set_anew(&mut self, fact: Fact) {
        self.replace(u64::from(fact.logical), fact.end(), Some(fact));
    }

    /// Forgets what is known about `[from, to)`.
    pub fn forget(&mut self, from: u64, to: u64) {
        self.replace(from, to, None);
    }

    /// Forgets what is known about `[from, to)` and may be forgotten.
    pub fn forget_droppable(&mut self, from: u64, to: u64) {
        if self.droppable == self.length {
            self.forget(from, to);
            return;
        }
        let mut from = from;
        while let Some(known) = self.first_overlapping(from, to) {
            from = known.end();
            if known.status.is_droppable() {
                self.forget(u64::from(known.logical), known.end());
            }
        }
    }

    /// Notes that the blocks of a range, where it is known to have some, are written or unwritten.
    pub fn convert(&mut self, from: u64, to: u64, status: Status) {
        let mut from = from;
        while let Some(known) = self.first_overlapping(from, to) {
            from = known.end();
            if known.status.is_mapped() && known.status != status {
                // Without room the fact is forgotten, which is as true.
                self.reserve(u64::from(known.logical));
                self.set(Fact { status, ..known });
            }
        }
    }

    /// The first known part of a range.
    pub fn first_overlapping(&self, from: u64, to: u64) -> Option<Fact> {
        let (place, index) = self.locate(from);
        let here = self.chunks.get(place)?.get(index);
        let entry = here.or_else(|| self.chunks.get(place + 1)?.first())?;
        entry.fact().overlap(from, to)
    }

    fn count_out(&mut self, is_droppable: bool) {
        self.length -= 1;
        self.droppable -= usize::from(is_droppable);
    }

    /// Replaces what is known about `[from, to)`.
    fn replace(&mut self, from: u64, to: u64, with: Option<Fact>) {
        if self.chunks.is_empty() {
            return;
        }
        let (target, mut index) = self.locate(from);
        let [mut left, mut right] = self.cut(target, index, from, to);
        let mut target = target;
        let mut with = with;
        if let Some(fact) = &mut with {
            // The new fact may say the same as the one that it cuts.
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

    /// Takes out what overlaps `[from, to)`, from the entry at `index` of a chunk on. Returns what
    /// is left of it on both sides. That chunk stays, even if it is empty then.
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

    /// Takes the entry before a place into a fact that continues it.
    fn merge_left(&mut self, target: &mut usize, index: &mut usize, fact: &mut Fact) {
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

    /// Takes the entry at a place into a fact that it continues.
    fn merge_right(&mut self, target: usize, index: usize, fact: &mut Fact) {
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

    /// Adds a fact if there is room for it.
    fn add(&mut self, target: usize, index: usize, fact: Fact, referenced: bool) -> bool {
        let chunk = &mut self.chunks[target];
        let has_room = chunk.len() < chunk.capacity();
        assert!(
            has_room || fact.status.is_droppable(),
            "no room was reserved for delayed data at block {}",
            fact.logical
        );
        if has_room {
            chunk.insert(index, Entry::new(fact, referenced));
            self.length += 1;
            self.droppable += usize::from(fact.status.is_droppable());
        }
        has_room
    }

    /// Drops facts from where the last visit stopped up to the last one. The next visit begins
    /// where the limits ended this one, or else with the first fact.
    pub fn reclaim(&mut self, limits: &mut Limits) -> Reclaimed {
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

    /// All facts, for checks.
    #[cfg(test)]
    pub fn facts(&self) -> Vec<Fact> {
        self.chunks.iter().flatten().map(Entry::fact).collect()
    }

    /// How many entries there is room for.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let facts = self.facts();
        assert_eq!(facts.len(), self.length);
        let droppable = facts.iter().filter(|fact| fact.status.is_droppable()).count();
        assert_eq!(droppable, self.droppable);
        for pair in facts.windows(2) {
            assert!(pair[0].end() <= u64::from(pair[1].logical), "{pair:?} overlap");
            assert_eq!(pair[0].merge(&pair[1]), None, "{pair:?} are two");
        }
        let empty = self.chunks.iter().filter(|chunk| chunk.is_empty()).count();
        assert!(empty == 0 || self.chunks.len() == 1, "an empty chunk");
        assert!(self.chunks.iter().all(|chunk| chunk.len() <= CHUNK_LENGTH_MAX));
    }
}
