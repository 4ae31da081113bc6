//! What places in the source cost.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

/// A place in the source, and the class of the lock that is used there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLine {
    location: &'static Location<'static>,
    class: &'static str,
    is_release: bool,
}

impl SourceLine {
    /// The caller's place, without a lock.
    #[track_caller]
    pub(crate) fn here() -> SourceLine {
        SourceLine { location: Location::caller(), class: "", is_release: false }
    }

    /// The caller's place, where it uses a lock of a class.
    #[track_caller]
    pub(crate) fn of(class: &'static str) -> SourceLine {
        SourceLine { location: Location::caller(), class, is_release: false }
    }

    /// The place where a lock was taken, now that it is released.
    pub(super) fn releasing(self) -> SourceLine {
        SourceLine { is_release: true, ..self }
    }

    pub(super) fn location(self) -> &'static Location<'static> {
        self.location
    }

    pub(super) fn is_lock(self) -> bool {
        !self.class.is_empty()
    }

    pub(super) fn is_release(self) -> bool {
        self.is_release
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({})", self.location.file(), self.location.line(), self.class)
    }
}

/// What the threads of one name have paid at a place, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Lines that the core had to fetch.
    pub transfers: u64,
    /// Time to fetch them.
    pub transfer_ps: u64,
    /// Time waiting until other changes of a line had ended.
    pub queue_ps: u64,
    /// Time blocked, off the processor.
    pub blocked_ps: u64,
}

/// The costs of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceCosts {
    /// The name of the threads.
    pub thread: String,
    /// The class of the lock; empty if it is none.
    pub class: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line there.
    pub line: u32,
    /// The costs.
    pub costs: Costs,
}

type Key = (usize, *const Location<'static>, *const u8);

/// The costs of all places.
#[derive(Default)]
pub(super) struct Places {
    names: Vec<String>,
    costs: HashMap<Key, (SourceLine, Costs)>,
}

impl Places {
    /// The number of a thread name.
    pub fn name(&mut self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        })
    }

    /// The costs of a place, to add to.
    pub fn at(&mut self, name: usize, place: SourceLine) -> &mut Costs {
        let key = (name, std::ptr::from_ref(place.location), place.class.as_ptr());
        let (_, costs) = self.costs.entry(key).or_insert_with(|| (place, Costs::default()));
        costs
    }

    /// All costs, by name of thread and place.
    pub fn all(&self) -> Vec<PlaceCosts> {
        let mut all: Vec<PlaceCosts> = self
            .costs
            .iter()
            .map(|((name, _, _), (place, costs))| PlaceCosts {
                thread: self.names[*name].clone(),
                class: place.class,
                file: place.location.file(),
                line: place.location.line(),
                costs: *costs,
            })
            .collect();
        all.sort_by(|one, other| {
            let key = |all: &PlaceCosts| (all.file, all.line, all.class);
            key(one).cmp(&key(other)).then_with(|| one.thread.cmp(&other.thread))
        });
        all
    }
}
