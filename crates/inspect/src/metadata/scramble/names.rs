//! New names for the entries of a directory: of any length, without end, and no two the same.
//!
//! A name is a number, from 0 on, in the digits of an alphabet, after a permutation of the numbers that depends on the
//! key. So different numbers give different names, and a name says nothing about the one that it replaces.
//!
//! Short names run out: then come names with any bytes that an entry may have, and after those there are none.

use super::key::{Purpose, RandomStream, ScrambleKey};
use std::hash::Hash;

/// Characters that count as digits; those after them are random.
const DIGITS_MAX: u32 = 10;

/// The longest names for which names with any bytes are used. Longer ones never run out of letters.
const ANY_BYTES_LENGTH_MAX: u8 = 4;

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Letters that casefolding leaves alone.
const FOLDED_LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A byte that a name ends with although it mustn't, because the name that it replaces had one such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum WrongEnd {
    #[default]
    None,
    Slash,
    Zero,
    NotUtf8,
}

impl WrongEnd {
    const fn byte(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Slash => Some(b'/'),
            Self::Zero => Some(0),
            Self::NotUtf8 => Some(0xff),
        }
    }
}

/// What a new name must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NameShape {
    pub length: u8,
    pub end: WrongEnd,
}

impl NameShape {
    /// The longest name whose record is as long: for short names that have run out.
    pub const fn grown(self) -> Self {
        Self { length: ANY_BYTES_LENGTH_MAX, end: self.end }
    }

    pub const fn may_grow(self) -> bool {
        self.length < ANY_BYTES_LENGTH_MAX
    }
}

/// What a number stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    Name(Vec<u8>),
    /// A name that another number stands for, or that means something.
    Taken,
    /// All names of the shape were drawn.
    None,
}

/// An alphabet and a permutation of the names that are written in it.
struct Alphabet {
    letters: Vec<u8>,
    factor: u128,
    offset: u128,
}

impl Alphabet {
    fn new(letters: Vec<u8>, random: &mut RandomStream) -> Self {
        let size = letters.len() as u128;
        let mut factor = u128::from(random.number());
        while greatest_divisor(factor, size) != 1 {
            factor += 1;
        }
        Self { letters, factor, offset: u128::from(random.number()) }
    }

    /// How many names there are.
    fn count(&self, length: u8) -> u128 {
        (self.letters.len() as u128).pow(u32::from(length).min(DIGITS_MAX))
    }

    fn name(&self, length: u8, number: u128) -> Vec<u8> {
        let count = self.count(length);
        // All are below 2^64, and so is the number of names. Names of other lengths begin otherwise.
        let offset = self.offset % count * u128::from(length);
        let mut rest = (number * (self.factor % count) + offset) % count;
        let digits = u32::from(length).min(DIGITS_MAX);
        let size = self.letters.len() as u128;
        (0..digits)
            .map(|_| {
                let letter = self.letters[(rest % size) as usize];
                rest /= size;
                letter
            })
            .collect()
    }
}

/// The names of one directory, or of one place with attributes.
pub(super) struct NameSupply {
    letters: Alphabet,
    any: Alphabet,
    key: ScrambleKey,
    place: u64,
}

impl NameSupply {
    /// Names for a place; folded ones if they are compared without case.
    pub fn new(key: ScrambleKey, purpose: Purpose, place: impl Hash, folded: bool) -> Self {
        let mut random = key.stream(purpose, place);
        let is_letter = |byte: &u8| match folded {
            // Valid UTF-8, and nothing that folds to something else.
            true => byte.is_ascii() && !byte.is_ascii_uppercase(),
            false => true,
        };
        let any = (1..=u8::MAX).filter(|byte| *byte != b'/').filter(is_letter).collect();
        let letters = if folded { FOLDED_LETTERS } else { LETTERS };
        Self {
            letters: Alphabet::new(letters.to_vec(), &mut random),
            any: Alphabet::new(any, &mut random),
            key,
            place: random.number(),
        }
    }

    /// The name that a number stands for.
    pub fn name(&self, shape: NameShape, number: u64) -> Drawn {
        let end = shape.end.byte();
        let free = shape.length.saturating_sub(u8::from(end.is_some()));
        if free == 0 {
            // There is only one.
            return Drawn::Name(end.into_iter().collect());
        }
        let wide = u128::from(number);
        let count = self.letters.count(free);
        let mut name = if wide < count {
            self.letters.name(free, wide)
        } else if free <= ANY_BYTES_LENGTH_MAX && wide - count < self.any.count(free) {
            let name = self.any.name(free, wide - count);
            let is_letters = name.iter().all(|byte| self.letters.letters.contains(byte));
            if is_letters || end.is_none() && (name == b"." || name == b"..") {
                return Drawn::Taken;
            }
            name
        } else {
            return Drawn::None;
        };
        let digits = name.len();
        if digits < usize::from(free) {
            name.resize(usize::from(free), 0);
            let mut random = self.key.stream(Purpose::Names, (self.place, shape, number));
            random.fill(&mut name[digits..]);
            let letters = &self.letters.letters;
            for byte in &mut name[digits..] {
                *byte = letters[usize::from(*byte) % letters.len()];
            }
        }
        name.extend(end);
        Drawn::Name(name)
    }

    /// The next name of a shape, counted in `next`; a longer one if there is none left.
    pub fn next(&self, shape: NameShape, next: &mut NameCounters) -> Vec<u8> {
        let shape = if next.has_grown(shape) { shape.grown() } else { shape };
        loop {
            match self.name(shape, next.take(shape)) {
                Drawn::Name(name) => return name,
                Drawn::Taken => {}
                Drawn::None if shape.may_grow() => {
                    next.grow(shape);
                    return self.next(shape.grown(), next);
                }
                // More names than there can be entries in a directory: they start again.
                Drawn::None => next.restart(shape),
            }
        }
    }
}

/// The next number of each shape.
#[derive(Default)]
pub(super) struct NameCounters {
    next: std::collections::BTreeMap<NameShape, u64>,
    grown: Vec<NameShape>,
}

impl NameCounters {
    pub fn take(&mut self, shape: NameShape) -> u64 {
        let next = self.next.entry(shape).or_insert(0);
        *next += 1;
        *next - 1
    }

    pub fn restart(&mut self, shape: NameShape) {
        self.next.remove(&shape);
    }

    fn has_grown(&self, shape: NameShape) -> bool {
        self.grown.contains(&shape)
    }

    fn grow(&mut self, shape: NameShape) {
        self.grown.push(shape);
    }
}

fn greatest_divisor(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn supply(folded: bool) -> NameSupply {
        NameSupply::new(ScrambleKey::from_seed(5), Purpose::Names, 12, folded)
    }

    fn shape(length: u8) -> NameShape {
        NameShape { length, end: WrongEnd::None }
    }

    #[test]
    fn all_short_names_are_drawn_once() {
        for (folded, length, expected) in
            [(false, 1, 253), (true, 1, 99), (false, 2, 254 * 254 - 1), (true, 2, 100 * 100 - 1)]
        {
            let (supply, mut seen) = (supply(folded), HashSet::new());
            for number in 0.. {
                match supply.name(shape(length), number) {
                    Drawn::Name(name) => {
                        assert_eq!(name.len(), usize::from(length));
                        assert!(!name.contains(&0) && !name.contains(&b'/') && name != b".");
                        let folds = str::from_utf8(&name).map(|name| name.to_lowercase());
                        assert!(!folded || folds.unwrap().as_bytes() == name);
                        assert!(seen.insert(name));
                    }
                    Drawn::Taken => {}
                    Drawn::None => break,
                }
            }
            assert_eq!(seen.len(), expected);
        }
    }

    #[test]
    fn short_names_grow_when_they_run_out() {
        let (supply, mut counters, mut seen) =
            (supply(true), NameCounters::default(), HashSet::new());
        for number in 0..1000 {
            let length = 1 + number % 4;
            let name = supply.next(shape(length as u8), &mut counters);
            assert!(name.len() == length || name.len() == 4);
            assert!(seen.insert(name));
        }
    }

    #[test]
    fn long_names_differ_and_wrong_ends_stay() {
        let supply = supply(false);
        let mut seen = HashSet::new();
        for number in 0..2000 {
            for length in [5, 11, 255] {
                let Drawn::Name(name) = supply.name(shape(length), number) else { panic!() };
                assert_eq!(name.len(), usize::from(length));
                assert!(name.iter().all(u8::is_ascii_alphanumeric));
                assert!(seen.insert(name));
            }
        }
        for (end, byte) in [(WrongEnd::Slash, b'/'), (WrongEnd::Zero, 0), (WrongEnd::NotUtf8, 0xff)]
        {
            for length in [1, 9] {
                let Drawn::Name(name) = supply.name(NameShape { length, end }, 3) else { panic!() };
                assert_eq!((name.len(), name.last()), (usize::from(length), Some(&byte)));
            }
        }
    }
}
