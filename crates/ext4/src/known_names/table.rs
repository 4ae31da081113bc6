//! A table of names that forgets when it is full.
//!
//! # State
//! Two parts, for short names, which most are, and for longer ones. Each knows all of its names or
//! not, whatever becomes of the other. In a part, open addressing: a name lies at the place that its
//! hash gives or shortly behind it, with no free place in between. The hashes lie apart from the names,
//! so that a look at a name touches two lines of memory.

use super::Meaning;
use drystone_ext4_format::InodeNumber;

/// Bytes of a short name, at most.
const SHORT_BYTES: usize = 27;
/// Longer names are not kept.
const NAME_BYTES_MAX: usize = 59;
/// The first size of a part, and its last; powers of two.
const PLACES: (usize, usize) = (64, 1 << 18);
/// How far behind its place a name may lie: a bound on what a look costs, whatever the names.
const DISTANCE_MAX: usize = 256;
/// The hash of a free place.
const FREE: u32 = 0;
/// Spreads bits over a word when it is multiplied.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A name and what it stands for; half a line of memory, or a line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Known<const BYTES: usize> {
    /// 0 if the name stands for nothing.
    inode: u32,
    length: u8,
    name: [u8; BYTES],
}

const _: () = assert!(size_of::<Known<SHORT_BYTES>>() == 32);
const _: () = assert!(size_of::<Known<NAME_BYTES_MAX>>() == 64);

/// The names.
#[derive(Debug, Default)]
pub(super) struct Table {
    short: Part<SHORT_BYTES>,
    long: Part<NAME_BYTES_MAX>,
}

/// Does something in the part that a name belongs to.
macro_rules! in_part {
    ($table:expr, $name:expr, $part:ident => $work:expr) => {
        if $name.len() <= SHORT_BYTES {
            let $part = &mut $table.short;
            $work
        } else {
            let $part = &mut $table.long;
            $work
        }
    };
}

impl Table {
    /// Whether a name is short enough.
    #[inline]
    pub fn can_hold(name: &[u8]) -> bool {
        name.len() <= NAME_BYTES_MAX
    }

    /// What is known of a name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<Meaning> {
        if name.len() <= SHORT_BYTES { self.short.get(name) } else { self.long.get(name) }
    }

    /// The directory has no names.
    pub fn set_complete(&mut self) {
        self.short.is_complete = true;
        self.long.is_complete = true;
    }

    /// A change of a name begins: whether it will be there is not known before the change has ended
    /// well.
    pub fn begin_change(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.begin_change(name));
    }

    /// A change of a name that began has ended well, and what it did to the name is here.
    pub fn end_change(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.end_change());
    }

    /// Notes what a name stands for. If there is no room another name is forgotten.
    pub fn set(&mut self, name: &[u8], meaning: Meaning) {
        in_part!(self, name, part => part.set(name, meaning));
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.remove(name));
    }

    /// Whether there should be more room before a name is added.
    pub fn wants_room(&mut self, name: &[u8]) -> bool {
        in_part!(self, name, part => part.wants_room())
    }

    /// There is no room for a name: asking costs too much to ask for every name.
    pub fn refused(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.refused());
    }

    /// Bytes that more room for a name takes on top; `None` if there can't be more.
    pub fn growth_bytes(&mut self, name: &[u8]) -> Option<usize> {
        in_part!(self, name, part => part.growth_bytes())
    }

    /// Makes more room for a name; returns whether the table had no memory before.
    pub fn grow(&mut self, name: &[u8]) -> bool {
        let is_first = self.short.hashes.is_empty() && self.long.hashes.is_empty();
        in_part!(self, name, part => part.grow());
        is_first
    }

    /// Forgets everything; returns the bytes that are free now.
    pub fn reset(&mut self) -> usize {
        self.short.reset() + self.long.reset()
    }
}

/// The names up to a length.
#[derive(Debug, Default)]
struct Part<const BYTES: usize> {
    /// A power of two of them, or none.
    hashes: Box<[u32]>,
    known: Box<[Known<BYTES>]>,
    count: usize,
    /// How many names to add before asking for room again.
    patience: usize,
    /// Every name of the directory that belongs here is, but for those whose changes go on.
    is_complete: bool,
    /// Changes that go on, or whose end is not known.
    changes: u32,
}

impl<const BYTES: usize> Part<BYTES> {
    const BLANK: Known<BYTES> = Known { inode: 0, length: 0, name: [0; BYTES] };

    #[inline]
    fn get(&self, name: &[u8]) -> Option<Meaning> {
        match self.find(name, hash(name)).map(|place| self.known[place].inode) {
            Some(0) => Some(Meaning::Nothing),
            Some(inode) => Some(Meaning::Inode(InodeNumber::new(inode))),
            None => (self.is_complete && self.changes == 0).then_some(Meaning::Nothing),
        }
    }

    fn begin_change(&mut self, name: &[u8]) {
        self.remove(name);
        self.changes = self.changes.saturating_add(1);
    }

    fn end_change(&mut self) {
        self.changes = self.changes.saturating_sub(1);
    }

    fn set(&mut self, name: &[u8], meaning: Meaning) {
        if self.hashes.is_empty() || name.len() > BYTES {
            self.is_complete = false;
            return;
        }
        let hash = hash(name);
        let place = self.find(name, hash).unwrap_or_else(|| {
            let home = self.home(hash);
            if self.is_full() {
                self.forget_near(home);
            }
            let room = self.free_place(home);
            self.count += usize::from(room.is_some());
            self.is_complete &= room.is_some();
            // In place of the name that lies there: all others are found as before.
            room.unwrap_or(home)
        });
        self.hashes[place] = hash;
        let known = &mut self.known[place];
        known.inode = match meaning {
            Meaning::Inode(inode) => inode.get(),
            Meaning::Nothing => 0,
        };
        // It fits.
        known.length = name.len() as u8;
        known.name[..name.len()].copy_from_slice(name);
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(place) = self.find(name, hash(name)) {
            self.remove_at(place);
        }
    }

    /// Forgets the next name from `home` on.
    fn forget_near(&mut self, home: usize) {
        let mask = self.hashes.len() - 1;
        let mut places = (0..=mask).map(|distance| (home + distance) & mask);
        if let Some(place) = places.find(|&place| self.hashes[place] != FREE) {
            self.is_complete = false;
            self.remove_at(place);
        }
    }

    fn remove_at(&mut self, mut hole: usize) {
        // Names behind the hole that it would cut off from their places move into it.
        let mask = self.hashes.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let hash = self.hashes[place];
            if hash == FREE || place == hole {
                break;
            }
            let distance = place.wrapping_sub(self.home(hash)) & mask;
            if distance >= (place.wrapping_sub(hole) & mask) {
                self.hashes[hole] = hash;
                self.known[hole] = self.known[place];
                hole = place;
            }
        }
        self.hashes[hole] = FREE;
        self.count -= 1;
    }

    fn wants_room(&mut self) -> bool {
        if !self.is_full() || self.hashes.len() >= PLACES.1 {
            return false;
        }
        let is_patient = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        !is_patient
    }

    fn refused(&mut self) {
        self.patience = self.hashes.len().max(PLACES.0);
    }

    /// Nothing if the part has its last size.
    fn growth_bytes(&self) -> Option<usize> {
        let wanted = (self.hashes.len() * 2).max(PLACES.0);
        (wanted <= PLACES.1).then(|| Self::bytes_of(wanted - self.hashes.len()))
    }

    /// Doubles the part.
    fn grow(&mut self) {
        let places = (self.hashes.len() * 2).max(PLACES.0);
        let fresh = Part {
            hashes: vec![FREE; places].into_boxed_slice(),
            known: vec![Self::BLANK; places].into_boxed_slice(),
            is_complete: self.is_complete,
            changes: self.changes,
            ..Part::default()
        };
        let old = std::mem::replace(self, fresh);
        for (&hash, known) in old.hashes.iter().zip(&old.known) {
            if hash == FREE {
                continue;
            }
            // One that has no room near its place is forgotten.
            let Some(place) = self.free_place(self.home(hash)) else {
                self.is_complete = false;
                continue;
            };
            self.hashes[place] = hash;
            self.known[place] = *known;
            self.count += 1;
        }
    }

    fn reset(&mut self) -> usize {
        Self::bytes_of(std::mem::take(self).hashes.len())
    }

    fn bytes_of(places: usize) -> usize {
        places * (size_of::<u32>() + size_of::<Known<BYTES>>())
    }

    /// Three quarters: searches stay short.
    fn is_full(&self) -> bool {
        self.count >= self.hashes.len() / 4 * 3
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.hashes.len() - 1)
    }

    #[inline]
    fn find(&self, name: &[u8], hash: u32) -> Option<usize> {
        if self.hashes.is_empty() {
            return None;
        }
        let mask = self.hashes.len() - 1;
        let home = self.home(hash);
        for distance in 0..DISTANCE_MAX {
            let place = (home + distance) & mask;
            let found = self.hashes[place];
            if found == hash {
                let known = &self.known[place];
                if known.name.get(..usize::from(known.length)) == Some(name) {
                    return Some(place);
                }
            } else if found == FREE {
                return None;
            }
        }
        None
    }

    /// The first free place from `home` on, if there is one near.
    fn free_place(&self, home: usize) -> Option<usize> {
        let mask = self.hashes.len() - 1;
        let mut places = (0..DISTANCE_MAX.min(mask)).map(|distance| (home + distance) & mask);
        places.find(|&place| self.hashes[place] == FREE)
    }
}

/// Spreads names; never that of a free place.
#[inline]
fn hash(name: &[u8]) -> u32 {
    let mut state = name.len() as u64;
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        state = mix(state, word.try_into().map_or(0, u64::from_le_bytes));
    }
    let mut last = 0;
    for &byte in words.remainder() {
        last = last << 8 | u64::from(byte);
    }
    state = mix(state, last);
    // The upper half.
    ((state >> 32) as u32).max(1)
}

#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(SPREAD);
    product ^ product >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Random changes against a map; a table may forget, and never lies.
    #[test]
    fn says_what_a_map_says() {
        let mut table = Part::<NAME_BYTES_MAX>::default();
        let mut model: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut random = 0x5eed_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut hits = 0;
        for step in 0..200_000_u32 {
            let number = next(3000);
            let name = vec![b'a'; (number % 7) as usize + 1];
            let name = [&name[..], &number.to_string().into_bytes()].concat();
            match next(4) {
                0 | 1 => {
                    if table.wants_room() && table.hashes.len() < 2048 {
                        table.grow();
                    }
                    let meaning = match step % 5 {
                        0 => Meaning::Nothing,
                        _ => Meaning::Inode(InodeNumber::new(step)),
                    };
                    table.set(&name, meaning);
                    model.insert(name, if step % 5 == 0 { 0 } else { step });
                }
                2 => {
                    table.remove(&name);
                    model.remove(&name);
                }
                _ => {
                    if let Some(meaning) = table.get(&name) {
                        let found = match meaning {
                            Meaning::Inode(inode) => inode.get(),
                            Meaning::Nothing => 0,
                        };
                        assert_eq!(model.get(&name), Some(&found), "at step {step}");
                        hits += 1;
                    }
                }
            }
            let used = table.hashes.iter().filter(|&&hash| hash != FREE).count();
            debug_assert_eq!(used, table.count);
        }
        assert!(hits > 10_000, "{hits} hits");
    }

    #[test]
    fn knows_what_is_not_there_only_while_it_knows_all() {
        let inode = Meaning::Inode(InodeNumber::new(7));
        let mut table = Part::<NAME_BYTES_MAX>::default();
        table.grow();
        assert_eq!(table.get(b"a"), None);
        table.is_complete = true;
        assert_eq!(table.get(b"a"), Some(Meaning::Nothing));
        table.begin_change(b"a");
        assert_eq!((table.get(b"a"), table.get(b"b")), (None, None));
        // Two at once, as a rename has them.
        table.begin_change(b"b");
        table.end_change();
        assert_eq!(table.get(b"b"), None);
        table.set(b"a", inode);
        table.end_change();
        assert_eq!((table.get(b"a"), table.get(b"b")), (Some(inode), Some(Meaning::Nothing)));
        for number in 0..PLACES.0 as u32 {
            table.set(&number.to_le_bytes(), inode);
        }
        assert_eq!(table.get(b"b"), None, "names were forgotten");
        let mut table = Part::<NAME_BYTES_MAX>::default();
        table.grow();
        table.is_complete = true;
        table.set(&[b'x'; 255], inode);
        assert_eq!(table.get(b"b"), None, "a name that does not fit");
    }

    #[test]
    fn names_of_one_hash_push_each_other_out() {
        let mut table = Part::<NAME_BYTES_MAX>::default();
        table.grow();
        // More than a table holds.
        for number in 0..100_u32 {
            table.set(&number.to_le_bytes(), Meaning::Inode(InodeNumber::new(number + 1)));
        }
        assert_eq!(table.count, PLACES.0 / 4 * 3);
        let last = table.get(&99_u32.to_le_bytes());
        assert_eq!(last, Some(Meaning::Inode(InodeNumber::new(100))));
    }
}
