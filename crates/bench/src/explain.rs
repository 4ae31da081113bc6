//! The counters that explain a row, as a line or a bar.

use crate::counters::number;
use crate::results::Row;
use serde_json::Value;

/// Classes of locks that are shown in a line.
const CLASSES_SHOWN: usize = 4;

/// One lock class in the median round.
#[derive(Clone, Debug, PartialEq)]
pub struct LockUse {
    /// The class.
    pub class: String,
    /// Takes per operation.
    pub takes: f64,
    /// The part of the takes that waited.
    pub contended: f64,
    /// Nanoseconds that an operation waited on average.
    pub wait_ns: f64,
}

/// The locks of a row, longest wait first, then most taken.
pub fn locks(row: &Row) -> Vec<LockUse> {
    let operations = row.operations.max(1) as f64;
    let Some(Value::Object(classes)) = row.counters.get("locks") else { return Vec::new() };
    let mut locks: Vec<LockUse> = classes
        .iter()
        .map(|(class, counts)| {
            let takes = number(counts, &["takes"]);
            LockUse {
                class: class.clone(),
                takes: takes / operations,
                contended: number(counts, &["contended"]) / takes.max(1.0),
                wait_ns: number(counts, &["wait_ns"]) / operations,
            }
        })
        .collect();
    locks.sort_by(|one, other| {
        other.wait_ns.total_cmp(&one.wait_ns).then(other.takes.total_cmp(&one.takes))
    });
    locks
}

/// Lines that explain a row: locks, journal, and whatever else the engine counts.
pub fn lines(row: &Row) -> Vec<String> {
    let operations = row.operations.max(1) as f64;
    let mut lines = Vec::new();
    let mut taken = locks(row);
    // Locks that cost nothing explain nothing, except those of groups, which the tables are about.
    let is_telling = |lock: &LockUse| lock.wait_ns >= 1.0 || lock.class == "group";
    taken.retain(is_telling);
    for lock in taken.iter().take(CLASSES_SHOWN) {
        lines.push(format!(
            "lock '{}': {:.2} takes/op, {:.2} % contended, {:.0} ns waited/op",
            lock.class,
            lock.takes,
            100.0 * lock.contended,
            lock.wait_ns
        ));
    }
    let journal = |name| number(&row.counters, &["journal", name]);
    if journal("handles_started") > 0.0 {
        lines.push(format!(
            "journal: {:.2} handles/op, {:.2} write accesses/op, {:.0} commits of {:.0} blocks, {:.0} \
             starts waited",
            journal("handles_started") / operations,
            journal("write_accesses") / operations,
            journal("commits"),
            journal("committed_blocks") / journal("commits").max(1.0),
            journal("full_waits") + journal("credit_waits"),
        ));
    }
    let Value::Object(parts) = &row.counters else { return lines };
    for (part, counts) in parts {
        if matches!(part.as_str(), "locks" | "journal" | "cache" | "places") {
            continue;
        }
        let mut words = Vec::new();
        flatten(counts, "", &mut words);
        if !words.is_empty() {
            lines.push(format!("{}: {}", part.replace('_', " "), words.join(", ")));
        }
    }
    lines
}

/// Every number that isn't 0, with its name.
fn flatten(value: &Value, name: &str, words: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (inner, value) in members {
                let spaced = inner.replace('_', " ");
                let name = if name.is_empty() { spaced } else { format!("{name} {spaced}") };
                flatten(value, &name, words);
            }
        }
        Value::Array(values) => {
            let is_all_zero = values.iter().all(|value| value.as_f64() == Some(0.0));
            if !is_all_zero {
                let numbers: Vec<String> = values.iter().map(Value::to_string).collect();
                words.push(format!("{name} {}", numbers.join("/")));
            }
        }
        Value::Number(number) if number.as_f64() != Some(0.0) => {
            words.push(format!("{name} {number}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Row, Subject};
    use crate::target::RunOutcome;
    use serde_json::json;

    #[test]
    fn lines_name_what_was_waited_for_and_all_new_parts() {
        let outcome = RunOutcome {
            operations: 100,
            seconds: 1.0,
            counters: json!({
                "locks": {
                    "group": {"takes": 200, "contended": 0, "wait_ns": 0},
                    "orphan list": {"takes": 100, "contended": 50, "wait_ns": 5000},
                    "file": {"takes": 900, "contended": 0, "wait_ns": 0},
                },
                "journal": {"handles_started": 100, "write_accesses": 300, "commits": 0},
                "allocator": {"criteria": [5, 0], "groups": {"tried": 7, "skipped": 0}},
            }),
            ..RunOutcome::default()
        };
        let subject = Subject {
            workload: "orphan".into(),
            target: "engine".into(),
            policy: "baseline".into(),
            workers: 1,
            unit: "truncates".into(),
        };
        let row = Row::new(&subject, &[outcome], 2).unwrap();
        assert_eq!(
            lines(&row),
            [
                "lock 'orphan list': 1.00 takes/op, 50.00 % contended, 50 ns waited/op",
                "lock 'group': 2.00 takes/op, 0.00 % contended, 0 ns waited/op",
                "journal: 1.00 handles/op, 3.00 write accesses/op, 0 commits of 0 blocks, 0 starts \
                 waited",
                "allocator: criteria 5/0, groups tried 7",
            ]
        );
    }
}
