//! Workers as threads of this process, on a mounted engine.

use super::worker::{PhaseReport, run_phase};
use super::{Job, RunOutcome, add_phase};
use crate::counters::Snapshot;
use crate::files::EngineFiles;
use crate::workload::PhaseKind;
use anyhow::{Result, anyhow};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Barrier, thread};
use drystone_vfs::{FileSystem, InodeNumber};

/// Takes all workers through all phases, and counts what happens in the main one.
pub fn work(
    job: Job<'_>,
    file_system: &dyn FileSystem,
    snapshot: &dyn Fn() -> Snapshot,
    root: InodeNumber,
) -> Result<RunOutcome> {
    let phases = job.workload.phases();
    // The workers and this thread, which reads the counters while the workers wait.
    let barrier = Barrier::new(job.workers as usize + 1);
    let failed = AtomicBool::new(false);
    let mut outcome = RunOutcome::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..job.workers)
            .map(|index| {
                let (barrier, failed) = (&barrier, &failed);
                scope.spawn(move || {
                    let mut worker = job.workload.worker(job.sizes, index, job.workers);
                    let mut files = EngineFiles::new(file_system, root, job.stop);
                    let mut reports = Vec::new();
                    let mut error = None;
                    for &phase in phases {
                        barrier.wait();
                        if !failed.load(Ordering::SeqCst) {
                            match run_phase(&mut *worker, phase, index, &mut files) {
                                Ok(report) => reports.push(report),
                                Err(why) => {
                                    failed.store(true, Ordering::SeqCst);
                                    error = Some(why);
                                }
                            }
                        }
                        barrier.wait();
                    }
                    match error {
                        Some(error) => Err(error),
                        None => Ok(reports),
                    }
                })
            })
            .collect();
        let mut trouble = None;
        for phase in phases {
            let is_main = phase.kind == PhaseKind::Main;
            if phase.kind != PhaseKind::Aside && phase.kind != PhaseKind::Shared {
                // What came before shall not be written meanwhile.
                trouble = trouble.or(file_system.sync().err());
            }
            let before = is_main.then(snapshot);
            barrier.wait();
            barrier.wait();
            if let Some(before) = before {
                outcome.counters = before.until(&snapshot());
            }
        }
        let results: Vec<Result<Vec<PhaseReport>>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked"))))
            .collect();
        let reports = results.into_iter().collect::<Result<Vec<_>>>()?;
        for (place, phase) in phases.iter().enumerate() {
            let of_phase: Vec<PhaseReport> =
                reports.iter().filter_map(|all| all.get(place).cloned()).collect();
            add_phase(&mut outcome, phase.kind, &of_phase);
        }
        trouble.map_or(Ok(outcome), |error| Err(error.into()))
    })
}
