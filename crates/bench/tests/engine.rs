//! Every workload in its smallest form on the engine.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

use drystone_bench::machine::Machine;
use drystone_bench::policy::PolicyChoice;
use drystone_bench::results::Results;
use drystone_bench::runner::{self, Plan, Watch};
use drystone_bench::target::{EngineTarget, ImageMedium, Nilfs2Target, Target};
use drystone_bench::workload::{self, Sizes, Workload};
use drystone_sync::atomic::{AtomicBool, Ordering};

/// Fails the test if a combination fails.
struct Strict;

impl Watch for Strict {
    fn running(&self, _: &str) {}

    fn finished(&self, _: &Results, _: &dyn Workload) {}

    fn failed(&self, what: &str, error: &anyhow::Error) {
        panic!("{what}: {error:#}");
    }
}

fn plan(words: &[&str], policies: &[&str], rounds: u32) -> Plan {
    let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
    Plan {
        workloads: workload::select(&words).unwrap(),
        policies: policies.iter().map(|text| PolicyChoice::parse(text).unwrap()).collect(),
        workers: vec![2],
        sizes: Sizes::tiny(),
        rounds,
        warms_up: true,
        verify: true,
        machine: Machine::this(),
    }
}

fn engine() -> Vec<Box<dyn Target>> {
    vec![Box::new(EngineTarget::new(ImageMedium::Memory, true))]
}

#[test]
fn nilfs2_runs_what_needs_no_fallocate() {
    let stop = AtomicBool::new(false);
    let policies = ["inode-search=first", "inode-search=next-hint", "inode-search=per-core"];
    let plan = plan(&["inodes", "mdtest", "stat", "orphan"], &policies, 1);
    let mut targets: Vec<Box<dyn Target>> = vec![Box::new(Nilfs2Target::new(ImageMedium::Memory))];
    let results = runner::run(&plan, &mut targets, &Strict, &stop);
    assert_eq!(results.rows.len(), 12);
    for row in &results.rows {
        assert_eq!(row.clean, Some(true), "{} {}", row.workload, row.policy);
        assert!(row.operations > 0 && row.counters["locks"].is_object(), "{}", row.workload);
    }
    let table = drystone_bench::table::text(&results, &*workload::find("inodes").unwrap());
    assert!(table.contains("published"), "{table}");
}

#[test]
fn every_workload_runs_and_leaves_a_clean_image() {
    let stop = AtomicBool::new(false);
    let results = runner::run(&plan(&["all"], &["scalable"], 1), &mut engine(), &Strict, &stop);
    assert_eq!(results.rows.len(), workload::all().len());
    for row in &results.rows {
        let name = &row.workload;
        assert_eq!(row.clean, Some(true), "{name}");
        assert!(row.operations > 0 && row.seconds > 0.0, "{name}");
        assert!(row.figures["cpu_ns_per_operation"] > 0.0, "{name}");
        assert!(row.counters["locks"].is_object(), "{name}");
        assert!(row.counters["journal"]["handles_started"].is_u64(), "{name}");
    }
    let figure = |workload: &str, name: &str| {
        let row = results.rows.iter().find(|row| row.workload == workload).unwrap();
        row.figures[name]
    };
    assert!(figure("mdtest", "removes_per_second") > 0.0);
    assert!(figure("inodes", "find_seconds") > 0.0);
    assert!(figure("append", "extents_per_file") >= 1.0);
}

#[test]
fn policies_take_turns_and_results_are_what_was_promised() {
    let stop = AtomicBool::new(false);
    let plan = plan(&["orphan", "creat-clo"], &["baseline", "scalable"], 3);
    let results = runner::run(&plan, &mut engine(), &Strict, &stop);
    let value = serde_json::to_value(&results).unwrap();
    for key in ["processor", "cores", "memory_mib", "kernel"] {
        assert!(!value["machine"][key].is_null(), "{key}");
    }
    let rows = value["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["baseline", "scalable", "baseline", "scalable"]);
    for row in rows {
        for key in ["workload", "target", "policy"] {
            assert!(row[key].is_string(), "{key}: {row}");
        }
        for key in ["workers", "operations"] {
            assert!(row[key].is_u64(), "{key}: {row}");
        }
        for key in ["seconds", "operations_per_second"] {
            assert!(row[key].is_f64(), "{key}: {row}");
        }
        assert_eq!(row["rounds"].as_array().unwrap().len(), 3);
        assert!(row["counters"].is_object() && row["figures"].is_object());
        assert_eq!(row["clean"], true);
    }
    let read: Results = serde_json::from_value(value).unwrap();
    assert_eq!(read, results);
}

#[test]
fn an_image_in_a_file_is_made_and_one_that_is_there_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.img");
    let stop = AtomicBool::new(false);
    for _ in 0..2 {
        let mut targets: Vec<Box<dyn Target>> =
            vec![Box::new(EngineTarget::new(ImageMedium::File(path.clone()), false))];
        let results =
            runner::run(&plan(&["mdtest"], &["scalable"], 1), &mut targets, &Strict, &stop);
        assert_eq!(results.rows[0].clean, Some(true));
    }
}

#[test]
fn stopping_keeps_what_there_is() {
    struct StopAfter<'s>(&'s AtomicBool);
    impl Watch for StopAfter<'_> {
        fn running(&self, what: &str) {
            if what.ends_with("round 2 of 5") {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        fn finished(&self, _: &Results, _: &dyn Workload) {}
        fn failed(&self, what: &str, _: &anyhow::Error) {
            panic!("{what}");
        }
    }
    let stop = AtomicBool::new(false);
    let plan = plan(&["orphan", "mdtest"], &["scalable"], 5);
    let results = runner::run(&plan, &mut engine(), &StopAfter(&stop), &stop);
    assert_eq!(results.rows.len(), 1);
    assert_eq!(results.rows[0].rounds.len(), 1);
}
