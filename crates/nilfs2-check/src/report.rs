//! What a check is told, and what it returns.

use crate::issue::{IssueSeverity, Nilfs2Issue};
use drystone_nilfs2_format::CheckpointNumber;
use std::fmt;

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nilfs2CheckOptions {
    /// How many problems the report holds at most; all are counted.
    pub problems_max: usize,
}

drystone_options::setters! {
    Nilfs2CheckOptions {
        problems_max: usize,
    }
}

impl Default for Nilfs2CheckOptions {
    fn default() -> Self {
        Self { problems_max: usize::MAX }
    }
}

/// Something that is wrong with an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nilfs2Problem {
    /// What, and where.
    pub issue: Nilfs2Issue,
    /// The checkpoint in which it was found, if it isn't about the volume as a whole.
    pub checkpoint: Option<CheckpointNumber>,
}

impl Nilfs2Problem {
    /// Whether it makes the image inconsistent.
    #[must_use]
    pub fn severity(&self) -> IssueSeverity {
        self.issue.severity()
    }
}

impl fmt::Display for Nilfs2Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.severity() == IssueSeverity::Warning {
            formatter.write_str("warning: ")?;
        }
        if let Some(checkpoint) = self.checkpoint {
            write!(formatter, "in checkpoint {checkpoint}: ")?;
        }
        fmt::Display::fmt(&self.issue, formatter)
    }
}

/// What an image holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nilfs2CheckSummary {
    /// The newest checkpoint: the one that was checked.
    pub newest_checkpoint: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Inodes of the newest checkpoint: the root and all that aren't reserved.
    pub inodes: u64,
    /// Segments without logs.
    pub segments_clean: u64,
    /// Segments of the volume.
    pub segments_total: u64,
    /// Blocks that some checkpoint has, or had, and that the cleaner hasn't reclaimed.
    pub blocks_used: u64,
    /// Logs after the newest checkpoint, whose data a mount would salvage or drop.
    pub logs_behind: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nilfs2CheckReport {
    /// What is wrong, in the order in which it was found, as much as was asked for.
    pub problems: Vec<Nilfs2Problem>,
    /// How many errors there are.
    pub errors: u64,
    /// How many warnings there are.
    pub warnings: u64,
    /// What the image holds; of little worth if the check could not be completed.
    pub summary: Nilfs2CheckSummary,
}

impl Nilfs2CheckReport {
    /// Whether the image is consistent. Warnings don't count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0
    }
}

/// Takes problems in: counts them and keeps some.
pub(crate) struct Reporter {
    pub report: Nilfs2CheckReport,
    problems_max: usize,
    /// The checkpoint that is being checked.
    pub checkpoint: Option<CheckpointNumber>,
}

impl Reporter {
    pub fn new(options: &Nilfs2CheckOptions) -> Self {
        let report = Nilfs2CheckReport::default();
        Self { report, problems_max: options.problems_max, checkpoint: None }
    }

    pub fn report(&mut self, issue: impl Into<Nilfs2Issue>) {
        let problem = Nilfs2Problem { issue: issue.into(), checkpoint: self.checkpoint };
        match problem.severity() {
            IssueSeverity::Error => self.report.errors += 1,
            IssueSeverity::Warning => self.report.warnings += 1,
        }
        if self.report.problems.len() < self.problems_max {
            self.report.problems.push(problem);
        }
    }
}
