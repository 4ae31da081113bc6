//! The passes of a check, and their order.

use crate::checker::{Checker, Findings, Kept, Orphans, PART_BYTES};
use crate::image::{Error, Image};
use crate::inode_states::InodeStates;
use crate::memory::Memory;
use crate::report::{CheckOptions, CheckProgress, Pass, Report, Reporter};
use crate::{
    bitmaps, directories, duplicates, groups, inodes, links, orphans, paths, quota, replay,
    special, superblock, xattrs,
};
use drystone_blockdev::{BlockDevice, Overlay};
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::features::Incompat;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::superblock::StateFlags;
use drystone_sync::PIECES_AHEAD;

/// More threads wait for the one that takes what they find.
const THREADS_MAX: usize = 64;

/// Checks the image on a device. Nothing is written.
///
/// # Errors
/// The device fails, or it holds nothing that could be checked. Whatever is wrong with the image
/// is in the report.
pub fn check(
    device: &dyn BlockDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress<'_>),
) -> Result<Report, Error> {
    let mut reporter = Reporter::new(options, progress);
    reporter.step(Pass::Groups, 0, 1);
    let Some(image) = open(device, &mut reporter)? else { return Ok(reporter.report) };
    let needs_recovery = image.superblock.features().incompat.contains(Incompat::RECOVER);
    let overlay = Overlay::new(device);
    let mut replayed = false;
    if let Some(log) = replay::pending(&image, options.replay, &mut reporter)? {
        // A mount refuses a log that is damaged.
        replayed = log.damage().is_empty() || log.has_only_fast_commit();
        log.damage().iter().for_each(|(issue, _)| reporter.report(issue.clone()));
        if replayed {
            let transactions = log.replay(&overlay)?.transactions.into();
            groups::check_before_replay(&image, &overlay, &mut reporter)?;
            reporter.summarize(|summary| summary.transactions_replayed = transactions);
        }
    }
    let image = if replayed {
        let Some(image) = open(&overlay, &mut reporter)? else { return Ok(reporter.report) };
        image
    } else {
        image
    };
    let is_clean = image.superblock.state().contains(StateFlags::CLEAN);
    let counts_settled = is_clean && !needs_recovery;
    Ok(match examine(image, reporter, counts_settled, options, None, |_, _| true)? {
        Examined::Whole(mut checker) => {
            let mut report = std::mem::take(&mut checker.reporter.report);
            paths::resolve(&checker, &mut report.problems)?;
            report
        }
        Examined::Hopeless(report) => report,
    })
}

/// Finds a superblock whose blocks are all on the device. What is wrong with it is reported.
pub(crate) fn open<'a>(
    device: &'a dyn BlockDevice,
    reporter: &mut Reporter<'_>,
) -> Result<Option<Image<'a>>, Error> {
    let Some(found) = superblock::find(device, reporter)? else { return Ok(None) };
    let image = Image::new(device, found);
    Ok(superblock::check_size(&image, reporter).then_some(image))
}

/// How far an examination came.
pub(crate) enum Examined<'a> {
    /// All passes have run.
    Whole(Box<Checker<'a>>),
    /// The groups can't be what they claim.
    Hopeless(Report),
}

/// Runs all passes over an image. The superblock's counters count only if they are settled. Pieces that the examination
/// before has kept are reused if they would be found the same; without `kept` this one keeps none either.
/// `wants` says whether a pass is run, given what was found before: the one that looks for the owners of shared blocks,
/// and the one over links, without which those over bitmaps and quota aren't run either.
pub(crate) fn examine<'a>(
    mut image: Image<'a>,
    mut reporter: Reporter<'a>,
    counts_settled: bool,
    options: &CheckOptions,
    kept: Option<Kept>,
    wants: impl Fn(Pass, &Report) -> bool,
) -> Result<Examined<'a>, Error> {
    let Some(groups) = groups::load(&image, &mut reporter)? else {
        return Ok(Examined::Hopeless(reporter.report));
    };
    image.groups = groups;
    let layout = image.layout;
    let MemoryPlan { threads, memory, kept_max } =
        MemoryPlan::new(options, &layout, kept.is_some());
    let mut kept = kept.filter(|_| kept_max > 0);
    let states = match kept.as_mut().and_then(|kept| kept.begin(&image, &memory, kept_max)) {
        Some(states) => states.again(&image, &memory)?,
        None => InodeStates::new(&image, &memory)?,
    };
    let mut checker = Box::new(Checker {
        states,
        image,
        reporter,
        orphans: Orphans::default(),
        found: Findings::new(&layout, &memory),
        counts_settled,
        threads,
        memory,
        kept,
    });
    run(&mut checker, wants)?;
    Ok(Examined::Whole(checker))
}

/// Bytes that a repair keeps between its rounds at most: what it knows of fragmented files can be large. What isn't
/// kept is examined again.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// What each of several threads may have in hand.
pub(crate) const THREAD_BYTES: u64 = PIECES_AHEAD as u64 * PART_BYTES;

/// How the memory that the caller allows is shared.
struct MemoryPlan {
    threads: usize,
    /// For tables, and for what is kept.
    memory: Memory,
    /// What may be kept beside the largest tables.
    kept_max: u64,
}

impl MemoryPlan {
    fn new(options: &CheckOptions, layout: &Layout, keeps: bool) -> Self {
        let tables = layout.blocks_count() / 2 + u64::from(layout.inodes_count());
        let spare = options.memory_max.saturating_sub(tables);
        let threads = usize::try_from(spare / THREAD_BYTES).unwrap_or(usize::MAX);
        let threads = options.threads.min(threads).clamp(1, THREADS_MAX);
        // A thread alone examines pieces apart only if they are kept, one at a time.
        let in_hand = match threads {
            1 if keeps && spare >= 2 * PART_BYTES => PART_BYTES,
            1 => 0,
            threads => threads as u64 * THREAD_BYTES,
        };
        let kept_max = if in_hand > 0 { (spare - in_hand).min(KEPT_BYTES_MAX) } else { 0 };
        Self { threads, memory: Memory::new(options.memory_max - in_hand), kept_max }
    }
}

fn run(checker: &mut Checker<'_>, wants: impl Fn(Pass, &Report) -> bool) -> Result<(), Error> {
    superblock::check(checker);
    superblock::check_backups(checker)?;
    groups::claim(checker)?;
    orphans::load(checker)?;
    checker.reporter.step(Pass::Groups, 1, 1);
    inodes::scan(checker)?;
    inodes::check_unused(checker);
    special::check(checker)?;
    superblock::check_large_files(checker);
    orphans::check(checker);
    xattrs::check_references(checker)?;
    if wants(Pass::Duplicates, &checker.reporter.report) {
        duplicates::name_owners(checker)?;
    }
    directories::check(checker)?;
    if wants(Pass::Links, &checker.reporter.report) {
        links::check(checker)?;
        bitmaps::check(checker)?;
        quota::check(checker)?;
    }
    summarize(checker);
    Ok(())
}

fn summarize(checker: &mut Checker<'_>) {
    let layout = checker.image.layout;
    let label = checker.image.superblock.volume_name();
    let label = String::from_utf8_lossy(label).into_owned();
    let summary = &mut checker.reporter.report.summary;
    summary.label = label;
    summary.inodes_total = u64::from(layout.inodes_count());
    summary.blocks_total = layout.blocks_count();
    summary.inodes_used = layout
        .groups()
        .map(|group: GroupNumber| checker.states.used_in(group).count() as u64)
        .sum();
}
