//! The engine's counters for a phase: the difference of two readings, as JSON.
//!
//! The shape is `{"locks": {"CLASS": {"takes", "contended", "wait_ns"}}, "journal": {…}, …}`: the
//! engine's statistics with all their fields, so that new counters appear here by themselves.

use drystone_ext4::Ext4;
use drystone_sync::{ClassStatistics, lock_statistics, statistics_between};
use serde_json::{Map, Value, json};

/// A reading.
pub struct Snapshot {
    locks: Vec<ClassStatistics>,
    rest: Value,
}

impl Snapshot {
    /// Reads all counters of a mount.
    pub fn take(file_system: &Ext4) -> Snapshot {
        let statistics = file_system.engine_statistics();
        let locks = statistics.locks.clone();
        // Only numbers and names, which JSON can hold.
        let mut rest = serde_json::to_value(statistics).unwrap_or(Value::Null);
        if let Value::Object(parts) = &mut rest {
            parts.remove("locks");
            #[cfg(sim)]
            parts.insert("places".into(), places());
        }
        Snapshot { locks, rest }
    }

    /// Reads the counters of locks alone.
    pub fn of_locks() -> Snapshot {
        Snapshot { locks: lock_statistics(), rest: json!({}) }
    }

    /// The difference between this reading and a later one.
    pub fn until(&self, later: &Snapshot) -> Value {
        let mut difference = difference(&self.rest, &later.rest, "");
        let locks: Map<String, Value> = statistics_between(&self.locks, &later.locks)
            .into_iter()
            .map(|class| {
                let counts = json!({
                    "takes": class.takes,
                    "contended": class.contended,
                    "wait_ns": class.wait_ns,
                });
                (class.name.to_string(), counts)
            })
            .collect();
        if let Value::Object(parts) = &mut difference {
            parts.insert("locks".into(), Value::Object(locks));
        }
        difference
    }
}

/// The costs of places in the source, as `{"THREAD": {"LOCK CLASS": {"FILE:LINE": {…}}}}`.
#[cfg(sim)]
fn places() -> Value {
    let mut places = json!({});
    for place in drystone_sync::sim::costs() {
        let (source, costs) = (format!("{}:{}", place.file, place.line), place.costs);
        places[place.thread][place.class][source] = json!({
            "transfers": costs.transfers,
            "transfer_ns": costs.transfer_ps / 1000,
            "queue_ns": costs.queue_ps / 1000,
            "blocked_ns": costs.blocked_ps / 1000,
        });
    }
    places
}

/// Subtracts every number that is a count.
fn difference(earlier: &Value, later: &Value, name: &str) -> Value {
    match (earlier, later) {
        (Value::Object(earlier), Value::Object(later)) => Value::Object(
            later
                .iter()
                .map(|(name, value)| {
                    let before = earlier.get(name).unwrap_or(&Value::Null);
                    (name.clone(), difference(before, value, name))
                })
                .collect(),
        ),
        (Value::Array(earlier), Value::Array(later)) => Value::Array(
            later
                .iter()
                .enumerate()
                .map(|(place, value)| {
                    difference(earlier.get(place).unwrap_or(&Value::Null), value, name)
                })
                .collect(),
        ),
        (Value::Number(earlier), Value::Number(later)) if is_count(name) => {
            let (Some(earlier), Some(later)) = (earlier.as_u64(), later.as_u64()) else {
                return Value::Number(later.clone());
            };
            json!(later.saturating_sub(earlier))
        }
        (_, later) => later.clone(),
    }
}

/// Extremes, means and current values are taken from the later reading.
fn is_count(name: &str) -> bool {
    const NO_COUNTS: [&str; 7] =
        ["longest", "largest", "mean", "cached", "budget", "droppable", "held"];
    !NO_COUNTS.iter().any(|word| name.starts_with(word))
}

/// A number in counters, by the names on the way to it; 0 if there is none.
pub fn number(counters: &Value, path: &[&str]) -> f64 {
    let mut here = counters;
    for name in path {
        here = &here[*name];
    }
    here.as_f64().unwrap_or(0.0)
}

/// The first number of a name, wherever it is in the counters.
pub fn find_number(counters: &Value, name: &str) -> Option<f64> {
    let Value::Object(members) = counters else { return None };
    let here = members.get(name).and_then(Value::as_f64);
    here.or_else(|| members.values().find_map(|member| find_number(member, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_subtracted_and_extremes_are_not() {
        let earlier = json!({"journal": {"commits": 3, "longest_commit_us": 70}, "tried": [1, 2]});
        let later = json!({
            "journal": {"commits": 10, "longest_commit_us": 90, "revokes": 4},
            "tried": [5, 2, 1],
        });
        let expected = json!({
            "journal": {"commits": 7, "longest_commit_us": 90, "revokes": 4},
            "tried": [4, 0, 1],
        });
        assert_eq!(difference(&earlier, &later, ""), expected);
        assert_eq!(number(&expected, &["journal", "commits"]), 7.0);
        assert_eq!(number(&expected, &["locks", "group", "takes"]), 0.0);
        assert_eq!(find_number(&expected, "revokes"), Some(4.0));
        assert_eq!(find_number(&expected, "passes"), None);
    }
}
