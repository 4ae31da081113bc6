//! A table of names that forgets when it is full.
//!
//! # State
//! Two parts, for short names, which most are, and for longer ones. Each knows all of its names or
//! not, whatever becomes of the other. In a part, open addressing: a name lies at the place that its
//! hash gives or shortly behind it, with no free place in between ([`DentrySlots`]).

use super::DentryTarget;
use super::slots::{DentryKey, DentrySlots, name_bytes_max};
use crate::sequence_count::SequenceRead;
use drystone_ext4_format::InodeNumber;
use drystone_sync::Arc;

/// Words of a place for a short name: 24 bytes of it.
const SHORT: usize = 4;
/// Words of a place for a longer one: 56 bytes. Longer names are not kept.
const LONG: usize = 8;
/// The first size of a part, and its last; powers of two.
const PLACES: (usize, usize) = (64, 1 << 18);

/// The names.
#[derive(Debug, Default)]
pub(super) struct DentryTable {
    short: DentryTablePart<SHORT>,
    long: DentryTablePart<LONG>,
}

/// The places of a table as they were when somebody looked: they are read without a lock, and hold as
/// long as the table has no others.
#[derive(Debug, Default)]
pub(crate) struct DentryReader {
    short: Option<Arc<DentrySlots<SHORT>>>,
    long: Option<Arc<DentrySlots<LONG>>>,
}

impl DentryReader {
    /// What is known of a name, and as of when; nothing if it takes a look at the table to say.
    #[inline]
    pub(super) fn read(&self, name: &[u8]) -> Option<(Option<DentryTarget>, SequenceRead<'_>)> {
        let (known, read) = if name.len() <= name_bytes_max(SHORT) {
            self.short.as_ref()?.read(&DentryKey::of(name)?)?
        } else {
            self.long.as_ref()?.read(&DentryKey::of(name)?)?
        };
        Some((known.map(meaning), read))
    }

    /// Takes over the places that a table has now.
    pub(super) fn update(&mut self, table: &DentryTable) {
        table.short.show(&mut self.short);
        table.long.show(&mut self.long);
    }
}

#[inline]
fn meaning(number: u32) -> DentryTarget {
    match number {
        0 => DentryTarget::Nothing,
        number => DentryTarget::Inode(InodeNumber::new(number)),
    }
}

/// Does something in the part that a name belongs to.
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
    /// Whether a name is short enough.
    #[inline]
    pub fn can_hold(name: &[u8]) -> bool {
        name.len() <= name_bytes_max(LONG)
    }

    /// What is known of a name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<DentryTarget> {
        if name.len() <= name_bytes_max(SHORT) { self.short.get(name) } else { self.long.get(name) }
    }

    /// The directory has no names.
    pub fn set_complete(&mut self) {
        self.short.set_complete();
        self.long.set_complete();
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
    pub fn set(&mut self, name: &[u8], meaning: DentryTarget) {
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
        let is_first = self.short.slots.is_none() && self.long.slots.is_none();
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
struct DentryTablePart<const WORDS: usize> {
    slots: Option<Arc<DentrySlots<WORDS>>>,
    count: usize,
    /// How many names to add before asking for room again.
    patience: usize,
    /// Every name of the directory that belongs here is, but for those whose changes go on.
    is_complete: bool,
    /// Changes that go on, or whose end is not known.
    changes: u32,
}

impl<const WORDS: usize> DentryTablePart<WORDS> {
    #[inline]
    fn get(&self, name: &[u8]) -> Option<DentryTarget> {
        match (&self.slots, DentryKey::of(name)) {
            (Some(slots), Some(key)) => slots.get(&key).map(meaning),
            _ => self.is_whole().then_some(DentryTarget::Nothing),
        }
    }

    /// Whether what isn't here isn't in the directory.
    fn is_whole(&self) -> bool {
        self.is_complete && self.changes == 0
    }

    fn set_complete(&mut self) {
        self.is_complete = true;
        self.tell();
    }

    /// Tells readers whether what isn't here isn't in the directory.
    fn tell(&self) {
        if let Some(slots) = &self.slots {
            slots.change().set_whole(self.is_whole());
        }
    }

    fn begin_change(&mut self, name: &[u8]) {
        self.changes = self.changes.saturating_add(1);
        self.tell();
        self.remove(name);
    }

    fn end_change(&mut self) {
        self.changes = self.changes.saturating_sub(1);
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
            // In place of the name that lies there: all others are found as before.
            room.unwrap_or(slots.home_of(&key))
        });
        let number = match meaning {
            DentryTarget::Inode(inode) => inode.get(),
            DentryTarget::Nothing => 0,
        };
        change.put(place, &key, number);
        change.set_whole(self.is_complete && self.changes == 0);
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

    /// Nothing if the part has its last size.
    fn growth_bytes(&self) -> Option<usize> {
        let wanted = (self.places() * 2).max(PLACES.0);
        (wanted <= PLACES.1).then(|| DentrySlots::<WORDS>::bytes_of(wanted - self.places()))
    }

    /// Doubles the part.
    fn grow(&mut self) {
        let fresh = DentrySlots::new((self.places() * 2).max(PLACES.0));
        self.count = 0;
        if let Some(old) = self.slots.take() {
            old.retire();
            let change = fresh.change();
            for key in old.keys() {
                // One that has no room near its place is forgotten.
                match fresh.free_place(&key) {
                    Some(place) => {
                        change.put(place, &key, 0);
                        self.count += 1;
                    }
                    None => self.is_complete = false,
                }
            }
        }
        self.patience = 0;
        self.slots = Some(Arc::new(fresh));
        self.tell();
    }

    fn reset(&mut self) -> usize {
        let old = std::mem::take(self).slots;
        old.map_or(0, |slots| {
            slots.retire();
            DentrySlots::<WORDS>::bytes_of(slots.len())
        })
    }

    /// Lets a reader have the places.
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

/// Three quarters of the places: searches stay short.
fn full(places: usize) -> usize {
    places / 4 * 3
}

#[cfg(test)]
mod tests;
