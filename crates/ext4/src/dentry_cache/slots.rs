//! The slots of a dentry table, which threads read while another one changes them.
//!
//! # State
//! Each slot has a hash and, in a second array, a name with its inode number as whole words, so
//! that a look-up touches two cache lines. Changes are counted ([`SequenceCount`]); once the table has
//! new slots, one goes on for good.
//!
//! # Locking
//! The callers ensure that one thread at a time changes the slots. A reader takes no lock, and
//! checks afterwards that no change happened since it began ([`SequenceRead`]).
//!
//! A look-up reads a name this way, try-locks the inode's shard, checks again, and only then takes
//! its reference. That is safe because a thread that frees the inode changes the name first and
//! locks the shard afterwards, to check for references: either it sees the reference, or the
//! look-up sees the change. A look-up that doesn't get the shard's lock, or sees a change, starts
//! again with the directory's lock.

use crate::number_map::SPREAD;
use crate::sequence_count::{SequenceCount, SequenceRead};
use drystone_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The hash of a free slot.
const FREE: u32 = 0;
/// How far after its home slot a name may lie: bounds the cost of a look-up.
const DISTANCE_MAX: usize = 256;
const WORD_BYTES: usize = 8;
/// The first word has the length of the name from this bit on, and the inode number below.
const LENGTH_SHIFT: u32 = 32;

/// The longest name, in bytes, that fits a slot of `words` words.
pub(super) const fn name_bytes_max(words: usize) -> usize {
    (words - 1) * WORD_BYTES
}

/// A name as it lies in a slot, with 0 as the number, and its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct DentryKey<const WORDS: usize> {
    words: [u64; WORDS],
    hash: u32,
}

impl<const WORDS: usize> DentryKey<WORDS> {
    /// The hash, never that of a free slot.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// The key of a name; `None` if it is too long.
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
        // Even if nothing is left: it mixes the last bytes of the word before, which often are all
        // that distinguishes two names.
        state = mix(state, last);
        // The upper half; never the hash of a free slot.
        Some(DentryKey { words, hash: ((state >> 32) as u32).max(1) })
    }
}

#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(SPREAD);
    product ^ product >> 29
}

/// A name and its number; half a cache line, or a whole one.
#[derive(Debug)]
#[repr(C, align(32))]
struct DentryWords<const WORDS: usize>([AtomicU64; WORDS]);

/// The slots.
#[derive(Debug)]
pub(super) struct DentrySlots<const WORDS: usize> {
    changes: SequenceCount,
    /// The table is complete: a name that isn't here isn't in the directory.
    is_whole: AtomicBool,
    /// One for each slot; their number is a power of two.
    hashes: Box<[AtomicU32]>,
    known: Box<[DentryWords<WORDS>]>,
}

/// A change of the slots; it ends when this is dropped.
pub(super) struct DentryChange<'a, const WORDS: usize>(&'a DentrySlots<WORDS>);

impl<const WORDS: usize> Drop for DentryChange<'_, WORDS> {
    fn drop(&mut self) {
        self.0.changes.end_change();
    }
}

impl<const WORDS: usize> DentryChange<'_, WORDS> {
    /// Puts a name into a slot.
    pub fn put(&self, place: usize, key: &DentryKey<WORDS>, number: u32) {
        let words = &self.0.known[place].0;
        words[0].store(key.words[0] | u64::from(number), Ordering::Relaxed);
        for (word, &value) in words.iter().zip(&key.words).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.hashes[place].store(key.hash, Ordering::Relaxed);
    }

    /// Frees a slot. Names after it that a search would no longer reach move up.
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

    /// Sets whether the table is complete.
    pub fn set_whole(&self, is_whole: bool) {
        self.0.is_whole.store(is_whole, Ordering::Relaxed);
    }
}

impl<const WORDS: usize> DentrySlots<WORDS> {
    /// Free slots; `places` must be a power of two.
    pub fn new(places: usize) -> Self {
        let free = |_| DentryWords(std::array::from_fn(|_| AtomicU64::new(0)));
        DentrySlots {
            changes: SequenceCount::default(),
            is_whole: AtomicBool::new(false),
            hashes: (0..places).map(|_| AtomicU32::new(FREE)).collect(),
            known: (0..places).map(free).collect(),
        }
    }

    /// Bytes that `places` slots take.
    pub const fn bytes_of(places: usize) -> usize {
        places * (size_of::<AtomicU32>() + size_of::<DentryWords<WORDS>>())
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Begins a change, which ends when the result is dropped.
    pub fn change(&self) -> DentryChange<'_, WORDS> {
        self.changes.begin_change();
        DentryChange(self)
    }

    /// Makes all reads invalid for good: the table has new slots.
    pub fn retire(&self) {
        self.changes.begin_change();
    }

    /// Like [`get`](Self::get), but without a lock: the caller checks the validity afterwards.
    /// `None` during a change, or if the table has new slots.
    #[inline]
    pub fn read(&self, key: &DentryKey<WORDS>) -> Option<(Option<u32>, SequenceRead<'_>)> {
        let read = self.changes.read()?;
        Some((self.get(key), read))
    }

    /// The inode number of a name; 0 if the name is known to be absent; `None` if nothing is known.
    #[inline]
    pub fn get(&self, key: &DentryKey<WORDS>) -> Option<u32> {
        match self.find(key) {
            Some(place) => Some(self.known[place].0[0].load(Ordering::Relaxed) as u32),
            None => self.is_whole.load(Ordering::Relaxed).then_some(0),
        }
    }

    /// The slot of a name.
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

    /// The first free slot for a name, within the distance of a look-up.
    pub fn free_place(&self, key: &DentryKey<WORDS>) -> Option<usize> {
        let mut places = self.places_from(key).take(DISTANCE_MAX.min(self.mask()));
        places.find(|&place| self.hash_at(place) == FREE)
    }

    /// The first used slot from a name's home on.
    pub fn used_place(&self, key: &DentryKey<WORDS>) -> Option<usize> {
        self.places_from(key).find(|&place| self.hash_at(place) != FREE)
    }

    /// The home slot of a name, where it lies if all slots are free.
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

    /// The name in a slot, with its number.
    fn key_at(&self, place: usize) -> DentryKey<WORDS> {
        let words = &self.known[place].0;
        DentryKey {
            words: std::array::from_fn(|word| words[word].load(Ordering::Relaxed)),
            hash: self.hash_at(place),
        }
    }
}
