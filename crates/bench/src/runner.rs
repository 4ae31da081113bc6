//! The order of runs: targets and policies alternate, round after round.
//!
//! The speed of a shared machine changes by the minute, so runs that are compared must be close in
//! time. For each workload and number of workers all combinations of target and policy run once
//! unmeasured, which also touches their memory, and then A B A B ….

use crate::machine::Machine;
use crate::policy::PolicyChoice;
use crate::published;
use crate::results::{Results, Row, Subject};
use crate::target::{Job, RunOutcome, Target, Verify};
use crate::workload::{Sizes, Workload};
use drystone_sync::atomic::{AtomicBool, Ordering};

/// What to run.
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<Box<dyn Workload>>,
    /// The policies to compare, the first being what the others are compared with; none: those that
    /// a workload's published table compares, as far as the engine has them.
    pub policies: Vec<PolicyChoice>,
    /// Numbers of workers.
    pub workers: Vec<u64>,
    /// How much each does.
    pub sizes: Sizes,
    /// Measured rounds.
    pub rounds: u32,
    /// Whether an unmeasured round comes first.
    pub warms_up: bool,
    /// Whether images are checked.
    pub verify: bool,
    /// What it runs on.
    pub machine: Machine,
}

/// Is told of the runner's progress.
pub trait Watch {
    /// A run begins.
    fn running(&self, what: &str);

    /// All rows of a workload are there.
    fn finished(&self, results: &Results, workload: &dyn Workload);

    /// A combination can't be run and is left out.
    fn failed(&self, what: &str, error: &anyhow::Error);
}

/// One of the alternating combinations.
struct Turn {
    target: usize,
    policy: Option<PolicyChoice>,
    outcomes: Vec<RunOutcome>,
    has_failed: bool,
}

/// Runs everything. Once `stop` is set it returns the results so far.
pub fn run(
    plan: &Plan,
    targets: &mut [Box<dyn Target>],
    watch: &dyn Watch,
    stop: &AtomicBool,
) -> Results {
    let mut results = Results { machine: plan.machine.clone(), rows: Vec::new() };
    for workload in &plan.workloads {
        let policies = policies_for(plan, &**workload, watch);
        for &workers in &plan.workers {
            let mut turns = turns(targets, &policies);
            for round in u32::from(!plan.warms_up)..=plan.rounds {
                for turn in turns.iter_mut().filter(|turn| !turn.has_failed) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let verify = match (plan.verify, round == plan.rounds) {
                        (false, _) => Verify::Nothing,
                        (true, false) => Verify::Quick,
                        (true, true) => Verify::Thorough,
                    };
                    let sizes = &plan.sizes;
                    let job = Job { workload: &**workload, sizes, workers, round, verify, stop };
                    let target = &mut targets[turn.target];
                    let what = describe(&**workload, &**target, turn, workers);
                    let of = plan.rounds;
                    watch.running(&match round {
                        0 => format!("{what}: warming up"),
                        _ => format!("{what}: round {round} of {of}"),
                    });
                    match target.run(job, turn.policy.as_ref()) {
                        Ok(outcome) if round > 0 => turn.outcomes.push(outcome),
                        Ok(_) => {}
                        Err(_) if stop.load(Ordering::Relaxed) => {}
                        Err(error) => {
                            turn.has_failed = true;
                            watch.failed(&what, &error);
                        }
                    }
                }
            }
            for turn in &turns {
                let subject = Subject {
                    workload: workload.name().to_string(),
                    target: targets[turn.target].name().to_string(),
                    policy: policy_text(turn).to_string(),
                    workers,
                    unit: workload.unit().to_string(),
                };
                let row = Row::new(&subject, &turn.outcomes, results.machine.cores);
                results.rows.extend(row);
            }
        }
        watch.finished(&results, &**workload);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    results
}

fn policies_for(plan: &Plan, workload: &dyn Workload, watch: &dyn Watch) -> Vec<PolicyChoice> {
    if !plan.policies.is_empty() {
        return plan.policies.clone();
    }
    let mut policies = Vec::new();
    for text in published::compared_policies(workload.name()) {
        match PolicyChoice::parse(text) {
            Ok(policy) => policies.push(policy),
            Err(error) => watch.failed(workload.name(), &error),
        }
    }
    policies
}

fn turns(targets: &[Box<dyn Target>], policies: &[PolicyChoice]) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (target, has_policies) in targets.iter().map(|target| target.has_policies()).enumerate() {
        let turn = |policy| Turn { target, policy, outcomes: Vec::new(), has_failed: false };
        if has_policies {
            turns.extend(policies.iter().cloned().map(|policy| turn(Some(policy))));
        } else {
            turns.push(turn(None));
        }
    }
    turns
}

fn policy_text(turn: &Turn) -> &str {
    turn.policy.as_ref().map_or("-", |policy| &policy.text)
}

fn describe(workload: &dyn Workload, target: &dyn Target, turn: &Turn, workers: u64) -> String {
    let unit = if workers == 1 { "worker" } else { "workers" };
    format!("{} on {} {}, {workers} {unit}", workload.name(), target.name(), policy_text(turn))
}
