//! Published figures, embedded: measurements of the same mechanisms by others.
//!
//! Absolute figures of another machine can't be compared with ours, but ratios between two variants
//! of a mechanism can. So each series names the policies that it stands for, and gives a rate. A
//! policy value of our own has no published figure.

use crate::policy::value_of;
use std::collections::BTreeSet;

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// With how many workers.
    pub workers: u64,
    /// As published.
    pub value: f64,
    /// Proportional to the operations per second of all workers together.
    pub rate: f64,
}

/// The figures of one variant of the mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the table.
    pub name: &'static str,
    /// The policy values that it stands for.
    pub policies: &'static [(&'static str, &'static str)],
    /// Its figures, by rising number of workers.
    pub points: Vec<Point>,
}

impl Series {
    /// The figure for a number of workers, or the only figure of the series.
    #[must_use]
    pub fn at(&self, workers: u64) -> Option<&Point> {
        match self.points.as_slice() {
            [only] => Some(only),
            points => points.iter().find(|point| point.workers == workers),
        }
    }

    fn stands_for(&self, policy: &str) -> bool {
        self.policies.iter().all(|(key, value)| value_of(policy, key) == Some(*value))
    }
}

/// The published table of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What the values are.
    pub unit: &'static str,
    /// Where and how they were measured.
    pub source: String,
    /// The variants, baseline first.
    pub series: Vec<Series>,
    /// Whether the rates may be compared with operations per second.
    pub is_rate: bool,
}

impl Published {
    /// The table of a workload, if one was published.
    #[must_use]
    pub fn of(workload: &str) -> Option<Published> {
        Some(match workload {
            "orphan" => orphan(),
            "creat-clo" => creat_clo(),
            "fallocate2" => fallocate2(),
            "inodes" => inodes(),
            "mdtest" => mdtest(),
            "extents-fragmented" => extents("A"),
            "extents-many" => extents("B"),
            _ => return None,
        })
    }

    /// The numbers of workers that the table has figures for.
    #[must_use]
    pub fn worker_counts(&self) -> Vec<u64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let counts: BTreeSet<u64> = points.map(|point| point.workers).collect();
        counts.into_iter().collect()
    }

    /// The series that a policy corresponds to.
    #[must_use]
    pub fn series_for(&self, policy: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.stands_for(policy))
    }

    /// How much faster a policy was than another, with some number of workers.
    #[must_use]
    pub fn ratio(&self, policy: &str, to: &str, workers: u64) -> Option<f64> {
        let (these, those) = (self.series_for(policy)?, self.series_for(to)?);
        Some(these.at(workers)?.rate / those.at(workers)?.rate)
    }
}

/// The policies that a workload's table compares: the published baseline first, then what was published
/// as its improvement, then ours. Everything but the mechanism that the table is about is as in
/// `scalable` for all of them.
#[must_use]
pub fn compared_policies(workload: &str) -> &'static [&'static str] {
    match workload {
        "orphan" => &[
            "orphans=list",
            "orphans=file-locked",
            "orphans=file",
            "orphans=per-core",
            "orphans=none",
        ],
        "creat-clo" => &["orphans=list", "orphans=file", "orphans=per-core"],
        "inodes" => &["inode-search=first", "inode-search=next-hint", "inode-search=per-core"],
        "fallocate2" => &[
            "group-lock=wait,block-goal=global,group-scan=linear",
            "block-goal=per-inode,group-scan=linear",
            "block-goal=per-inode,group-scan=size-ordered",
            "scalable",
        ],
        // With inodes reserved per core there is no contention, so the way an inode is claimed
        // matters only where all workers search in the same place.
        "mdtest" => {
            &["inode-search=first,inode-claim=test-then-lock", "inode-search=first", "scalable"]
        }
        "extents-fragmented" | "extents-many" => &[
            "extent-reclaim=lru-sorted",
            "extent-reclaim=lru-reclaimable",
            "extent-reclaim=round-robin",
        ],
        _ => &["baseline", "scalable"],
    }
}

/// A table as text: its comment, its columns, its rows.
struct PublishedTable {
    comment: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

impl PublishedTable {
    fn parse(text: &'static str) -> PublishedTable {
        let mut comment = Vec::new();
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix('#') {
                Some(words) => comment.push(words.trim()),
                None => lines.push(line.split(',').map(str::trim).collect::<Vec<_>>()),
            }
        }
        // The files are part of the program, and a test reads them all.
        let columns = if lines.is_empty() { Vec::new() } else { lines.remove(0) };
        PublishedTable { comment: comment.join("; "), columns, rows: lines }
    }

    /// The cell of a row in a column, as a number.
    fn number(&self, row: &[&str], column: &str) -> Option<f64> {
        let place = self.columns.iter().position(|name| *name == column)?;
        row.get(place)?.parse().ok()
    }

    /// A series: its workers from one column, its values from another.
    fn series(
        &self,
        workers: &str,
        column: &'static str,
        policies: &'static [(&'static str, &'static str)],
        rate: impl Fn(u64, f64) -> f64,
    ) -> Series {
        let points = self.rows.iter().filter_map(|row| {
            let workers = self.number(row, workers)? as u64;
            let value = self.number(row, column)?;
            Some(Point { workers, value, rate: rate(workers, value) })
        });
        Series { name: column, policies, points: points.collect() }
    }
}

fn orphan() -> Published {
    let table = PublishedTable::parse(include_str!("../seeds/orphan_stress.csv"));
    // Every process did the same amount of work.
    let rate = |workers: u64, seconds: f64| workers as f64 / seconds;
    let series = [
        ("list", &[("orphans", "list")]),
        ("locked", &[("orphans", "file-locked")]),
        ("lockless", &[("orphans", "file")]),
        ("none", &[("orphans", "none")]),
    ]
    .map(|(column, policies)| table.series("procs", column, policies, rate));
    Published { unit: "s", source: table.comment, series: series.into(), is_rate: true }
}

fn creat_clo() -> Published {
    let table = PublishedTable::parse(include_str!("../seeds/creat_clo.csv"));
    let series = [
        table.series("clients", "list", &[("orphans", "list")], |_, rate| rate),
        table.series("clients", "lockless", &[("orphans", "file")], |_, rate| rate),
    ];
    Published { unit: "ops/s", source: table.comment, series: series.into(), is_rate: true }
}

fn fallocate2() -> Published {
    let table = PublishedTable::parse(include_str!("../seeds/fallocate2.csv"));
    let rate = |workers: u64, each: f64| workers as f64 * each;
    let series = [
        ("base", &[("group-lock", "wait"), ("block-goal", "global"), ("group-scan", "linear")]),
        ("linear", &[("group-lock", "try"), ("block-goal", "per-inode"), ("group-scan", "linear")]),
        (
            "size_ordered",
            &[("group-lock", "try"), ("block-goal", "per-inode"), ("group-scan", "size-ordered")],
        ),
    ]
    .map(|(column, policies)| table.series("containers", column, policies, rate));
    Published { unit: "ops/s each", source: table.comment, series: series.into(), is_rate: true }
}

fn inodes() -> Published {
    let mut table = PublishedTable::parse(include_str!("../seeds/inodetest.csv"));
    let deleted = table.columns.iter().position(|name| *name == "deleted_millions");
    table.rows.retain(|row| deleted.and_then(|place| row.get(place)) == Some(&"0"));
    // Each process makes 20 million.
    let rate = |workers: u64, seconds: f64| workers as f64 * 20e6 / seconds;
    let series = [
        table.series("processes", "scan_create_s", &[("inode-search", "first")], rate),
        table.series("processes", "hint_create_s", &[("inode-search", "next-hint")], rate),
    ];
    Published { unit: "s", source: table.comment, series: series.into(), is_rate: true }
}

fn mdtest() -> Published {
    let table = PublishedTable::parse(include_str!("../seeds/mdtest.csv"));
    let mean = |column| {
        let values: Vec<f64> =
            table.rows.iter().filter_map(|row| table.number(row, column)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let series = |name, column, policies: &'static [_]| {
        let value = mean(column);
        // Of 48 ranks.
        Series { name, policies, points: vec![Point { workers: 48, value, rate: value }] }
    };
    let series = vec![
        series(
            "test_then_lock",
            "test_then_lock_create",
            &[("inode-search", "first"), ("inode-claim", "test-then-lock")],
        ),
        series("relock", "relock_create", &[("inode-search", "first"), ("inode-claim", "relock")]),
    ];
    Published { unit: "creates/s at 48", source: table.comment, series, is_rate: true }
}

/// The mean pass of a case, which has no axis of workers.
fn extents(case: &str) -> Published {
    let mut table = PublishedTable::parse(include_str!("../seeds/extent_status_reclaim.csv"));
    table.rows.retain(|row| row.starts_with(&[case, "mean"]));
    let jobs = if case == "A" { 100 } else { 25 };
    let series = [
        ("lru_sorted", &[("extent-reclaim", "lru-sorted")]),
        ("lru_reclaimable", &[("extent-reclaim", "lru-reclaimable")]),
        ("round_robin", &[("extent-reclaim", "round-robin")]),
    ]
    .map(|(name, policies)| {
        let values = table.rows.iter().filter_map(|row| table.number(row, name));
        let points =
            values.map(|value| Point { workers: jobs, value, rate: value.recip() }).collect();
        Series { name, policies, points }
    });
    Published {
        unit: "µs mean pass", source: table.comment, series: series.into(), is_rate: false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read_whole() {
        for (workload, series, points) in [
            ("orphan", 4, 8),
            ("creat-clo", 2, 16),
            ("fallocate2", 3, 7),
            ("inodes", 2, 2),
            ("mdtest", 2, 1),
            ("extents-fragmented", 3, 1),
            ("extents-many", 3, 1),
        ] {
            let table = Published::of(workload).unwrap();
            assert_eq!(table.series.len(), series, "{workload}");
            assert!(!table.source.is_empty());
            for series in &table.series {
                assert_eq!(series.points.len(), points, "{workload} {}", series.name);
                assert!(series.points.iter().all(|point| point.rate.is_finite()));
            }
            // Baseline and improvements in order, then our own, which has no published figure.
            let compared = compared_policies(workload);
            let published: Vec<&str> = compared
                .iter()
                .filter_map(|policy| table.series_for(policy).map(|series| series.name))
                .collect();
            let names: Vec<&str> = table.series.iter().map(|series| series.name).collect();
            assert_eq!(published, names, "{workload}");
            let ours: Vec<_> =
                compared.iter().filter(|policy| table.series_for(policy).is_none()).collect();
            let is_ours = |policy: &str| policy == "scalable" || policy.ends_with("=per-core");
            assert!(ours.iter().all(|policy| is_ours(policy)), "{workload}: {ours:?}");
            assert_eq!(ours.is_empty(), workload.starts_with("extents"), "{workload}");
        }
        assert_eq!(Published::of("fallocate2").unwrap().worker_counts(), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(Published::of("append"), None);
    }

    #[test]
    fn ratios_are_those_of_the_publications() {
        let near = |ratio: Option<f64>, expected: f64| {
            let ratio = ratio.unwrap();
            assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} isn't {expected}");
        };
        let orphan = Published::of("orphan").unwrap();
        near(orphan.ratio("orphans=file", "baseline", 128), 206.504 / 70.9504);
        near(orphan.ratio("orphans=none", "orphans=file", 1), 0.9394 / 0.8912);
        assert_eq!(orphan.ratio("orphans=file", "baseline", 3), None);
        assert_eq!(orphan.ratio("scalable", "baseline", 128), None, "ours was never published");
        let fallocate2 = Published::of("fallocate2").unwrap();
        let ordered = "block-goal=per-inode,group-scan=size-ordered";
        near(fallocate2.ratio(ordered, "baseline", 2), 133_305.0 / 70_665.0);
        let linear = "block-goal=per-inode,group-scan=linear";
        near(fallocate2.ratio(linear, "baseline", 64), 23_280.0 / 3588.0);
        assert_eq!(fallocate2.ratio("scalable", "baseline", 64), None);
        let inodes = Published::of("inodes").unwrap();
        near(inodes.ratio("inode-search=next-hint", "baseline", 3), 1221.914 / 381.612);
        let mdtest = Published::of("mdtest").unwrap();
        near(mdtest.ratio("inode-search=first", "baseline", 2), 691_866.8 / 79_941.6);
    }
}
