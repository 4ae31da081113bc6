//! Repairs an image.
//!
//! A repair is a series of rounds. Each round checks the image as it is by then, takes the
//! problems of the first stage that has any, and repairs those that the caller agrees to. Most problems of
//! later stages are consequences, and gone when the next round looks. Counts of links have no consequences, so that
//! the totals are repaired in the same round. The last round changes nothing: its check is the result.
//!
//! A round reuses what the one before has found in pieces of inodes and directories that its writes can't have changed,
//! as far as memory permits ([`Kept`]). Its report is that of a check of the whole image.
//!
//! # State
//! Between rounds the device and what was written, what the check keeps, and what was left and why, by hashes of the
//! problems' texts.
//!
//! # Crash
//! A repair is not atomic by itself. The caller gives it a device with an undo log, so that one that is
//! interrupted is rolled back.
//!
//! # Limits
//! A problem that comes back after it was repaired three times is left, and rounds are counted, so
//! that an image that no rule can repair ends the repair.

mod attributes;
mod connections;
mod directories;
mod fields;
mod groups;
mod growth;
mod index;
mod inodes;
mod journal;
mod map_writer;
mod maps;
mod orphans;
mod overlaps;
mod quota;
mod repairer;
mod rules;
mod salvage;
mod stage;
mod superblock;
mod tables;
#[cfg(test)]
mod tests;
mod totals;

use crate::check::{self, Examined};
use crate::checker::Kept;
use crate::image::Error;
use crate::issue::{InodeIssue, Issue, JournalIssue, Severity, SuperblockIssue};
use crate::paths;
use crate::replay::{self, PendingLog};
use crate::report::{CheckOptions, CheckProgress, CheckSummary, Pass, Problem, Report, Reporter};
use crate::watched::WatchedDevice;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::superblock::StateFlags;
use repairer::Repairer;
use serde::Serialize;
use stage::Stage;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

/// A repair ends after this many rounds, whatever is left.
const ROUNDS_MAX: u32 = 64;

/// How often the same problem is repaired before it is left.
const TRIES_MAX: u8 = 3;

/// How many problems are kept at once. All are counted.
#[derive(Clone, Copy)]
struct ProblemLimits {
    /// Those that a round looks at. More are left to the next.
    round: usize,
    /// Those whose repairs are counted; at least as many as a round looks at.
    tracked: usize,
    /// Repaired ones that the report holds.
    reported: usize,
}

impl ProblemLimits {
    const USUAL: Self = Self { round: 100_000, tracked: 1_000_000, reported: 1_000_000 };
}

/// What is to be done about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Repair it.
    Repair,
    /// Leave it, and what depends on it.
    Leave,
    /// End the repair. The caller takes back what was done.
    Cancel,
}

/// What became of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairOutcome {
    /// It was repaired.
    Repaired,
    /// It would be repaired: this is a plan.
    Planned,
    /// The caller wanted it left.
    Declined,
    /// There is no rule to repair it yet, or the rules failed.
    Impossible,
    /// It was left because a problem that it may depend on was.
    Waiting,
}

/// A problem, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairedProblem {
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
    /// What became of it.
    pub repair: RepairOutcome,
    /// How it was repaired, or would be.
    pub done: Option<&'static str>,
}

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// The problems in the order in which they were repaired, and then those that are left; of more than a million not
    /// all.
    pub problems: Vec<RepairedProblem>,
    /// How many were repaired.
    pub repaired: u64,
    /// How many would be repaired, if this is a plan.
    pub planned: u64,
    /// Errors that are left.
    pub errors: u64,
    /// Warnings that are left.
    pub warnings: u64,
    /// Whether the caller has ended the repair.
    pub is_cancelled: bool,
    /// Whether anything was written, be it only what was tried about problems that are left.
    #[serde(skip)]
    pub is_changed: bool,
    /// What the image holds.
    pub summary: CheckSummary,
}

/// What decides about each problem. It is told whether repairing it is safe: whether nothing is lost that
/// a file holds, and nothing chosen between two possibilities.
pub type Choose<'a> = dyn FnMut(&Problem, bool) -> Decision + 'a;

/// Repairs the image on a device, which is written. The journal is replayed first. Of the options, those about
/// threads and memory count.
///
/// # Errors
/// The device fails, or it holds nothing that could be checked. What was written until then has to be
/// taken back.
pub fn repair(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    now_seconds: u64,
    choose: &mut Choose<'_>,
    progress: &mut dyn FnMut(CheckProgress<'_>),
) -> Result<RepairReport, Error> {
    let device = WatchedDevice::new(device);
    let mut session = Session::new(&device, options, now_seconds, choose);
    for round in 0..ROUNDS_MAX {
        let mut steps = |step: CheckProgress<'_>| {
            // Only the first round's problems are news, and the caller is asked about those.
            if matches!(step, CheckProgress::Step { .. }) {
                progress(step);
            }
        };
        match session.round(round + 1 == ROUNDS_MAX, &mut steps)? {
            Round::Changed => {}
            Round::Settled => break,
        }
    }
    session.report.summary.transactions_replayed = session.transactions;
    session.report.is_changed = device.writes() > 0;
    Ok(session.report)
}

/// How a round ended.
enum Round {
    /// The image was changed: another round looks what is left.
    Changed,
    /// Nothing more is to be done.
    Settled,
}

struct Session<'a> {
    device: &'a WatchedDevice<'a>,
    options: CheckOptions,
    now_seconds: u64,
    choose: &'a mut Choose<'a>,
    limits: ProblemLimits,
    /// Problems that are left.
    left: HashMap<ProblemKey, RepairOutcome>,
    /// Those of them about which something was written.
    attempted: Vec<Problem>,
    /// How often problems were repaired.
    tries: HashMap<ProblemKey, u8>,
    report: RepairReport,
    transactions: u64,
    /// Whether the log stays: it is damaged and the caller leaves it, or holds what only the engine replays.
    is_journal_kept: bool,
    /// Inodes that had problems of their own: of two owners of a block, such a one gives way.
    suspects: BTreeSet<u32>,
    /// Inodes with nodes that others had taken.
    victims: BTreeSet<u32>,
    /// How much speaks for an inode holding something that never was one.
    garbled: HashMap<u32, u32>,
    /// Groups whose inode tables were looked for, and not found.
    lost_tables: BTreeSet<u32>,
    /// Directories that have lost their index.
    unindexed: BTreeSet<u32>,
    /// Whether the root named `lost+found` when the repair began, once that was looked at.
    had_lost_and_found: Option<bool>,
    /// Whether directories have got an index again, or the root `lost+found`.
    is_completed: bool,
    /// What the last round has kept for the next.
    kept: Kept,
    /// Whether rounds keep pieces of their examinations: not once those have left too little memory.
    keeps_pieces: bool,
}

impl<'a> Session<'a> {
    fn new(
        device: &'a WatchedDevice<'a>,
        options: &CheckOptions,
        now_seconds: u64,
        choose: &'a mut Choose<'a>,
    ) -> Self {
        Self {
            device,
            options: *options,
            now_seconds,
            choose,
            limits: ProblemLimits::USUAL,
            left: HashMap::new(),
            attempted: Vec::new(),
            tries: HashMap::new(),
            report: RepairReport::default(),
            transactions: 0,
            is_journal_kept: false,
            suspects: BTreeSet::new(),
            victims: BTreeSet::new(),
            garbled: HashMap::new(),
            lost_tables: BTreeSet::new(),
            unindexed: BTreeSet::new(),
            had_lost_and_found: None,
            is_completed: false,
            kept: Kept::default(),
            keeps_pieces: true,
        }
    }

    fn round(
        &mut self,
        is_last: bool,
        progress: &mut dyn FnMut(CheckProgress<'_>),
    ) -> Result<Round, Error> {
        let is_journal_kept = self.is_journal_kept;
        match self.try_round(is_last, progress) {
            // Tables come first. Only an examination fails for memory, before the round writes anything.
            Err(Error::Memory { .. }) if self.keeps_pieces => {
                self.keeps_pieces = false;
                // Its problems are to be reported again.
                self.is_journal_kept = is_journal_kept;
                self.try_round(is_last, progress)
            }
            ended => ended,
        }
    }

    fn try_round(
        &mut self,
        is_last: bool,
        progress: &mut dyn FnMut(CheckProgress<'_>),
    ) -> Result<Round, Error> {
        let options = CheckOptions {
            replay: true,
            problems_max: self.limits.round,
            now_seconds: Some(self.now_seconds),
            ..self.options
        };
        let mut reporter = Reporter::new(&options, progress);
        reporter.step(Pass::Groups, 0, 1);
        let device = self.device;
        let Some(image) = check::open(device, &mut reporter)? else {
            self.conclude(reporter.report);
            return Ok(Round::Settled);
        };
        if !self.is_journal_kept
            && let Some(log) = replay::pending(&image, true, &mut reporter)?
        {
            if self.may_replay(&log, &reporter.report) {
                let replayed = log.replay(device)?;
                self.transactions += u64::from(replayed.transactions);
                journal::finish_replay(&image, &replayed)?;
                return Ok(Round::Changed);
            }
            if self.report.is_cancelled {
                return Ok(Round::Settled);
            }
            self.is_journal_kept = true;
            log.damage().iter().for_each(|(issue, _)| reporter.report(issue.clone()));
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.note_written(device.take_written());
        let kept = Some(kept).filter(|_| self.keeps_pieces);
        let is_kept = self.is_journal_kept;
        let wants = |pass: Pass, report: &Report| {
            let stage = stage::first_of(pass);
            is_last || is_kept || stage.is_none_or(|stage| !self.repairs_before(stage, report))
        };
        match check::examine(image, reporter, true, &options, kept, wants)? {
            Examined::Hopeless(report) => {
                self.conclude(report);
                Ok(Round::Settled)
            }
            Examined::Whole(mut checker) => {
                let mut report = std::mem::take(&mut checker.reporter.report);
                let is_left_out = |pass: &Pass| !wants(*pass, &report);
                let left_out = [Pass::Duplicates, Pass::Links].into_iter().find(is_left_out);
                // Without owners nothing behind the inodes is judged rightly.
                let end = left_out.and_then(stage::first_of);
                // What the log holds may be newer than what is checked.
                if !is_last && !is_kept {
                    self.forget_repaired(&report);
                    self.suspect(&report);
                    let suspects = std::mem::take(&mut self.suspects);
                    let garbled = std::mem::take(&mut self.garbled);
                    let mut repairer = Repairer::new(&mut checker, self.now_seconds, suspects);
                    repairer.garbled = garbled;
                    repairer.lost_tables = std::mem::take(&mut self.lost_tables);
                    if self.had_lost_and_found.is_none() {
                        self.had_lost_and_found = Some(connections::has_lost_and_found(&repairer)?);
                    }
                    let is_changed = self.repair(&report, end, &mut repairer)?;
                    self.suspects = std::mem::take(&mut repairer.suspects);
                    self.lost_tables = std::mem::take(&mut repairer.lost_tables);
                    self.unindexed.append(&mut repairer.unindexed);
                    if is_changed || end.is_some() && !self.report.is_cancelled {
                        self.kept = checker.into_kept();
                        return Ok(Round::Changed);
                    }
                    let is_settled = report.errors == 0 && !self.report.is_cancelled;
                    if is_settled && self.complete(&mut repairer)? {
                        self.kept = checker.into_kept();
                        return Ok(Round::Changed);
                    }
                    if is_settled
                        && !repairer.checker.image.superblock.state().contains(StateFlags::CLEAN)
                    {
                        repairer.edit_superblock(|superblock| {
                            superblock.set_state(superblock.state() | StateFlags::CLEAN);
                        })?;
                    }
                }
                paths::resolve(&checker, &mut report.problems)?;
                self.count_attempted(&report);
                self.conclude(report);
                Ok(Round::Settled)
            }
        }
    }

    /// Whether a log may be replayed, without what is damaged, and over an image that was `found` half changed: the
    /// caller decides. It comes before all stages, which would judge what it overwrites.
    fn may_replay(&mut self, log: &PendingLog<'_>, found: &Report) -> bool {
        if log.has_only_fast_commit() {
            return false;
        }
        // Afterwards the mark is gone.
        let half_changed = Issue::Superblock(SuperblockIssue::HalfChanged);
        let is_marked = found.problems.iter().any(|problem| problem.issue == half_changed);
        let marked = is_marked.then_some((half_changed, "the superblock was corrected"));
        let damaged =
            log.damage().iter().map(|(issue, done)| (Issue::Journal(issue.clone()), *done));
        let mut dropped = Vec::new();
        for (issue, done) in marked.into_iter().chain(damaged) {
            let problem = Problem { issue, path: None };
            let key = key_of(&problem);
            if self.left.contains_key(&key) {
                return false;
            }
            match (self.choose)(&problem, false) {
                Decision::Repair => dropped.push((problem, done)),
                Decision::Leave => {
                    self.left.insert(key, RepairOutcome::Declined);
                    return false;
                }
                Decision::Cancel => {
                    self.report.is_cancelled = true;
                    return false;
                }
            }
        }
        self.report.repaired += dropped.len() as u64;
        for (problem, done) in dropped {
            self.add(problem, RepairOutcome::Repaired, Some(done));
        }
        true
    }

    /// Whether a round that finds this repairs what comes before a stage.
    fn repairs_before(&self, end: Stage, report: &Report) -> bool {
        report.problems.iter().any(|problem| {
            let key = || key_of(problem);
            stage::of(&problem.issue) < end
                && !self.left.contains_key(&key())
                && self.tries.get(&key()).is_none_or(|tries| *tries < TRIES_MAX)
        })
    }

    /// Gives the root `lost+found` again, and an index to the directories that have lost theirs; whether
    /// something was changed.
    fn complete(&mut self, repairer: &mut Repairer<'_, '_>) -> Result<bool, Error> {
        let mut is_changed = false;
        // It is tried once.
        if self.had_lost_and_found.replace(false) == Some(true)
            && !connections::has_lost_and_found(repairer)?
        {
            is_changed = connections::make_lost_and_found(repairer)?.is_some();
            self.unindexed.append(&mut repairer.unindexed);
        }
        if is_changed {
            self.is_completed = true;
            return Ok(true);
        }
        for number in std::mem::take(&mut self.unindexed) {
            is_changed |= index::build(repairer, InodeNumber::new(number))?;
        }
        self.is_completed |= is_changed;
        Ok(is_changed)
    }

    /// Forgets how often problems were repaired that this round doesn't find, if they are too many to keep.
    fn forget_repaired(&mut self, report: &Report) {
        if self.tries.len() + report.problems.len() > self.limits.tracked {
            let found: HashSet<ProblemKey> = report.problems.iter().map(key_of).collect();
            self.tries.retain(|key, _| found.contains(key));
        }
    }

    /// Notes the inodes that have problems of their own. One whose nodes another inode has taken may only
    /// seem damaged.
    fn suspect(&mut self, report: &Report) {
        let mut damaged = BTreeSet::new();
        self.garbled.clear();
        for problem in &report.problems {
            let Some(inode) = problem.issue.place().inode.map(InodeNumber::get) else { continue };
            match &problem.issue {
                Issue::Inode { issue: InodeIssue::SharedNode { .. }, .. } => {
                    self.victims.insert(inode)
                }
                issue if stage::of(issue) == Stage::Inodes => {
                    *self.garbled.entry(inode).or_default() += stage::weight(issue);
                    damaged.insert(inode)
                }
                _ => false,
            };
        }
        self.suspects.extend(damaged.difference(&self.victims));
    }

    /// Repairs the problems of the first stage that has any, and the totals together with counts of links; of those
    /// before `end`, if there is one. Whether something was changed.
    fn repair(
        &mut self,
        report: &Report,
        end: Option<Stage>,
        repairer: &mut Repairer<'_, '_>,
    ) -> Result<bool, Error> {
        let mut is_changed = false;
        let mut is_blocked = false;
        for stage in Stage::ALL.into_iter().filter(|stage| end.is_none_or(|end| *stage < end)) {
            let is_open = |problem: &&Problem| !self.left.contains_key(&key_of(problem));
            let of_stage = |problem: &&Problem| stage::of(&problem.issue) == stage;
            let urgent = stage.urgent(report, repairer)?;
            let mut problems: Vec<Problem> = urgent.into_iter().filter(is_open).cloned().collect();
            if problems.is_empty() {
                let all = report.problems.iter().filter(of_stage);
                problems = all.filter(is_open).cloned().collect();
            }
            if !is_blocked {
                paths::resolve(repairer.checker, &mut problems)?;
            }
            let mut is_stage_changed = false;
            for problem in &problems {
                let key = key_of(problem);
                let writes_before = self.device.writes();
                let outcome = if is_blocked {
                    RepairOutcome::Waiting
                } else {
                    self.repair_one(problem, key, repairer)?
                };
                if self.report.is_cancelled {
                    return Ok(false);
                }
                // A rule may have written before it failed.
                let has_written = self.device.writes() > writes_before;
                is_stage_changed |= outcome == RepairOutcome::Repaired || has_written;
                if outcome != RepairOutcome::Repaired {
                    self.left.insert(key, outcome);
                    self.attempted.extend(has_written.then(|| problem.clone()));
                }
            }
            is_changed |= is_stage_changed;
            // Nothing that is counted later depends on counts of links.
            let only_counts =
                || problems.iter().all(|problem| stage::is_link_count(&problem.issue));
            if is_stage_changed && !only_counts() {
                return Ok(true);
            }
            let mut errors = report.problems.iter().filter(of_stage);
            is_blocked |= errors.any(|problem| {
                problem.severity() == Severity::Error
                    && (!is_stage_changed || self.left.contains_key(&key_of(problem)))
            });
        }
        Ok(is_changed)
    }

    fn repair_one(
        &mut self,
        problem: &Problem,
        key: ProblemKey,
        repairer: &mut Repairer<'_, '_>,
    ) -> Result<RepairOutcome, Error> {
        let tries = self.tries.entry(key).or_default();
        if *tries == TRIES_MAX {
            return Ok(RepairOutcome::Impossible);
        }
        *tries += 1;
        // The directories were agreed to: so is what they take or leave of blocks when they are completed.
        if self.is_completed && stage::is_safe(&problem.issue) {
            let done = rules::repair(repairer, &problem.issue)?;
            return Ok(done.map_or(RepairOutcome::Impossible, |_| RepairOutcome::Repaired));
        }
        match (self.choose)(problem, stage::is_safe(&problem.issue)) {
            Decision::Repair => {}
            Decision::Leave => return Ok(RepairOutcome::Declined),
            Decision::Cancel => {
                self.report.is_cancelled = true;
                return Ok(RepairOutcome::Declined);
            }
        }
        let Some(done) = rules::repair(repairer, &problem.issue)? else {
            return Ok(RepairOutcome::Impossible);
        };
        self.report.repaired += 1;
        self.add(problem.clone(), RepairOutcome::Repaired, Some(done));
        Ok(RepairOutcome::Repaired)
    }

    fn add(&mut self, problem: Problem, repair: RepairOutcome, done: Option<&'static str>) {
        // What is left comes last, and must be told.
        if repair != RepairOutcome::Repaired || self.report.problems.len() < self.limits.reported {
            self.report.problems.push(RepairedProblem { problem, repair, done });
        }
    }

    /// What a completed check doesn't find although its rule failed was repaired, too.
    fn count_attempted(&mut self, report: &Report) {
        // A list that was cut doesn't tell what is gone.
        if self.attempted.is_empty()
            || report.problems.len() as u64 != report.errors + report.warnings
        {
            return;
        }
        let found: HashSet<ProblemKey> = report.problems.iter().map(key_of).collect();
        for problem in std::mem::take(&mut self.attempted) {
            if !found.contains(&key_of(&problem)) {
                self.report.repaired += 1;
                self.add(problem, RepairOutcome::Repaired, Some("it was repaired in part"));
            }
        }
    }

    /// Takes what the last check has found as what is left.
    fn conclude(&mut self, report: Report) {
        self.report.errors = report.errors;
        self.report.warnings = report.warnings;
        self.report.summary = report.summary;
        for problem in report.problems {
            let outcome = self.left.get(&key_of(&problem)).copied();
            // What the log holds may be newer.
            let fast_commit = Issue::Journal(JournalIssue::FastCommit);
            let is_waiting = self.is_journal_kept && problem.issue != fast_commit;
            let otherwise =
                if is_waiting { RepairOutcome::Waiting } else { RepairOutcome::Impossible };
            self.add(problem, outcome.unwrap_or(otherwise), None);
        }
    }
}

/// What a problem is known by in other rounds: two hashes of its text, which may be long.
type ProblemKey = [u64; 2];

fn key_of(problem: &Problem) -> ProblemKey {
    struct Hashing([DefaultHasher; 2]);

    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.iter_mut().for_each(|hasher| hasher.write(text.as_bytes()));
            Ok(())
        }
    }

    let mut hashing = Hashing([DefaultHasher::new(), DefaultHasher::new()]);
    hashing.0[1].write_u8(1);
    let written = write!(hashing, "{:?}", problem.issue);
    written.expect("an issue has a text, and hashing takes any");
    hashing.0.map(|hasher| hasher.finish())
}

impl RepairReport {
    /// The report of a repair that is thrown away.
    #[must_use]
    pub fn into_plan(mut self) -> RepairReport {
        for problem in &mut self.problems {
            if problem.repair == RepairOutcome::Repaired {
                problem.repair = RepairOutcome::Planned;
            }
        }
        self.planned = std::mem::take(&mut self.repaired);
        self
    }

    /// Whether no error is left.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0
    }
}
