//! Finds names whose hashes fall into given intervals, for the leaves of a hashed directory.
//!
//! Names are drawn and hashed, and each goes to an interval that still needs a name of its shape. All intervals are
//! filled together: to look for each name alone would take as many draws as there are intervals.

use super::intervals::Intervals;
use super::names::{Drawn, NameCounters, NameShape, NameSupply};
use drystone_ext4_format::hash::NameHasher;
use std::collections::BTreeMap;

/// Draws in a row without a hit, for each interval, after which what is left counts as out of reach. A hit takes no more
/// than one draw for each interval, on average.
const MISSES_MAX: u64 = 64;

/// What names are drawn from, and how they are hashed.
pub(super) struct Draw<'a> {
    pub supply: &'a NameSupply,
    pub hasher: &'a NameHasher,
    pub intervals: &'a Intervals,
}

/// The new names for some leaves of a directory.
#[derive(Default)]
pub(super) struct Deal {
    pools: BTreeMap<NameShape, Pool>,
    /// Longer names in place of short ones that have run out.
    grown: BTreeMap<NameShape, Pool>,
    wanted: usize,
}

impl Deal {
    /// Notes that a name is wanted.
    pub fn want(&mut self, shape: NameShape, interval: u32) {
        self.pools.entry(shape).or_default().intervals.push(interval);
        self.wanted += 1;
    }

    /// How many names are wanted.
    pub const fn len(&self) -> usize {
        self.wanted
    }

    /// Finds the names.
    pub fn fill(&mut self, draw: &Draw<'_>, counters: &mut NameCounters) {
        for (&shape, pool) in &mut self.pools {
            // There are few short names, and those that were drawn before are in other intervals.
            if shape.may_grow() || shape == shape.grown() {
                counters.restart(shape);
            }
            pool.fill(shape, draw, counters);
            if shape.may_grow() {
                let left = self.grown.entry(shape.grown()).or_default();
                left.intervals.extend(pool.unfilled());
            }
        }
        for (&shape, pool) in &mut self.grown {
            pool.fill(shape, draw, counters);
        }
    }

    /// The name for a place that wanted one; nothing if none was found.
    pub fn take(
        &mut self,
        shape: NameShape,
        interval: u32,
        supply: &NameSupply,
    ) -> Option<Vec<u8>> {
        let found = self.pools.get_mut(&shape)?.take(interval);
        let (shape, number) = match found {
            Some(number) => (shape, number),
            None if shape.may_grow() => {
                let shape = shape.grown();
                (shape, self.grown.get_mut(&shape)?.take(interval)?)
            }
            None => return None,
        };
        match supply.name(shape, number) {
            Drawn::Name(name) => Some(name),
            Drawn::Taken | Drawn::None => None,
        }
    }
}

/// The names of one shape.
#[derive(Default)]
struct Pool {
    /// An interval for each name; sorted once names are looked for.
    intervals: Vec<u32>,
    /// The numbers that stand for the names; those that were found are the first of their interval.
    numbers: Vec<u64>,
    /// How many of an interval's names there are, at the place of its first.
    found: Vec<u32>,
}

impl Pool {
    fn fill(&mut self, shape: NameShape, draw: &Draw<'_>, counters: &mut NameCounters) {
        self.intervals.sort_unstable();
        self.numbers = vec![0; self.intervals.len()];
        self.found = vec![0; self.intervals.len()];
        let misses_max = MISSES_MAX * u64::from(draw.intervals.count());
        let (mut missing, mut misses) = (self.intervals.len(), 0);
        while missing > 0 && misses < misses_max {
            let number = counters.take(shape);
            let name = match draw.supply.name(shape, number) {
                Drawn::Name(name) => name,
                Drawn::Taken => continue,
                Drawn::None => break,
            };
            // New names fold to themselves.
            let interval = draw.intervals.of_new(draw.hasher.hash(&name).major);
            let first = self.first_of(interval);
            let place = first + self.found.get(first).map_or(0, |found| *found as usize);
            if self.intervals.get(place) == Some(&interval) {
                self.numbers[place] = number;
                self.found[first] += 1;
                (missing, misses) = (missing - 1, 0);
            } else {
                misses += 1;
            }
        }
    }

    fn first_of(&self, interval: u32) -> usize {
        self.intervals.partition_point(|other| *other < interval)
    }

    /// The intervals of the names that weren't found.
    fn unfilled(&self) -> Vec<u32> {
        let mut unfilled = Vec::new();
        for group in self.intervals.chunk_by(|one, other| one == other) {
            let found = self.found[self.first_of(group[0])] as usize;
            unfilled.extend_from_slice(&group[found..]);
        }
        unfilled
    }

    fn take(&mut self, interval: u32) -> Option<u64> {
        let first = self.first_of(interval);
        let found = self.found.get_mut(first)?;
        if self.intervals[first] != interval {
            return None;
        }
        *found = found.checked_sub(1)?;
        self.numbers.get(first + *found as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::{Purpose, ScrambleKey};
    use super::super::names::WrongEnd;
    use super::*;
    use drystone_ext4_format::hash::HashVersion;
    use std::collections::HashSet;

    #[test]
    fn each_interval_gets_its_names() {
        let mut random = fastrand::Rng::with_seed(3);
        for intervals in [1_u32, 2, 50, 700] {
            let old = (0..intervals).map(|_| random.u32(..)).collect();
            let intervals = Intervals::new(old, None);
            for folded in [false, true] {
                let supply = NameSupply::new(ScrambleKey::from_seed(1), Purpose::Names, 2, folded);
                let hasher = NameHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]);
                let draw = Draw { supply: &supply, hasher: &hasher, intervals: &intervals };
                let mut wanted: Vec<(NameShape, u32)> = (0..3000)
                    .map(|_| {
                        let length = if random.bool() { random.u8(1..6) } else { random.u8(6..) };
                        let shape = NameShape { length, end: WrongEnd::None };
                        (shape, random.u32(..intervals.count()))
                    })
                    .collect();
                let mut deal = Deal::default();
                wanted.iter().for_each(|(shape, interval)| deal.want(*shape, *interval));
                assert_eq!(deal.len(), wanted.len());
                deal.fill(&draw, &mut NameCounters::default());
                random.shuffle(&mut wanted);
                let mut seen = HashSet::new();
                for (shape, interval) in wanted {
                    let name = deal.take(shape, interval, &supply).unwrap();
                    assert_eq!(intervals.of_new(hasher.hash(&name).major), interval);
                    let length = usize::from(shape.length);
                    assert!(name.len() == length || length < 4 && name.len() == 4);
                    assert!(seen.insert(name));
                }
            }
        }
    }

    #[test]
    fn what_was_not_wanted_is_not_there() {
        let supply = NameSupply::new(ScrambleKey::from_seed(1), Purpose::Names, 2, false);
        let shape = NameShape { length: 9, end: WrongEnd::None };
        assert_eq!(Deal::default().take(shape, 0, &supply), None);
    }
}
