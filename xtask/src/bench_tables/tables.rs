//! What the tables are about: variants, sizes and targets.

/// What is compared with what.
#[derive(Clone, Copy)]
pub(super) enum Measure {
    /// Operations per second.
    Rate,
    /// A figure of which more is better.
    Gain(&'static str),
    /// A figure of which less is better.
    Cost(&'static str),
}

impl Measure {
    pub(super) fn name(self) -> String {
        match self {
            Measure::Rate => "operations per second".to_string(),
            Measure::Gain(name) | Measure::Cost(name) => name.replace('_', " "),
        }
    }
}

/// A ratio, and its target: how much better the second must be than the first.
pub(super) struct Comparison {
    pub(super) workload: &'static str,
    pub(super) measure: Measure,
    pub(super) is: &'static str,
    pub(super) than: &'static str,
    pub(super) target: Option<f64>,
}

/// Whose variant of the mechanism a policy is.
#[derive(Clone, Copy)]
pub(super) enum Variant {
    Kernel,
    Baseline,
    Published,
    Ours,
    /// Without the mechanism: what it could cost at best.
    Bound,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Kernel => "kernel ext4",
            Variant::Baseline => "published baseline",
            Variant::Published => "published improvement",
            Variant::Ours => "ours",
            Variant::Bound => "bound",
        }
    }
}

/// One table.
pub(super) struct Table {
    pub(super) name: &'static str,
    /// What `drystone bench` is told, beside the policies. Where many workers take turns on few cores
    /// each does less.
    pub(super) runs: &'static [&'static str],
    pub(super) rounds: u32,
    pub(super) variants: &'static [(Variant, &'static str)],
    pub(super) shown: &'static [(&'static str, Measure)],
    pub(super) comparisons: &'static [Comparison],
}

pub(super) const KERNEL: &str = "kernel";

const fn compare(
    workload: &'static str,
    measure: Measure,
    is: &'static str,
    than: &'static str,
    target: f64,
) -> Comparison {
    Comparison { workload, measure, is, than, target: Some(target) }
}

/// A ratio that no target was set for.
const fn beside(workload: &'static str, is: &'static str, than: &'static str) -> Comparison {
    Comparison { workload, measure: Measure::Rate, is, than, target: None }
}

const ROUNDS: u32 = 5;
const REMOVES: Measure = Measure::Gain("removes_per_second");
const CPU: Measure = Measure::Cost("cpu_ns_per_operation");
const FIND: Measure = Measure::Cost("find_seconds");
const MEAN_PASS: Measure = Measure::Cost("mean_pass_us");
const LONGEST_PASS: Measure = Measure::Cost("longest_pass_us");

const GLOBAL_GOAL: &str = "group-lock=wait,block-goal=global,group-scan=linear";
const LINEAR: &str = "block-goal=per-inode,group-scan=linear";
const SIZE_ORDERED: &str = "block-goal=per-inode,group-scan=size-ordered";
const TEST_THEN_LOCK: &str = "inode-search=first,inode-claim=test-then-lock";
const RELOCK: &str = "inode-search=first";
const SORTED: &str = "extent-reclaim=lru-sorted";
const RECLAIMABLE: &str = "extent-reclaim=lru-reclaimable";
const RING: &str = "extent-reclaim=round-robin";

pub(super) const TABLES: &[Table] = &[
    Table {
        name: "kernel",
        runs: &["mdtest orphan fallocate2 stat --procs 1,2"],
        rounds: ROUNDS,
        variants: &[(Variant::Kernel, KERNEL), (Variant::Ours, "scalable")],
        shown: &[
            ("mdtest", Measure::Rate),
            ("mdtest", REMOVES),
            ("orphan", Measure::Rate),
            ("fallocate2", Measure::Rate),
            ("stat", Measure::Rate),
            ("mdtest", CPU),
            ("orphan", CPU),
            ("fallocate2", CPU),
            ("stat", CPU),
        ],
        comparisons: &[
            compare("mdtest", Measure::Rate, "scalable", KERNEL, 4.0),
            compare("mdtest", REMOVES, "scalable", KERNEL, 3.0),
            compare("orphan", Measure::Rate, "scalable", KERNEL, 3.0),
            compare("fallocate2", Measure::Rate, "scalable", KERNEL, 3.0),
            compare("stat", Measure::Rate, "scalable", KERNEL, 3.0),
        ],
    },
    Table {
        name: "orphan",
        runs: &["orphan --procs 1,2", "orphan --procs 8,64 --ops 60000"],
        rounds: ROUNDS,
        variants: &[
            (Variant::Baseline, "orphans=list"),
            (Variant::Published, "orphans=file-locked"),
            (Variant::Published, "orphans=file"),
            (Variant::Ours, "orphans=per-core"),
            (Variant::Bound, "orphans=none"),
        ],
        shown: &[("orphan", Measure::Rate)],
        comparisons: &[
            compare("orphan", Measure::Rate, "orphans=file-locked", "orphans=list", 1.0),
            compare("orphan", Measure::Rate, "orphans=file", "orphans=list", 1.0),
            compare("orphan", Measure::Rate, "orphans=file", "orphans=none", 0.95),
            compare("orphan", Measure::Rate, "orphans=per-core", "orphans=none", 0.98),
            beside("orphan", "orphans=per-core", "orphans=list"),
        ],
    },
    Table {
        name: "creat-clo",
        runs: &["creat-clo --procs 1,2", "creat-clo --procs 8,31 --ops 30000"],
        rounds: ROUNDS,
        variants: &[
            (Variant::Baseline, "orphans=list"),
            (Variant::Published, "orphans=file"),
            (Variant::Ours, "orphans=per-core"),
        ],
        shown: &[("creat-clo", Measure::Rate)],
        comparisons: &[
            compare("creat-clo", Measure::Rate, "orphans=file", "orphans=list", 1.0),
            compare("creat-clo", Measure::Rate, "orphans=per-core", "orphans=list", 1.0),
        ],
    },
    Table {
        name: "fallocate2",
        runs: &["fallocate2 --procs 1,2", "fallocate2 --procs 8,64 --ops 51200"],
        rounds: ROUNDS,
        variants: &[
            (Variant::Baseline, GLOBAL_GOAL),
            (Variant::Published, LINEAR),
            (Variant::Published, SIZE_ORDERED),
            (Variant::Ours, "scalable"),
        ],
        shown: &[("fallocate2", Measure::Rate)],
        comparisons: &[
            compare("fallocate2", Measure::Rate, LINEAR, GLOBAL_GOAL, 1.0),
            compare("fallocate2", Measure::Rate, SIZE_ORDERED, GLOBAL_GOAL, 1.0),
            compare("fallocate2", Measure::Rate, SIZE_ORDERED, LINEAR, 1.0),
            compare("fallocate2", Measure::Rate, "scalable", GLOBAL_GOAL, 0.98),
            beside("fallocate2", "scalable", SIZE_ORDERED),
        ],
    },
    Table {
        name: "mdtest",
        runs: &["mdtest --procs 1,2,8"],
        rounds: ROUNDS,
        variants: &[
            (Variant::Baseline, TEST_THEN_LOCK),
            (Variant::Published, RELOCK),
            (Variant::Ours, "scalable"),
        ],
        shown: &[("mdtest", Measure::Rate), ("mdtest", REMOVES)],
        comparisons: &[
            compare("mdtest", Measure::Rate, RELOCK, TEST_THEN_LOCK, 1.0),
            compare("mdtest", Measure::Rate, "scalable", TEST_THEN_LOCK, 1.0),
            compare("mdtest", REMOVES, RELOCK, TEST_THEN_LOCK, 0.9),
            compare("mdtest", REMOVES, "scalable", TEST_THEN_LOCK, 0.9),
        ],
    },
    Table {
        name: "inodes",
        runs: &["inodes --roots 1 --dirs 200 --files 10000 --procs 1,3"],
        rounds: 2,
        variants: &[
            (Variant::Baseline, "inode-search=first"),
            (Variant::Published, "inode-search=next-hint"),
            (Variant::Ours, "inode-search=per-core"),
        ],
        shown: &[("inodes", Measure::Rate), ("inodes", FIND)],
        comparisons: &[
            compare("inodes", Measure::Rate, "inode-search=next-hint", "inode-search=first", 1.4),
            compare("inodes", Measure::Rate, "inode-search=per-core", "inode-search=first", 1.4),
            compare("inodes", FIND, "inode-search=next-hint", "inode-search=first", 0.9),
        ],
    },
    Table {
        name: "extents",
        runs: &["extents-fragmented extents-many --procs 1,2"],
        rounds: 3,
        variants: &[
            (Variant::Baseline, SORTED),
            (Variant::Published, RECLAIMABLE),
            (Variant::Published, RING),
        ],
        shown: &[
            ("extents-fragmented", MEAN_PASS),
            ("extents-fragmented", LONGEST_PASS),
            ("extents-many", MEAN_PASS),
            ("extents-many", LONGEST_PASS),
        ],
        comparisons: &[
            compare("extents-fragmented", MEAN_PASS, RECLAIMABLE, SORTED, 20.0),
            compare("extents-fragmented", MEAN_PASS, RING, SORTED, 20.0),
            compare("extents-fragmented", LONGEST_PASS, RING, SORTED, 20.0),
            compare("extents-many", MEAN_PASS, RECLAIMABLE, SORTED, 1.25),
            compare("extents-many", MEAN_PASS, RING, SORTED, 10.0),
        ],
    },
];

impl Table {
    pub(super) fn needs_kernel(&self) -> bool {
        self.variants.iter().any(|(variant, _)| matches!(variant, Variant::Kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_name_policies_that_their_tables_run() {
        for table in TABLES {
            let words: Vec<&str> =
                table.runs.iter().flat_map(|run| run.split_whitespace()).collect();
            let shown = table.shown.iter().map(|(workload, _)| *workload);
            for workload in shown.chain(table.comparisons.iter().map(|ratio| ratio.workload)) {
                assert!(words.contains(&workload), "{}: {workload}", table.name);
            }
            for name in table.comparisons.iter().flat_map(|ratio| [ratio.is, ratio.than]) {
                let is_run = table.variants.iter().any(|(_, policy)| *policy == name);
                assert!(is_run, "{}: {name}", table.name);
            }
        }
    }

    /// What the tables are for: the published baseline, what was published, and ours beside it, each
    /// with the same work elsewhere.
    #[test]
    fn tables_show_the_baseline_what_was_published_and_ours() {
        for table in TABLES.iter().filter(|table| !table.needs_kernel()) {
            let count = |wanted: &str| {
                table.variants.iter().filter(|(variant, _)| variant.name() == wanted).count()
            };
            assert_eq!(count("published baseline"), 1, "{}", table.name);
            assert!(matches!(table.variants[0].0, Variant::Baseline), "{}", table.name);
            assert!(count("published improvement") >= 1, "{}", table.name);
            // The ring is the published variant and the one that `scalable` has.
            assert_eq!(count("ours"), usize::from(table.name != "extents"), "{}", table.name);
            for (_, policy) in table.variants {
                assert!(!policy.contains("baseline"), "{}: differs elsewhere", table.name);
            }
        }
    }
}
