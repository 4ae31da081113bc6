//! What was saved of the images of each set, by us and by e2fsck.

use crate::patient::{Saved, Treated, Verdict};
use std::collections::BTreeMap;
use std::fmt;

/// Sums of one set.
#[derive(Default)]
struct Row {
    images: u64,
    /// Images that neither could make clean.
    left: u64,
    /// Images that only e2fsck, or only ours, made clean.
    unrepaired: [u64; 2],
    less: u64,
    more: u64,
    sound: Saved,
    ours: Saved,
    theirs: Saved,
}

/// A row for each set.
#[derive(Default)]
pub struct Table(BTreeMap<&'static str, Row>);

impl Table {
    pub fn add(&mut self, set: &'static str, treated: &Treated) {
        let row = self.0.entry(set).or_default();
        row.images += 1;
        match (treated.ours.is_some(), treated.theirs.is_some()) {
            (false, false) => row.left += 1,
            (false, true) => row.unrepaired[0] += 1,
            (true, false) => row.unrepaired[1] += 1,
            (true, true) => {}
        }
        row.less += u64::from(treated.is_less());
        let is_failed = matches!(treated.verdict, Verdict::Failed(_));
        row.more += u64::from(!is_failed && treated.is_more());
        row.sound.add(&treated.sound);
        row.ours.add(&treated.ours.clone().unwrap_or_default());
        row.theirs.add(&treated.theirs.clone().unwrap_or_default());
    }

    /// Of how many images ours saved less.
    pub fn less(&self) -> u64 {
        self.0.values().map(|row| row.less).sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "| set | images | left by both, by us, by e2fsck | files: ours, e2fsck | names: ours, e2fsck \
             | bytes: ours, e2fsck | untouched lost: ours, e2fsck | less, more than e2fsck |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |"
        )?;
        let mut sum = Row::default();
        for (name, row) in &self.0 {
            write_row(formatter, name, row)?;
            sum.images += row.images;
            sum.left += row.left;
            sum.less += row.less;
            sum.more += row.more;
            for (sum, count) in sum.unrepaired.iter_mut().zip(row.unrepaired) {
                *sum += count;
            }
            sum.sound.add(&row.sound);
            sum.ours.add(&row.ours);
            sum.theirs.add(&row.theirs);
        }
        write_row(formatter, "all", &sum)
    }
}

fn write_row(formatter: &mut fmt::Formatter<'_>, name: &str, row: &Row) -> fmt::Result {
    let share = |part: u64, whole: u64| {
        let hundredths = part * 10_000 / whole.max(1);
        format!("{}.{:02} %", hundredths / 100, hundredths % 100)
    };
    let Row { images, left, unrepaired: [ours, theirs], less, more, .. } = row;
    writeln!(
        formatter,
        "| {name} | {images} | {left}, {ours}, {theirs} | {}, {} | {}, {} | {}, {} | {}, {} \
         | {less}, {more} |",
        share(row.ours.files, row.sound.files),
        share(row.theirs.files, row.sound.files),
        share(row.ours.names, row.sound.names),
        share(row.theirs.names, row.sound.names),
        share(row.ours.bytes, row.sound.bytes),
        share(row.theirs.bytes, row.sound.bytes),
        row.ours.untouched_lost,
        row.theirs.untouched_lost,
    )
}

/// The most memory that this process has had resident.
pub fn resident_max_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
