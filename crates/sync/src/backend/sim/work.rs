//! Work between two events: what it takes, from a table, or measured to make such a table.
//!
//! A *stretch* is the code between two events of a thread. Its place is where it begins and where it ends:
//! a line of the source, and what is done there. A simulation can't use the clock of the machine that it runs on, or
//! noise would order events. So a table says how long each stretch takes on a real core: the median over many
//! times. A run that [measures](Work::Measured) makes the table: the code between events is the engine's own
//! and runs at native speed, so the clock is read at the end of one event and at the start of the next.

use super::memory::LineUse;
use super::places::SourceLine;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::rc::Rc;
use std::time::Instant;

/// What is done at the end of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic read-modify-write.
    Modify,
    /// A lock is taken, or tried.
    Take,
    /// A lock is released.
    Release,
    /// The thread goes on after it was blocked or asleep.
    Resume,
    /// The thread starts.
    Start,
}

impl Step {
    /// All.
    pub const ALL: [Step; 7] = [
        Step::Read,
        Step::Write,
        Step::Modify,
        Step::Take,
        Step::Release,
        Step::Resume,
        Step::Start,
    ];

    /// The step of an event.
    pub(super) fn of(place: SourceLine, how: LineUse) -> Step {
        match how {
            _ if place.is_release() => Step::Release,
            LineUse::Modify if place.is_lock() => Step::Take,
            LineUse::Read => Step::Read,
            LineUse::Write => Step::Write,
            LineUse::Modify => Step::Modify,
        }
    }

    /// The step of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.to_string() == name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Read => "read",
            Step::Write => "write",
            Step::Modify => "modify",
            Step::Take => "take",
            Step::Release => "release",
            Step::Resume => "resume",
            Step::Start => "start",
        })
    }
}

/// An end of a stretch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The source file.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// What is done there.
    pub step: Step,
}

/// An end of a stretch, as a run knows it.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    location: &'static Location<'static>,
    step: Step,
}

impl Mark {
    pub fn new(place: SourceLine, step: Step) -> Mark {
        Mark { location: place.location(), step }
    }

    /// Locations are aligned, so there is room for the step.
    fn key(self) -> u64 {
        std::ptr::from_ref(self.location).addr() as u64 * 8 + self.step as u64
    }

    fn site(self) -> Site {
        let file = self.location.file().to_string();
        Site { file, line: self.location.line(), step: self.step }
    }
}

/// How long stretches take.
#[derive(Clone, Debug, Default)]
pub struct WorkTable {
    stretches: HashMap<(Site, Site), u64>,
    /// By the files that a stretch begins and ends in.
    files: HashMap<(String, String), u64>,
    /// Any other.
    default_ps: u64,
}

impl WorkTable {
    /// A table from stretches: from, to, picoseconds, and how often it was met. A stretch that isn't in it takes
    /// the median of those between the same files, or of all.
    #[must_use]
    pub fn new(stretches: impl IntoIterator<Item = (Site, Site, u64, u64)>) -> WorkTable {
        let mut table = WorkTable::default();
        let mut by_files: HashMap<(String, String), Vec<(u64, u64)>> = HashMap::new();
        let mut all = Vec::new();
        for (from, to, ps, count) in stretches {
            by_files.entry((from.file.clone(), to.file.clone())).or_default().push((ps, count));
            all.push((ps, count));
            table.stretches.insert((from, to), ps);
        }
        table.default_ps = weighted_median(&mut all);
        let medians = by_files.into_iter().map(|(key, mut all)| (key, weighted_median(&mut all)));
        table.files = medians.collect();
        table
    }

    fn find(&self, from: Mark, to: Mark) -> (u64, Known) {
        let (from, to) = (from.site(), to.site());
        let step = from.step;
        let files = (from.file.clone(), to.file.clone());
        if let Some(&ps) = self.stretches.get(&(from, to)) {
            return (ps, Known::Exactly);
        }
        // A thread that was woken tries again at once.
        if step == Step::Resume {
            return (0, Known::Exactly);
        }
        match self.files.get(&files) {
            Some(&ps) => (ps, Known::ByFiles),
            None => (self.default_ps, Known::Not),
        }
    }
}

/// The middle of values that count several times.
fn weighted_median(values: &mut [(u64, u64)]) -> u64 {
    values.sort_unstable();
    let half = values.iter().map(|(_, count)| count).sum::<u64>() / 2;
    let mut seen = 0;
    let middle = values.iter().find(|(_, count)| {
        seen += count;
        seen > half
    });
    middle.map_or(0, |(value, _)| *value)
}

/// What is known of a stretch.
#[derive(Clone, Copy)]
enum Known {
    Exactly,
    ByFiles,
    Not,
}

/// What work between two events takes.
#[derive(Clone, Debug)]
pub enum Work {
    /// Always as many picoseconds.
    Constant(u64),
    /// What a table says.
    Table(Rc<WorkTable>),
    /// What it takes here and now. Such a run can't be repeated.
    Measured,
}

/// How the work before the events of a run was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkUse {
    /// Events whose stretch was in the table.
    pub exact: u64,
    /// Events with the median between the same files.
    pub by_files: u64,
    /// Events with the median of all.
    pub unknown: u64,
}

/// What was measured of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredStretch {
    /// Where it begins.
    pub from: Site,
    /// Where it ends.
    pub to: Site,
    /// How often it was met.
    pub count: u64,
    /// Its time then, in picoseconds, for the first few thousand.
    pub samples_ps: Vec<u64>,
}

/// Samples that are kept of a stretch.
const SAMPLES_MAX: usize = 2048;
/// Readings of the clock that say how long a reading takes.
const CLOCK_READINGS: usize = 10_001;

struct Samples {
    from: Mark,
    to: Mark,
    count: u64,
    samples_ps: Vec<u64>,
}

/// Finds the work of a run.
pub(super) struct Worker {
    work: Work,
    known: HashMap<(u64, u64), (u64, Known), BuildHasherDefault<KeyHasher>>,
    uses: WorkUse,
    measured: HashMap<(u64, u64), Samples, BuildHasherDefault<KeyHasher>>,
    resumed: Option<Instant>,
    clock_ps: u64,
}

impl Worker {
    pub fn new(work: Work) -> Worker {
        let is_measured = matches!(work, Work::Measured);
        Worker {
            work,
            known: HashMap::default(),
            uses: WorkUse::default(),
            measured: HashMap::default(),
            resumed: None,
            clock_ps: if is_measured { clock_reading_ps() } else { 0 },
        }
    }

    /// The work of a stretch that ends now.
    #[inline]
    pub fn done(&mut self, from: Mark, to: Mark) -> u64 {
        match &self.work {
            Work::Constant(ps) => *ps,
            Work::Table(table) => {
                let key = (from.key(), to.key());
                let (ps, known) = self.known.entry(key).or_insert_with(|| table.find(from, to));
                match known {
                    Known::Exactly => self.uses.exact += 1,
                    Known::ByFiles => self.uses.by_files += 1,
                    Known::Not => self.uses.unknown += 1,
                }
                *ps
            }
            Work::Measured => self.measure(from, to),
        }
    }

    #[cold]
    fn measure(&mut self, from: Mark, to: Mark) -> u64 {
        // Without a beginning nothing is known.
        let Some(resumed) = self.resumed.take() else { return 0 };
        let elapsed_ps = (resumed.elapsed().as_nanos() * 1000) as u64;
        let ps = elapsed_ps.saturating_sub(self.clock_ps);
        let samples = self.measured.entry((from.key(), to.key())).or_insert_with(|| Samples {
            from,
            to,
            count: 0,
            samples_ps: Vec::new(),
        });
        samples.count += 1;
        if samples.samples_ps.len() < SAMPLES_MAX {
            samples.samples_ps.push(ps);
        }
        ps
    }

    /// The thread's own code goes on now.
    #[inline]
    pub fn resume(&mut self) {
        if matches!(self.work, Work::Measured) {
            self.resumed = Some(Instant::now());
        }
    }

    /// What was found, and what was measured.
    pub fn finish(self) -> (WorkUse, Vec<MeasuredStretch>) {
        let stretch = |samples: Samples| MeasuredStretch {
            from: samples.from.site(),
            to: samples.to.site(),
            count: samples.count,
            samples_ps: samples.samples_ps,
        };
        (self.uses, self.measured.into_values().map(stretch).collect())
    }
}

/// The time that reading the clock adds to what lies between two readings.
fn clock_reading_ps() -> u64 {
    let mut all: Vec<u64> = (0..CLOCK_READINGS)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos() as u64 * 1000
        })
        .collect();
    all.sort_unstable();
    all[CLOCK_READINGS / 2]
}

/// Keys are spread by multiplications; the same in every run.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(file: &str, line: u32, step: Step) -> Site {
        Site { file: file.to_string(), line, step }
    }

    #[track_caller]
    fn mark(step: Step) -> Mark {
        Mark::new(SourceLine::here(), step)
    }

    #[test]
    fn a_stretch_is_found_exactly_by_its_files_or_not() {
        let (from, to) = (mark(Step::Read), mark(Step::Take));
        let other = site("other.rs", 1, Step::Read);
        let table = WorkTable::new([
            (from.site(), to.site(), 5000, 10),
            (to.site(), other.clone(), 900, 100),
            (other.clone(), other, 800, 1),
        ]);
        assert!(matches!(table.find(from, to), (5000, Known::Exactly)));
        assert!(matches!(table.find(to, from), (5000, Known::ByFiles)));
        assert!(matches!(table.find(mark(Step::Resume), to), (0, Known::Exactly)));
        let empty = WorkTable::new([]);
        assert!(matches!(empty.find(from, to), (0, Known::Not)));
        assert_eq!(table.default_ps, 900);
    }

    #[test]
    fn steps_have_names() {
        for step in Step::ALL {
            assert_eq!(Step::named(&step.to_string()), Some(step));
        }
        assert_eq!(Step::named("jump"), None);
    }

    #[test]
    fn what_is_measured_is_near_the_truth() {
        let mut worker = Worker::new(Work::Measured);
        let (from, to) = (mark(Step::Read), mark(Step::Write));
        assert_eq!(worker.done(from, to), 0, "nothing had begun");
        for _ in 0..9 {
            worker.resume();
            std::thread::sleep(std::time::Duration::from_millis(2));
            worker.done(from, to);
        }
        let (_, measured) = worker.finish();
        let [stretch] = measured.as_slice() else { panic!("{measured:?}") };
        assert_eq!(stretch.count, 9);
        assert!(stretch.samples_ps.iter().all(|&ps| ps > 1_900_000_000), "{stretch:?}");
    }
}
