//! Images of every layout, at every stage of a volume's life.

use drystone_blockdev::{FileDevice, OpenMode};
use drystone_nilfs2_check::{
    FileIssue, Nilfs2CheckOptions, Nilfs2CheckReport, Nilfs2Issue, Nilfs2Problem, check,
};
use drystone_testkit::environment::number;
use drystone_testkit::judges::Scratch;
use drystone_testkit::nilfs2::{LAYOUTS, Nilfs2Guest, Nilfs2Layout, Nilfs2View, mkfs_nilfs2};
use std::path::{Path, PathBuf};

/// What the kernel does to an image, one script after the other; each ends with an unmount, but for those
/// that cut the power.
const LIFE: [&str; 5] = [
    "populate SEED kinds sparse churn=5 large",
    "gc 3; populate SEED delete churn=4; powercut",
    "(populate SEED churn=40 large > /dev/null 2>&1 &) ; sleep 1.5; powercut",
    "gc 2; chcp cp /dev/ubda $(lscp -s /dev/ubda | awk 'NR == 2 { print $1 }'); gc 2",
    "(populate SEED churn=40 > /dev/null 2>&1 &) ; (gc 5 > /dev/null 2>&1 &) ; sleep 2; powercut",
];

fn report(image: &Path) -> Nilfs2CheckReport {
    let device = FileDevice::open(image, OpenMode::ReadOnly).unwrap();
    check(&device, &Nilfs2CheckOptions::default()).unwrap()
}

fn expect_clean(image: &Path, what: &str) -> Nilfs2CheckReport {
    let report = report(image);
    let problems = report.problems.iter().take(30).map(|problem| format!("  {problem}\n"));
    let problems: String = problems.collect();
    assert!(report.is_clean(), "{what}: {} errors\n{problems}", report.errors);
    report
}

/// Volumes of a layout, from the first seed on.
fn live(layout: &Nilfs2Layout) {
    let first = number("DRYSTONE_SEED").unwrap_or(1);
    let lives = number("DRYSTONE_LIVES").unwrap_or(1);
    (first..first + lives).for_each(|seed| live_once(layout, seed));
}

fn live_once(layout: &Nilfs2Layout, seed: u64) {
    let scratch = Scratch::new("nilfs2-life").unwrap();
    let image: PathBuf = scratch.join("image");
    if !mkfs_nilfs2(&image, layout).unwrap() {
        return;
    }
    expect_clean(&image, "a new volume");
    for (stage, script) in (0..).zip(LIFE) {
        let script = script.replace("SEED", &(seed + stage).to_string());
        let Some(result) = Nilfs2Guest::new(&image).run(&script).unwrap() else { return };
        result.expect_clean(&script);
        let what = format!("{layout:?}: DRYSTONE_SEED={seed}: after {script:?}");
        expect_clean(&image, &what);
    }
    // What a mount has recovered is what was checked, and counts as the kernel counts.
    let before = expect_clean(&image, "the last cut of power").summary;
    // The trees of the snapshots, of which there may be many, would take most of the time.
    let shown = Nilfs2Guest::new(&image).run("view_current").unwrap().unwrap();
    let view = Nilfs2View::parse(&shown.expect_clean("the last view")).unwrap();
    let snapshots = view.checkpoints.iter().filter(|line| line.is_snapshot).count();
    let report = expect_clean(&image, "the last recovery");
    let after = &report.summary;
    assert_eq!(before.snapshots, after.snapshots);
    assert_eq!(after.snapshots, snapshots as u64);
    assert_eq!(after.segments_total, view.segments.len() as u64);
    let newest = view.checkpoints.iter().rev().find(|line| line.number <= after.newest_checkpoint);
    assert_eq!(newest.unwrap().number, after.newest_checkpoint);
    assert_eq!(newest.unwrap().inodes, after.inodes);
    // Linux keeps what was unlinked while the power was cut.
    let is_unlinked = |problem: &&Nilfs2Problem| {
        matches!(problem.issue, Nilfs2Issue::File { issue: FileIssue::Unlinked, .. })
            && problem.checkpoint.is_some_and(|number| number.0 == after.newest_checkpoint)
    };
    let unlinked = report.problems.iter().filter(is_unlinked).count();
    assert_eq!(after.inodes as usize, distinct_inodes(&view) + unlinked);
}

fn distinct_inodes(view: &Nilfs2View) -> usize {
    let numbers = view.current.entries.values().map(|facts| &facts["inode"]);
    numbers.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
#[ignore = "long: ./dev stress runs it"]
fn small_blocks_and_segments() {
    live(&LAYOUTS[0]);
}

#[test]
fn small_blocks() {
    live(&LAYOUTS[1]);
}

#[test]
fn small_segments() {
    live(&LAYOUTS[2]);
}

#[test]
#[ignore = "long: ./dev stress runs it"]
fn large_blocks_and_segments() {
    live(&LAYOUTS[3]);
}
