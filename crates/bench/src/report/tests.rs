//! The page has its parts and is well-formed.

use super::*;
use crate::machine::Machine;
use crate::results::Subject;
use crate::target::RunOutcome;
use serde_json::json;

fn row(policy: &str, workers: u64, seconds: f64) -> Row {
    let subject = Subject {
        workload: "orphan".into(),
        target: "engine".into(),
        policy: policy.into(),
        workers,
        unit: "truncates".into(),
    };
    let outcome = RunOutcome {
        operations: 1000,
        seconds,
        counters: json!({"locks": {"orphan list": {
            "takes": 2000, "contended": 100, "wait_ns": (seconds * 1e6) as u64,
        }}}),
        clean: Some(true),
        ..RunOutcome::default()
    };
    Row::new(&subject, &[outcome], 2).unwrap()
}

#[test]
fn a_page_has_tables_curves_and_bars() {
    let rows = vec![
        row("orphans=list", 1, 1.0),
        row("a<b&c", 1, 0.9),
        row("orphans=list", 2, 1.5),
        row("a<b&c", 2, 1.0),
    ];
    let page = page(&Results { machine: Machine::this(), rows });
    assert!(page.contains("published: list") && page.contains("stroke-dasharray"), "{page}");
    assert!(page.contains("a&lt;b&amp;c") && !page.contains("a<b"));
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("orphan list: "));
    for bad in ["NaN", "inf", "http:", "https:"] {
        assert!(!page.contains(bad), "{bad}: {page}");
    }
}

#[test]
fn a_page_of_nothing_is_a_page() {
    let simulated = Machine { kernel: String::new(), memory_mib: 0, ..Machine::this() };
    let page_of_simulation = page(&Results { machine: simulated, rows: Vec::new() });
    assert!(!page_of_simulation.contains("GiB, Linux"), "{page_of_simulation}");
    let page = page(&Results { machine: Machine::this(), rows: Vec::new() });
    assert!(page.contains("GiB, Linux"), "{page}");
    assert!(page.contains("</html>"));
}

#[test]
fn writing_makes_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let results = Results { machine: Machine::this(), rows: vec![row("baseline", 1, 1.0)] };
    let path = write(&results, &folder.path().join("a/b")).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("<td>"));
    let picture = std::fs::read_to_string(path.with_file_name("orphan.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("published: list"), "{picture}");
}
