//! The options, the progress and the report of a check.

use crate::issue::{Issue, IssueLocation, Severity};
use drystone_sync::thread;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;

/// Problems of a part of a pass that are kept. A part with more is examined once more, and reports them one by one.
const PART_PROBLEMS_MAX: usize = 1 << 12;

/// What a problem takes of the memory that the caller allows: a share of it, by far more than what it needs.
const PROBLEM_BYTES: u64 = 2048;

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Replay a journal that needs it into memory, and check what a mount would see.
    pub replay: bool,
    /// How many problems the report holds at most; all are counted and passed to the callback.
    pub problems_max: usize,
    /// The time, in seconds since 1970, beyond which the superblock can't have been written; not looked
    /// at without it.
    pub now_seconds: Option<u64>,
    /// Threads that examine inodes and directories, from 1 to 64. The report is the same with any number.
    pub threads: usize,
    /// Bytes that the tables of the check may take together; by default as many as they need. With little
    /// memory fewer threads work, and the report holds fewer problems.
    pub memory_max: u64,
}

drystone_options::setters! {
    CheckOptions {
        replay: bool,
        problems_max: usize,
        now_seconds: impl Into<Option<u64>>,
        threads: usize,
        memory_max: u64,
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self {
            replay: true,
            problems_max: usize::MAX,
            now_seconds: None,
            threads,
            memory_max: u64::MAX,
        }
    }
}

/// A part of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Superblock, journal, group descriptors.
    Groups,
    /// Inodes and their blocks; counts groups.
    Inodes,
    /// Owners of blocks claimed twice; counts groups.
    Duplicates,
    /// Directories; counts them.
    Directories,
    /// Connections and counts of names.
    Links,
    /// Bitmaps and counters; counts groups.
    Bitmaps,
}

impl fmt::Display for Pass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Groups => "group descriptors",
            Self::Inodes => "inodes",
            Self::Duplicates => "owners of shared blocks",
            Self::Directories => "directories",
            Self::Links => "links",
            Self::Bitmaps => "bitmaps",
        })
    }
}

/// What a check says while it runs.
#[derive(Clone, Copy, Debug)]
pub enum CheckProgress<'a> {
    /// A pass has come this far.
    Step {
        /// The pass.
        pass: Pass,
        /// What is done of it, in units of the pass.
        done: u64,
        /// All of it.
        total: u64,
    },
    /// Something is wrong; its path is not known yet.
    Problem(&'a Problem),
}

/// Something that is wrong with an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What, and where.
    pub issue: Issue,
    /// A path to the inode that it concerns, if one was found.
    pub path: Option<String>,
}

impl Problem {
    /// Whether it makes the image inconsistent.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.issue.severity()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.severity() == Severity::Warning {
            formatter.write_str("warning: ")?;
        }
        fmt::Display::fmt(&self.issue, formatter)?;
        match &self.path {
            Some(path) => write!(formatter, " ({path})"),
            None => Ok(()),
        }
    }
}

/// One flat object: the kind, the message, the severity, and each part of the place that applies.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.issue.place();
        let IssueLocation { inode, group, block, logical_block, offset } = place;
        let mut object = serializer.serialize_struct("Problem", 9)?;
        object.serialize_field("kind", &self.issue.code())?;
        object.serialize_field("severity", &self.severity())?;
        object.serialize_field("problem", &self.issue.to_string())?;
        object.serialize_field("inode", &inode.map(|inode| inode.get()))?;
        object.serialize_field("path", &self.path)?;
        object.serialize_field("group", &group.map(|group| group.get()))?;
        object.serialize_field("block", &block.map(|block| block.get()))?;
        object.serialize_field("logical_block", &logical_block.map(|block| block.get()))?;
        object.serialize_field("offset", &offset)?;
        object.end()
    }
}

/// What an image holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckSummary {
    /// The name of the file system.
    pub label: String,
    /// Inodes in use, the reserved ones included.
    pub inodes_used: u64,
    /// Inodes of the image.
    pub inodes_total: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks of the image.
    pub blocks_total: u64,
    /// Regular files.
    pub regular_files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special_files: u64,
    /// Names beyond the first of files that have several.
    pub hard_links: u64,
    /// Inodes that a mount would delete or cut.
    pub orphans: u64,
    /// Inodes whose blocks are not one run.
    pub fragmented: u64,
    /// Transactions of the journal that were replayed in memory.
    pub transactions_replayed: u64,
}

impl CheckSummary {
    /// Adds what was counted of other inodes.
    fn add_inodes(&mut self, part: &CheckSummary) {
        self.regular_files += part.regular_files;
        self.directories += part.directories;
        self.symlinks += part.symlinks;
        self.special_files += part.special_files;
        self.fragmented += part.fragmented;
    }
}

impl fmt::Display for CheckSummary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ten_thousandths = (self.fragmented * 10_000).checked_div(self.inodes_used).unwrap_or(0);
        let permille = (ten_thousandths + 5) / 10;
        write!(
            formatter,
            "{}/{} files ({}.{}% non-contiguous), {}/{} blocks",
            self.inodes_used,
            self.inodes_total,
            permille / 10,
            permille % 10,
            self.blocks_used,
            self.blocks_total
        )
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What is wrong, in the order in which it was found, as many as were asked for.
    pub problems: Vec<Problem>,
    /// How many errors there are.
    pub errors: u64,
    /// How many warnings there are.
    pub warnings: u64,
    /// What the image holds; of little worth if the check could not be completed.
    pub summary: CheckSummary,
}

impl Report {
    /// Whether the image is consistent. Warnings don't count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0
    }
}

/// Takes problems in: counts them, keeps some, passes all on.
pub(crate) struct Reporter<'a> {
    pub report: Report,
    problems_max: usize,
    pub now_seconds: Option<u64>,
    /// None in a part of a pass.
    callback: Option<&'a mut dyn FnMut(CheckProgress<'_>)>,
}

impl<'a> Reporter<'a> {
    pub fn new(options: &CheckOptions, callback: &'a mut dyn FnMut(CheckProgress<'_>)) -> Self {
        let CheckOptions { problems_max, now_seconds, memory_max, .. } = *options;
        let that_fit = usize::try_from(memory_max / PROBLEM_BYTES).unwrap_or(usize::MAX);
        let problems_max = problems_max.min(that_fit);
        Self { report: Report::default(), problems_max, now_seconds, callback: Some(callback) }
    }

    /// For a part of a pass, whose problems are passed on with those of the others.
    pub fn of_part(now_seconds: Option<u64>) -> Self {
        let report = Report::default();
        Self { report, problems_max: PART_PROBLEMS_MAX, now_seconds, callback: None }
    }

    pub fn report(&mut self, issue: impl Into<Issue>) {
        let problem = Problem { issue: issue.into(), path: None };
        match problem.severity() {
            Severity::Error => self.report.errors += 1,
            Severity::Warning => self.report.warnings += 1,
        }
        if let Some(callback) = &mut self.callback {
            callback(CheckProgress::Problem(&problem));
        }
        if self.report.problems.len() < self.problems_max {
            self.report.problems.push(problem);
        }
    }

    /// How many problems were reported.
    pub fn count(&self) -> u64 {
        self.report.errors + self.report.warnings
    }

    /// What a part reports; nothing if it has so many problems that they weren't kept.
    pub fn into_part(self) -> Option<Report> {
        (self.count() == self.report.problems.len() as u64).then_some(self.report)
    }

    /// Reports the problems of a part, and adds what it counted of inodes. Returns that if there are no problems.
    pub fn add_part(&mut self, part: Report) -> Option<CheckSummary> {
        let is_sound = part.problems.is_empty();
        part.problems.into_iter().for_each(|problem| self.report(problem.issue));
        self.add_inodes(&part.summary);
        is_sound.then_some(part.summary)
    }

    /// Adds what was counted of inodes.
    pub fn add_inodes(&mut self, part: &CheckSummary) {
        self.report.summary.add_inodes(part);
    }

    pub fn summarize(&mut self, change: impl FnOnce(&mut CheckSummary)) {
        change(&mut self.report.summary);
    }

    pub fn step(&mut self, pass: Pass, done: u64, total: u64) {
        if let Some(callback) = &mut self.callback {
            callback(CheckProgress::Step { pass, done, total });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::InodeIssue;
    use drystone_ext4_format::InodeNumber;

    #[test]
    fn problems_are_flat_objects() {
        let inode = InodeNumber::new(12);
        let mut seen = 0;
        let mut count = |progress: CheckProgress<'_>| {
            seen += u32::from(matches!(progress, CheckProgress::Problem(_)));
        };
        let options = CheckOptions { problems_max: 1, ..CheckOptions::default() };
        let mut reporter = Reporter::new(&options, &mut count);
        for _ in 0..2 {
            reporter.report(Issue::Inode { inode, issue: InodeIssue::Unattached });
        }
        let report = reporter.report;
        assert_eq!((report.problems.len(), report.errors, report.is_clean()), (1, 2, false));
        assert_eq!(seen, 2);
        let json = serde_json::to_value(&report).unwrap();
        let problem = &json["problems"][0];
        assert_eq!(problem["kind"], "inode_unattached");
        assert_eq!(problem["inode"], 12);
        assert_eq!(problem["severity"], "error");
        assert!(problem["block"].is_null());
    }
}
