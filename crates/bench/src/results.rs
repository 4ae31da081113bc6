//! The results of all runs: rows of medians, as they are written to JSON.

use crate::machine::Machine;
use crate::target::RunOutcome;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything that tables and plots are drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Where it was measured.
    pub machine: Machine,
    /// One for each workload, number of workers, target and policy.
    pub rows: Vec<Row>,
}

/// The rounds of one workload with one number of workers on one target with one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The target: `engine`, or a directory.
    pub target: String,
    /// The policy; `-` for a directory, which has none of ours.
    pub policy: String,
    /// The workers: threads on the engine, processes on a directory.
    pub workers: u64,
    /// More workers than the machine has cores.
    pub oversubscribed: bool,
    /// What an operation is.
    pub unit: String,
    /// Operations of all workers in one round.
    pub operations: u64,
    /// The median of the rounds.
    pub seconds: f64,
    /// The median of the rounds.
    pub operations_per_second: f64,
    /// The fastest round's rate less the slowest's, as a part of the median.
    pub spread: f64,
    /// Every round, in order.
    pub rounds: Vec<Round>,
    /// What was counted in the median round.
    pub counters: Value,
    /// Whether the image was consistent after every round; `null` if none was checked.
    pub clean: Option<bool>,
    /// Medians of further figures.
    pub figures: BTreeMap<String, f64>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// How long it took.
    pub seconds: f64,
    /// How fast it was.
    pub operations_per_second: f64,
    /// Further figures.
    pub figures: BTreeMap<String, f64>,
}

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// See [`Row`].
    pub workload: String,
    /// See [`Row`].
    pub target: String,
    /// See [`Row`].
    pub policy: String,
    /// See [`Row`].
    pub workers: u64,
    /// See [`Row`].
    pub unit: String,
}

impl Row {
    /// What the workers' time went to in a simulation: for each class of locks (none for atomics), the costs of
    /// places in the source. Not where workers wait for each other before and after, which isn't measured. `None`
    /// for a row that isn't simulated.
    #[must_use]
    pub fn simulated_costs(&self) -> Option<Vec<(&str, &Map<String, Value>)>> {
        let classes = self.counters["places"]["scoped"].as_object()?;
        let measured = classes.iter().filter(|(class, _)| *class != "barrier");
        let places = measured.filter_map(|(class, places)| Some((&class[..], places.as_object()?)));
        Some(places.collect())
    }

    /// The row of some rounds; `None` without any.
    #[must_use]
    pub fn new(subject: &Subject, outcomes: &[RunOutcome], cores: usize) -> Option<Row> {
        let mut by_speed: Vec<&RunOutcome> = outcomes.iter().collect();
        by_speed.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
        let (slowest, fastest) = (by_speed.first()?, by_speed.last()?);
        let middle = by_speed[by_speed.len() / 2];
        let median_rate = median(outcomes.iter().map(rate))?;
        let verdicts: Vec<bool> = outcomes.iter().filter_map(|outcome| outcome.clean).collect();
        let figures = middle.figures.keys().filter_map(|name| {
            let values = outcomes.iter().filter_map(|outcome| outcome.figures.get(name).copied());
            Some((name.clone(), median(values)?))
        });
        Some(Row {
            workload: subject.workload.clone(),
            target: subject.target.clone(),
            policy: subject.policy.clone(),
            workers: subject.workers,
            oversubscribed: subject.workers > cores as u64,
            unit: subject.unit.clone(),
            operations: middle.operations,
            seconds: median(outcomes.iter().map(|outcome| outcome.seconds))?,
            operations_per_second: median_rate,
            spread: (rate(fastest) - rate(slowest)) / median_rate,
            rounds: outcomes
                .iter()
                .map(|outcome| Round {
                    seconds: outcome.seconds,
                    operations_per_second: rate(outcome),
                    figures: outcome.figures.clone(),
                })
                .collect(),
            counters: middle.counters.clone(),
            clean: (!verdicts.is_empty()).then(|| verdicts.iter().all(|&is_clean| is_clean)),
            figures: figures.collect(),
        })
    }
}

fn rate(outcome: &RunOutcome) -> f64 {
    // Even a workload without operations takes time.
    outcome.operations.max(1) as f64 / outcome.seconds
}

/// The middle value; the mean of the two middle ones.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        1 => Some(values[half]),
        _ if values.is_empty() => None,
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_have_medians_and_verdicts() {
        let outcome = |seconds: f64, clean| RunOutcome {
            operations: 100,
            seconds,
            figures: BTreeMap::from([("find_seconds".to_string(), seconds / 10.0)]),
            counters: json!({"took": seconds}),
            clean,
        };
        let subject = Subject {
            workload: "inodes".into(),
            target: "engine".into(),
            policy: "baseline".into(),
            workers: 3,
            unit: "creates".into(),
        };
        let outcomes =
            [outcome(4.0, Some(true)), outcome(1.0, Some(true)), outcome(2.0, Some(false))];
        let row = Row::new(&subject, &outcomes, 2).unwrap();
        assert_eq!((row.seconds, row.operations_per_second), (2.0, 50.0));
        assert_eq!(row.spread, 1.5);
        assert_eq!(row.counters, json!({"took": 2.0}));
        assert_eq!(row.figures["find_seconds"], 0.2);
        assert_eq!(row.clean, Some(false));
        assert!(row.oversubscribed);
        assert_eq!(row.rounds.len(), 3);
        assert!(!Row::new(&subject, &outcomes[..1], 4).unwrap().oversubscribed);
        assert_eq!(Row::new(&subject, &[], 4), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0].into_iter()), Some(2.0));
        assert_eq!(median([3.0, 1.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([].into_iter()), None);
    }
}
