//! What the threads of a run asked for and were told, and when.

use super::workload::WriteSizes;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Barrier, thread};
use drystone_testkit::operations::{Action, Executor, Operation, Outcome};
use drystone_vfs::FileSystem;
use std::fmt;

/// An operation and what its caller saw.
#[derive(Clone, Debug)]
pub struct Call {
    pub thread: usize,
    pub operation: Operation,
    /// `None`: a fault came before the call ended.
    pub outcome: Option<Outcome>,
    /// Numbers of moments: a call that has ended before another begins took effect before it.
    pub begun: u64,
    pub ended: u64,
}

impl Call {
    /// Whether it is a sync that has succeeded.
    pub fn has_synced(&self) -> bool {
        let is_sync = matches!(
            self.operation.action,
            Action::Sync {} | Action::SyncFile { .. } | Action::SyncData { .. }
        );
        is_sync && matches!(self.outcome, Some(Outcome(Ok(_))))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { thread, operation, outcome, begun, ended } = self;
        write!(f, "{begun:>5}-{ended:<5} thread {thread}: {operation} -> ")?;
        match outcome {
            Some(outcome) => outcome.fmt(f),
            None => f.write_str("?"),
        }
    }
}

/// Runs each thread's operations to their end. `note` is told every moment. What the threads held is given
/// back at the end.
pub fn run(
    file_system: &dyn FileSystem,
    operations: &[Vec<Operation>],
    sizes: WriteSizes,
    note: &(impl Fn(u64) + Sync),
) -> Vec<Vec<Call>> {
    let moments = AtomicU64::new(1);
    let start = Barrier::new(operations.len());
    let moment = || {
        let now = moments.fetch_add(1, Ordering::Relaxed);
        note(now);
        now
    };
    thread::scope(|scope| {
        let (start, moment) = (&start, &moment);
        let workers: Vec<_> = operations
            .iter()
            .enumerate()
            .map(|(thread, operations)| {
                scope.spawn(move || {
                    let mut executor = Executor::new(file_system);
                    start.wait();
                    let mut calls = Vec::with_capacity(operations.len());
                    for operation in operations {
                        let begun = moment();
                        let outcome = sizes.seen(operation, executor.apply(operation));
                        let ended = moment();
                        let operation = operation.clone();
                        calls.push(Call {
                            thread,
                            operation,
                            outcome: Some(outcome),
                            begun,
                            ended,
                        });
                    }
                    calls
                })
            })
            .collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
