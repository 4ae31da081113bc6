//! A run: the threads do their operations, and what they saw and what a crash leaves is judged.

use super::disk::SlowDisk;
use super::durable::Crashed;
use super::history::{self, Call};
use super::image::in_order;
use super::linear::{NotFound, search};
use super::replica::Replica;
use super::seed::SeededRun;
use super::verdict::Verdict;
use super::workload::BASE;
use drystone_blockdev::{BlockDevice, Event, EventKind, Faulty, MemoryDevice, Recording};
use drystone_ext4::Ext4;
use drystone_fsck::CheckOptions;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::sim::{self, SimulationReport};
use drystone_testkit::crash::{CrashImage, CrashImages};
use drystone_testkit::visible::VisibleState;
use std::collections::HashSet;

type Disk = SlowDisk<Faulty<Recording<MemoryDevice>>>;

/// What a run was.
pub struct Finished {
    pub report: SimulationReport,
    pub judged: Result<(), Verdict>,
    /// In the order in which they began.
    pub calls: Vec<Call>,
}

/// What threads did, and what was there at the end.
struct Ran {
    calls: Vec<Vec<Call>>,
    /// The first moment at which the device had failed. What was done from then on isn't known.
    first_fault: Option<u64>,
    /// What was there, without a fault.
    found: Option<VisibleState>,
}

impl SeededRun {
    /// Runs it on its image.
    pub fn run(&self, image: &MemoryDevice) -> Finished {
        let device = Faulty::new(Recording::new(image.snapshot()));
        if let Some(fault) = &self.fault {
            device.inject(fault.clone());
        }
        let device = Arc::new(SlowDisk::new(device, self.disk_delay_max_us, self.schedule_seed));
        let (ran, report) = sim::run(&self.settings(), || self.run_threads(&device));
        let mut calls = Vec::new();
        let judged = ran.map_err(Verdict::Wrong).and_then(|ran| {
            let judged = self.judge(image, &device, &ran);
            calls = ran.calls.into_iter().flatten().collect();
            judged
        });
        calls.sort_by_key(|call| call.begun);
        Finished { report, judged, calls }
    }

    fn run_threads(&self, device: &Arc<Disk>) -> Result<Ran, String> {
        let faulty = device.inner();
        let mount = Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, self.mount_options());
        let fs = match mount {
            Ok(fs) => fs,
            Err(_) if faulty.failures() > 0 => {
                let calls = vec![Vec::new(); self.operations.len()];
                return Ok(Ran { calls, first_fault: Some(0), found: None });
            }
            Err(error) => return Err(format!("can't be opened: {error}")),
        };
        let first_fault = AtomicU64::new(u64::MAX);
        let mut calls = history::run(&fs, &self.operations, self.sizes, &|moment| {
            if faulty.failures() > 0 {
                first_fault.fetch_min(moment, Ordering::Relaxed);
            }
            faulty.inner().mark(moment);
        });
        let first_fault = first_fault.into_inner();
        for calls in &mut calls {
            calls.retain(|call| call.begun < first_fault);
            let after = calls.iter_mut().filter(|call| call.ended >= first_fault);
            after.for_each(|call| call.outcome = None);
        }
        let found = VisibleState::read(&fs, BASE, None);
        let closed = fs.close();
        if faulty.failures() > 0 {
            return Ok(Ran { calls, first_fault: Some(first_fault), found: None });
        }
        closed.map_err(|error| format!("can't be closed: {error}"))?;
        let found = found.map_err(|error| format!("can't be read: {error}"))?;
        Ok(Ran { calls, first_fault: None, found: Some(found) })
    }

    fn judge(&self, image: &MemoryDevice, device: &Disk, ran: &Ran) -> Result<(), Verdict> {
        let recording = device.inner().inner();
        let start = Replica::new(self.shape, self.sizes, ran.calls.len());
        let order = linearize(&ran.calls, &start, ran.found.as_ref());
        if let Err(Verdict::Wrong(what)) = order {
            return Err(Verdict::Wrong(what));
        }
        if let Some(found) = &ran.found {
            let closed: Arc<dyn BlockDevice> = Arc::new(recording.inner().snapshot());
            let checked = sim::run(&in_order(2), || self.check_closed(&closed, found)).0;
            checked.map_err(|what| format!("at the end: {what}"))?;
        }
        let events = recording.take_events();
        // The superblock, two sectors with one checksum, is taken to be written at once.
        let superblock = 1024..2048;
        let seed = self.schedule_seed;
        let mut images = CrashImages::new(image, events.clone(), seed)
            .map_err(|error| error.to_string())?
            .keeping_whole(superblock);
        let mut cuts = Vec::new();
        // Where everything is lost that no sync has promised, and anywhere.
        let syncs: Vec<&Call> =
            ran.calls.iter().flatten().filter(|call| call.has_synced()).collect();
        if let Some(sync) = fastrand::Rng::with_seed(seed).choice(&syncs) {
            cuts.extend(images.behind_mark(sync.ended));
        }
        // The first one loses nothing.
        cuts.extend(images.nth(usize::from(!seed.is_multiple_of(4))));
        for cut in cuts {
            let cut = cut.map_err(|error| error.to_string())?;
            let description = cut.description.clone();
            let judged = self.judge_cut(cut, &events, ran, &start, order.as_deref().ok());
            judged.map_err(|verdict| verdict.after(&description))?;
        }
        order.map(|_| ())
    }

    fn judge_cut(
        &self,
        cut: CrashImage,
        events: &[Event],
        ran: &Ran,
        start: &Replica,
        order: Option<&[usize]>,
    ) -> Result<(), Verdict> {
        let moments: HashSet<u64> = events[..cut.events_before]
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Mark(moment) => Some(moment),
                _ => None,
            })
            .collect();
        let left: Arc<dyn BlockDevice> = Arc::new(cut.device);
        let recovered = sim::run(&self.settings(), || self.recover(&left)).0?;
        let is_after_fault =
            ran.first_fault.is_some_and(|fault| moments.iter().any(|&moment| moment >= fault));
        let Some(order) = order.filter(|_| !is_after_fault) else { return Ok(()) };
        let begun = |call: &&Call| moments.contains(&call.begun);
        let calls = ran.calls.iter();
        let calls = calls.map(|all| all.iter().take_while(begun).cloned().collect()).collect();
        let is_delayed = self.is_delayed;
        Crashed { calls, moments, order, start, is_delayed }.explain(&recovered)
    }

    /// The files of an image that was closed are those that were there.
    fn check_closed(
        &self,
        closed: &Arc<dyn BlockDevice>,
        expected: &VisibleState,
    ) -> Result<(), String> {
        check(&**closed)?;
        let found = self.recover(closed)?;
        expected.whole_difference(&found).map_or(Ok(()), Err)
    }

    /// What is there after a crash, on an image that is clean then.
    fn recover(&self, left: &Arc<dyn BlockDevice>) -> Result<VisibleState, String> {
        let fs = Ext4::open(Arc::clone(left), self.mount_options());
        let fs = fs.map_err(|error| format!("can't be opened: {error}"))?;
        let found = VisibleState::read(&fs, BASE, None)
            .map_err(|error| format!("can't be read: {error}"))?;
        fs.close().map_err(|error| format!("can't be closed: {error}"))?;
        drop(fs);
        check(&**left)?;
        Ok(found)
    }
}

/// An order of all calls that explains what callers saw and what was there at the end.
fn linearize(
    calls: &[Vec<Call>],
    start: &Replica,
    found: Option<&VisibleState>,
) -> Result<Vec<usize>, Verdict> {
    // What ended with a fault may have been done or not.
    let known = |calls: &Vec<Call>| calls.iter().filter(|call| call.outcome.is_some()).count();
    let goal = search(calls, start.clone(), |node| {
        let is_end = node.done.iter().zip(calls).all(|(&done, calls)| done >= known(calls));
        is_end
            && found.is_none_or(|found| node.replica.state(None).whole_difference(found).is_none())
    });
    match goal {
        Ok(goal) => Ok(goal.order),
        Err(NotFound::TooLong) => Err(Verdict::Undecided),
        Err(NotFound::Nowhere(longest)) => {
            Err(Verdict::Wrong(unexplained(calls, start, found, &longest)))
        }
    }
}

/// Says where the longest order that explains what callers saw ends.
fn unexplained(
    calls: &[Vec<Call>],
    start: &Replica,
    found: Option<&VisibleState>,
    order: &[usize],
) -> String {
    let mut replica = start.clone();
    let mut done = vec![0; calls.len()];
    for &thread in order {
        replica.repeat(thread, &calls[thread][done[thread]]);
        done[thread] += 1;
    }
    let mut text =
        format!("no order of the calls explains what callers saw, beyond {} calls", order.len());
    for (thread, calls) in calls.iter().enumerate() {
        if let Some(call) = calls.get(done[thread]) {
            text.push_str(&format!("\n  next{call}"));
            if let Some(expected) = replica.clone().repeat(thread, call) {
                text.push_str(&format!(" (expected {expected})"));
            }
        }
    }
    if let Some(difference) = found.and_then(|found| replica.state(None).whole_difference(found)) {
        text.push_str(&format!("\n  at the end: {difference}"));
    }
    text
}

/// Checks an image that was closed.
fn check(device: &dyn BlockDevice) -> Result<(), String> {
    let report = drystone_fsck::check(device, &CheckOptions::default(), &mut |_| ())
        .map_err(|error| format!("can't be checked: {error}"))?;
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
