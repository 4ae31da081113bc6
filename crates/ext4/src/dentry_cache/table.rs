//! A dentry table, which evicts names when it is full.
//!
//! # State
//! Two parts: one for short names, which most are, and one for longer ones. Each part is complete
//! or not, independent of the other. A part uses open addressing: a name lies in its home slot,
//! which its hash gives, or shortly after it with no free slot in between ([`DentrySlots`]).

use super::DentryTarget;
use super::slots::{DentryKey, DentrySlots, name_bytes_max};
use crate::sequence_count::SequenceRead;
use drystone_ext4_format::InodeNumber;
use drystone_sync::Arc;

/// Words of a slot for a short name, of up to 24 bytes.
const SHORT: usize = 4;
/// Words of a slot for a longer name, of up to 56 bytes. Longer names are not kept.
const LONG: usize = 8;
/// The smallest and the largest size of a part in slots; powers of two.
const PLACES: (usize, usize) = (64, 1 << 18);
/// The size from which on a full part is spread over several tables.
const SPREAD_PLACES: usize = 4096;
/// Changes that a part remembers. With more at once it isn't complete any more.
const CHANGES_MAX: usize = 256;

/// The names.
#[derive(Debug, Default)]
pub(super) struct DentryTable {
    short: DentryTablePart<SHORT>,
    long: DentryTablePart<LONG>,
}

/// A reader's references to the slots of a directory's tables. It reads them without a lock; they are valid
/// until the table gets new slots.
#[derive(Debug, Default)]
pub(crate) struct DentryReader {
    first: TableReader,
    shards: Vec<TableReader>,
}

impl DentryReader {
    /// What it has of the table with a number.
    #[inline]
    pub(super) fn of(&mut self, number: usize) -> &mut TableReader {
        let Some(shard) = number.checked_sub(1) else { return &mut self.first };
        if shard >= self.shards.len() {
            self.shards.resize_with(shard + 1, TableReader::default);
        }
        &mut self.shards[shard]
    }
}

/// A reader's references to the slots of one table.
#[derive(Debug, Default)]
pub(super) struct TableReader {
    short: Option<Arc<DentrySlots<SHORT>>>,
    long: Option<Arc<DentrySlots<LONG>>>,
}

impl TableReader {
    /// The target of a name, if known, and the validity of that answer. `None` if the caller has to
    /// ask the table.
    #[inline]
    pub(super) fn read(&self, name: &[u8]) -> Option<(Option<DentryTarget>, SequenceRead<'_>)> {
        let (known, read) = if name.len() <= name_bytes_max(SHORT) {
            self.short.as_ref()?.read(&DentryKey::of(name)?)?
        } else {
            self.long.as_ref()?.read(&DentryKey::of(name)?)?
        };
        Some((known.map(meaning), read))
    }

    /// Takes references to the current slots of a table.
    pub(super) fn update(&mut self, table: &DentryTable) {
        table.short.show(&mut self.short);
        table.long.show(&mut self.long);
    }
}

/// The hash of a name; 0 if it is too long to be kept.
#[inline]
pub(super) fn name_hash(name: &[u8]) -> u32 {
    if name.len() <= name_bytes_max(SHORT) { hash_of::<SHORT>(name) } else { hash_of::<LONG>(name) }
}

#[inline]
fn meaning(number: u32) -> DentryTarget {
    match number {
        0 => DentryTarget::Nothing,
        number => DentryTarget::Inode(InodeNumber::new(number)),
    }
}

/// Evaluates an expression with the part that a name belongs to.
macro_rules! in_part {
    ($table:expr, $name:expr, $part:ident => $work:expr) => {
        if $name.len() <= name_bytes_max(SHORT) {
            let $part = &mut $table.short;
            $work
        } else {
            let $part = &mut $table.long;
            $work
        }
    };
}

impl DentryTable {
    /// Whether a name is short enough to be kept.
    #[inline]
    pub fn can_hold(name: &[u8]) -> bool {
        name.len() <= name_bytes_max(LONG)
    }

    /// The target of a name, if known.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<DentryTarget> {
        if name.len() <= name_bytes_max(SHORT) { self.short.get(name) } else { self.long.get(name) }
    }

    /// Makes the table complete: the directory has no names.
    pub fn set_complete(&mut self) {
        self.short.set_complete();
        self.long.set_complete();
    }

    /// Begins a change of a name. Until the change has ended, the part doesn't count as complete.
    pub fn begin_change(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.begin_change(name));
    }

    /// Ends a change of a name that has succeeded and whose result is in the table.
    pub fn end_change(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.end_change(name));
    }

    /// Sets the target of a name. If there is no room, another name is evicted.
    pub fn set(&mut self, name: &[u8], meaning: DentryTarget) {
        in_part!(self, name, part => part.set(name, meaning));
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.remove(name));
    }

    /// Whether the part should grow before a name is added.
    pub fn wants_room(&mut self, name: &[u8]) -> bool {
        in_part!(self, name, part => part.wants_room())
    }

    /// Notes that the part could not grow, so that it is not tried again for every name.
    pub fn refused(&mut self, name: &[u8]) {
        in_part!(self, name, part => part.refused());
    }

    /// Additional bytes that growth takes; `None` if the part has its largest size.
    pub fn growth_bytes(&mut self, name: &[u8]) -> Option<usize> {
        in_part!(self, name, part => part.growth_bytes())
    }

    /// Grows the part of a name; returns whether the table had no memory before.
    pub fn grow(&mut self, name: &[u8]) -> bool {
        let is_first = self.short.slots.is_none() && self.long.slots.is_none();
        in_part!(self, name, part => part.grow());
        is_first
    }

    /// Forgets everything; returns the number of bytes freed.
    pub fn reset(&mut self) -> usize {
        self.short.reset() + self.long.reset()
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.short.bytes() + self.long.bytes()
    }

    /// Whether it is full, and so large that its names are better spread over several tables.
    pub fn is_to_be_spread(&self) -> bool {
        self.short.is_full_and_large() || self.long.is_full_and_large()
    }

    /// One of `count` tables for this one's names, with room for twice as many, and complete if this one is.
    pub fn empty_shard(&self, count: usize) -> DentryTable {
        DentryTable { short: self.short.empty_shard(count), long: self.long.empty_shard(count) }
    }

    /// Copies all names to the tables that `shard_of` selects by their hashes.
    pub fn copy_to(&self, shards: &mut [DentryTable], shard_of: impl Fn(u32) -> usize) {
        self.short.copy_to(shards.iter_mut().map(|shard| &mut shard.short), &shard_of);
        self.long.copy_to(shards.iter_mut().map(|shard| &mut shard.long), &shard_of);
    }
}

/// The names of a range of lengths.
#[derive(Debug, Default)]
struct DentryTablePart<const WORDS: usize> {
    slots: Option<Arc<DentrySlots<WORDS>>>,
    count: usize,
    /// How many names to add before trying to grow again.
    patience: usize,
    /// Every name of the directory that belongs into this part is in it, except names that are
    /// being changed.
    is_complete: bool,
    /// Hashes of names whose changes have begun and not ended, if the part would be complete without these; a
    /// failed change never ends.
    changing: Vec<u32>,
}

impl<const WORDS: usize> DentryTablePart<WORDS> {
    #[inline]
    fn get(&self, name: &[u8]) -> Option<DentryTarget> {
        match (&self.slots, DentryKey::of(name)) {
            (Some(slots), Some(key)) => slots.get(&key).map(meaning),
            _ => self.is_whole().then_some(DentryTarget::Nothing),
        }
    }

    /// Whether a name that isn't here isn't in the directory.
    fn is_whole(&self) -> bool {
        self.is_complete && self.changing.is_empty()
    }

    fn set_complete(&mut self) {
        self.is_complete = true;
        self.tell();
    }

    /// Tells readers whether the part is complete.
    fn tell(&self) {
        if let Some(slots) = &self.slots {
            slots.change().set_whole(self.is_whole());
        }
    }

    fn begin_change(&mut self, name: &[u8]) {
        self.is_complete &= self.changing.len() < CHANGES_MAX;
        match self.is_complete {
            true => self.changing.push(hash_of::<WORDS>(name)),
            false => self.changing = Vec::new(),
        }
        self.tell();
        self.remove(name);
    }

    fn end_change(&mut self, name: &[u8]) {
        let hash = hash_of::<WORDS>(name);
        if let Some(place) = self.changing.iter().position(|&changing| changing == hash) {
            self.changing.swap_remove(place);
        }
        self.tell();
    }

    fn set(&mut self, name: &[u8], meaning: DentryTarget) {
        let (Some(slots), Some(key)) = (&self.slots, DentryKey::of(name)) else {
            self.is_complete = false;
            return self.tell();
        };
        let change = slots.change();
        let place = slots.find(&key).unwrap_or_else(|| {
            if self.count >= full(slots.len())
                && let Some(used) = slots.used_place(&key)
            {
                self.is_complete = false;
                self.count -= 1;
                change.remove(used);
            }
            let room = slots.free_place(&key);
            self.count += usize::from(room.is_some());
            self.is_complete &= room.is_some();
            // Replaces the name in the home slot; all others are still found.
            room.unwrap_or(slots.home_of(&key))
        });
        let number = match meaning {
            DentryTarget::Inode(inode) => inode.get(),
            DentryTarget::Nothing => 0,
        };
        change.put(place, &key, number);
        change.set_whole(self.is_complete && self.changing.is_empty());
    }

    fn remove(&mut self, name: &[u8]) {
        if let (Some(slots), Some(key)) = (&self.slots, DentryKey::of(name))
            && let Some(place) = slots.find(&key)
        {
            slots.change().remove(place);
            self.count -= 1;
        }
    }

    fn places(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.len())
    }

    fn wants_room(&mut self) -> bool {
        if self.count < full(self.places()) || self.places() >= PLACES.1 {
            return false;
        }
        let is_patient = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        !is_patient
    }

    fn refused(&mut self) {
        self.patience = self.places().max(PLACES.0);
    }

    /// `None` if the part has its largest size.
    fn growth_bytes(&self) -> Option<usize> {
        let wanted = (self.places() * 2).max(PLACES.0);
        (wanted <= PLACES.1).then(|| DentrySlots::<WORDS>::bytes_of(wanted - self.places()))
    }

    /// Doubles the part.
    fn grow(&mut self) {
        let old = self.slots.take();
        let places = old.as_ref().map_or(0, |old| old.len()) * 2;
        self.count = 0;
        self.patience = 0;
        self.slots = Some(Arc::new(DentrySlots::new(places.max(PLACES.0))));
        if let Some(old) = &old {
            old.retire();
        }
        self.enter(old.iter().flat_map(|old| old.keys()));
    }

    /// Adds names that aren't here, with their numbers, and tells readers whether the part is complete.
    fn enter(&mut self, keys: impl Iterator<Item = DentryKey<WORDS>>) {
        let Some(slots) = &self.slots else { return };
        let change = slots.change();
        for key in keys {
            // A name without a free slot near its home is forgotten.
            match slots.free_place(&key) {
                Some(place) => {
                    change.put(place, &key, 0);
                    self.count += 1;
                }
                None => self.is_complete = false,
            }
        }
        change.set_whole(self.is_whole());
    }

    fn reset(&mut self) -> usize {
        let bytes = self.bytes();
        if let Some(old) = std::mem::take(self).slots {
            old.retire();
        }
        bytes
    }

    fn bytes(&self) -> usize {
        DentrySlots::<WORDS>::bytes_of(self.places())
    }

    fn is_full_and_large(&self) -> bool {
        self.places() >= SPREAD_PLACES && self.count >= full(self.places())
    }

    fn keys(&self) -> impl Iterator<Item = DentryKey<WORDS>> {
        self.slots.iter().flat_map(|slots| slots.keys())
    }

    fn empty_shard(&self, count: usize) -> Self {
        let slots = self
            .slots
            .as_ref()
            .map(|slots| Arc::new(DentrySlots::new((slots.len() / count * 2).max(PLACES.0))));
        DentryTablePart { slots, is_complete: self.is_complete, ..Self::default() }
    }

    /// Copies each name to the part of its shard, where its change will end if one goes on.
    fn copy_to<'a>(
        &self,
        shards: impl Iterator<Item = &'a mut Self>,
        shard_of: &impl Fn(u32) -> usize,
    ) {
        let mut keys: Vec<_> = self.keys().collect();
        keys.sort_unstable_by_key(|key| shard_of(key.hash()));
        let mut rest = &keys[..];
        for (number, shard) in shards.enumerate() {
            let count = rest.partition_point(|key| shard_of(key.hash()) == number);
            let (own, others) = rest.split_at(count);
            let is_own = |hash: &u32| shard_of(*hash) == number;
            shard.changing = self.changing.iter().copied().filter(is_own).collect();
            shard.enter(own.iter().copied());
            rest = others;
        }
    }

    /// Gives a reader the current slots.
    fn show(&self, seen: &mut Option<Arc<DentrySlots<WORDS>>>) {
        let is_same = match (&self.slots, &*seen) {
            (Some(now), Some(seen)) => Arc::ptr_eq(now, seen),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            seen.clone_from(&self.slots);
        }
    }
}

/// The hash of a name of a part; 0 if it is too long to be kept.
fn hash_of<const WORDS: usize>(name: &[u8]) -> u32 {
    DentryKey::<WORDS>::of(name).map_or(0, |key| key.hash())
}

/// The most names in a part: three quarters of the slots, so that searches stay short.
fn full(places: usize) -> usize {
    places / 4 * 3
}

#[cfg(test)]
mod tests;
