//! The places of a table of names, which are read while another thread changes them.
//!
//! # State
//! A hash for each place and, apart from them, so that a look at a name touches two lines of memory,
//! the name and the number that it stands for, as whole words. Changes are counted
//! ([`SequenceCount`]); once a table has other places, one goes on for good.
//!
//! # Locking
//! One thread changes them at a time; the callers see to that. A reader takes no lock, and asks
//! afterwards whether what it read was there at once, and still is ([`SequenceRead`]).
//!
//! A look-up reads a name so, takes the lock of the inode's shard if it is free, asks again, and only
//! then takes its reference. That is safe because a thread that frees the inode changes the name
//! first and locks the shard afterwards, to see whether there are references: either it sees the
//! reference, or the look-up sees that the name has changed. A look-up that doesn't get the shard's
//! lock, or finds that the name has changed, starts again with the directory's lock.

use crate::number_map::SPREAD;
use crate::sequence_count::{SequenceCount, SequenceRead};
use drystone_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The hash of a free place.
const FREE: u32 = 0;
/// How far behind its place a name may lie: a bound on what a look costs, whatever the names.
const DISTANCE_MAX: usize = 256;
const WORD_BYTES: usize = 8;
/// Where the first word has the length of the name; below is the number.
const LENGTH_SHIFT: u32 = 32;

/// Bytes that a name may have in places of `words`.
pub(super) const fn name_bytes_max(words: usize) -> usize {
    (words - 1) * WORD_BYTES
}

/// A name as it lies in a place, with the number 0, and its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct DentryKey<const WORDS: usize> {
    words: [u64; WORDS],
    hash: u32,
}

impl<const WORDS: usize> DentryKey<WORDS> {
    /// Of a name; nothing if it is too long.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        if name.len() > name_bytes_max(WORDS) {
            return None;
        }
        let mut words = [0; WORDS];
        words[0] = (name.len() as u64) << LENGTH_SHIFT;
        let mut state = name.len() as u64;
        let mut chunks = name.chunks_exact(WORD_BYTES);
        let mut place = 1;
        for chunk in &mut chunks {
            words[place] = chunk.try_into().map_or(0, u64::from_le_bytes);
            state = mix(state, words[place]);
            place += 1;
        }
        let rest = chunks.remainder();
        let last = rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        if let Some(word) = words.get_mut(place) {
            *word = last;
        }
        // Also if there is none: it spreads the last bytes of the word before, which often are all that
        // tells names apart.
        state = mix(state, last);
        // The upper half; never that of a free place.
        Some(DentryKey { words, hash: ((state >> 32) as u32).max(1) })
    }
}

#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(SPREAD);
    product ^ product >> 29
}

/// A name and its number; half a line of memory, or a line.
#[derive(Debug)]
#[repr(C, align(32))]
struct DentryWords<const WORDS: usize>([AtomicU64; WORDS]);

/// The places.
#[derive(Debug)]
pub(super) struct DentrySlots<const WORDS: usize> {
    changes: SequenceCount,
    /// What isn't here isn't in the directory.
    is_whole: AtomicBool,
    /// A power of two of them.
    hashes: Box<[AtomicU32]>,
    known: Box<[DentryWords<WORDS>]>,
}

/// The places while they change.
pub(super) struct DentryChange<'a, const WORDS: usize>(&'a DentrySlots<WORDS>);

impl<const WORDS: usize> Drop for DentryChange<'_, WORDS> {
    fn drop(&mut self) {
        self.0.changes.end_change();
    }
}

impl<const WORDS: usize> DentryChange<'_, WORDS> {
    /// Puts a name into a place.
    pub fn put(&self, place: usize, key: &DentryKey<WORDS>, number: u32) {
        let words = &self.0.known[place].0;
        words[0].store(key.words[0] | u64::from(number), Ordering::Relaxed);
        for (word, &value) in words.iter().zip(&key.words).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.hashes[place].store(key.hash, Ordering::Relaxed);
    }

    /// Frees a place. Names behind it that would be cut off from theirs move up.
    pub fn remove(&self, mut hole: usize) {
        let slots = self.0;
        let mask = slots.mask();
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let hash = slots.hash_at(place);
            if hash == FREE || place == hole {
                break;
            }
            let distance = place.wrapping_sub(slots.home(hash)) & mask;
            if distance >= (place.wrapping_sub(hole) & mask) {
                self.put(hole, &slots.key_at(place), 0);
                hole = place;
            }
        }
        slots.hashes[hole].store(FREE, Ordering::Relaxed);
    }

    /// Says whether what isn't here isn't in the directory.
    pub fn set_whole(&self, is_whole: bool) {
        self.0.is_whole.store(is_whole, Ordering::Relaxed);
    }
}

impl<const WORDS: usize> DentrySlots<WORDS> {
    /// A power of two of free places.
    pub fn new(places: usize) -> Self {
        let free = |_| DentryWords(std::array::from_fn(|_| AtomicU64::new(0)));
        DentrySlots {
            changes: SequenceCount::default(),
            is_whole: AtomicBool::new(false),
            hashes: (0..places).map(|_| AtomicU32::new(FREE)).collect(),
            known: (0..places).map(free).collect(),
        }
    }

    /// Bytes that places take.
    pub const fn bytes_of(places: usize) -> usize {
        places * (size_of::<AtomicU32>() + size_of::<DentryWords<WORDS>>())
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Begins a change, which ends when what is returned is dropped.
    pub fn change(&self) -> DentryChange<'_, WORDS> {
        self.changes.begin_change();
        DentryChange(self)
    }

    /// The table has other places from now on: nothing that is read here holds any more.
    pub fn retire(&self) {
        self.changes.begin_change();
    }

    /// As [`get`](Self::get), for who asks afterwards whether it is so still; nothing while a change
    /// goes on, or if the table has other places now.
    #[inline]
    pub fn read(&self, key: &DentryKey<WORDS>) -> Option<(Option<u32>, SequenceRead<'_>)> {
        let read = self.changes.read()?;
        Some((self.get(key), read))
    }

    /// The number that a name stands for, or 0 if that is nothing; none if it isn't known.
    #[inline]
    pub fn get(&self, key: &DentryKey<WORDS>) -> Option<u32> {
        match self.find(key) {
            Some(place) => Some(self.known[place].0[0].load(Ordering::Relaxed) as u32),
            None => self.is_whole.load(Ordering::Relaxed).then_some(0),
        }
    }

    /// Where a name is.
    #[inline]
    pub fn find(&self, key: &DentryKey<WORDS>) -> Option<usize> {
        let mask = self.mask();
        let home = self.home(key.hash);
        for distance in 0..DISTANCE_MAX {
            let place = (home + distance) & mask;
            let hash = self.hash_at(place);
            if hash == key.hash {
                let mut words = self.known[place].0.iter().map(|word| word.load(Ordering::Relaxed));
                let first = words.next().map(|word| word & u64::MAX << LENGTH_SHIFT);
                if first == Some(key.words[0]) && words.eq(key.words[1..].iter().copied()) {
                    return Some(place);
                }
            } else if hash == FREE {
                return None;
            }
        }
        None
    }

    /// The first free place for a name, if there is one near.
    pub fn free_place(&self, key: &DentryKey<WORDS>) -> Option<usize> {
        let mut places = self.places_from(key).take(DISTANCE_MAX.min(self.mask()));
        places.find(|&place| self.hash_at(place) == FREE)
    }

    /// The first place for a name that isn't free.
    pub fn used_place(&self, key: &DentryKey<WORDS>) -> Option<usize> {
        self.places_from(key).find(|&place| self.hash_at(place) != FREE)
    }

    /// Where a name would lie if all places were free.
    pub fn home_of(&self, key: &DentryKey<WORDS>) -> usize {
        self.home(key.hash)
    }

    /// All names, with their numbers.
    pub fn keys(&self) -> impl Iterator<Item = DentryKey<WORDS>> {
        let used = |&place: &usize| self.hash_at(place) != FREE;
        (0..self.len()).filter(used).map(|place| self.key_at(place))
    }

    fn places_from(&self, key: &DentryKey<WORDS>) -> impl Iterator<Item = usize> {
        let (home, mask) = (self.home(key.hash), self.mask());
        (0..=mask).map(move |distance| (home + distance) & mask)
    }

    #[inline]
    fn mask(&self) -> usize {
        self.hashes.len() - 1
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask()
    }

    #[inline]
    fn hash_at(&self, place: usize) -> u32 {
        self.hashes[place].load(Ordering::Relaxed)
    }

    /// What lies in a place, with its number.
    fn key_at(&self, place: usize) -> DentryKey<WORDS> {
        let words = &self.known[place].0;
        DentryKey {
            words: std::array::from_fn(|word| words[word].load(Ordering::Relaxed)),
            hash: self.hash_at(place),
        }
    }
}
