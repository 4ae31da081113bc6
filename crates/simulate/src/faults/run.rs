//! A run: the threads do their operations, and what they saw and what a crash leaves is judged.

use super::disk::SlowDisk;
use super::durable::Crashed;
use super::history::{self, Call};
use super::image::in_order;
use super::linear::{NotFound, search};
use super::seed::SeededRun;
use super::workload::{BASE, Replica};
use drystone_blockdev::{BlockDevice, Event, EventKind, Faulty, MemoryDevice, Recording};
use drystone_ext4::Ext4;
use drystone_fsck::CheckOptions;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::sim::{self, SimulationReport};
use drystone_testkit::crash::CrashImages;
use drystone_testkit::visible::VisibleState;
use std::collections::HashSet;

type Disk = SlowDisk<Faulty<Recording<MemoryDevice>>>;

/// What a run was.
pub struct Finished {
    pub report: SimulationReport,
    /// A search that was given up: nothing is claimed.
    pub is_undecided: bool,
    /// What is wrong, and the calls.
    pub problem: Option<(String, Vec<Call>)>,
}

/// Why a run isn't good.
enum Verdict {
    Wrong(String),
    Undecided,
}

impl From<String> for Verdict {
    fn from(what: String) -> Verdict {
        Verdict::Wrong(what)
    }
}

/// What threads did, and what was there at the end; nothing is known from a fault on.
struct Ran {
    calls: Vec<Vec<Call>>,
    /// `None` after a fault.
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
        match judged {
            Ok(()) => Finished { report, is_undecided: false, problem: None },
            Err(Verdict::Undecided) => Finished { report, is_undecided: true, problem: None },
            Err(Verdict::Wrong(what)) => {
                Finished { report, is_undecided: false, problem: Some((what, calls)) }
            }
        }
    }

    fn run_threads(&self, device: &Arc<Disk>) -> Result<Ran, String> {
        let faulty = device.inner();
        let mount = Ext4::open(Arc::clone(device) as Arc<dyn BlockDevice>, self.mount_options());
        let fs = match mount {
            Ok(fs) => fs,
            Err(_) if faulty.failures() > 0 => {
                return Ok(Ran { calls: vec![Vec::new(); self.operations.len()], found: None });
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
            return Ok(Ran { calls, found: None });
        }
        closed.map_err(|error| format!("can't be closed: {error}"))?;
        let found = found.map_err(|error| format!("can't be read: {error}"))?;
        Ok(Ran { calls, found: Some(found) })
    }

    fn judge(&self, image: &MemoryDevice, device: &Disk, ran: &Ran) -> Result<(), Verdict> {
        let start = Replica::new(self.shape.configuration(), self.sizes, ran.calls.len());
        let order = linearize(&ran.calls, &start, ran.found.as_ref())?;
        let recording = device.inner().inner();
        if ran.found.is_some() {
            let closed = recording.inner().snapshot();
            let checked = sim::run(&in_order(1), || check(&closed)).0;
            checked.map_err(|what| format!("at the end: {what}"))?;
        }
        self.judge_crashes(image, recording.take_events(), &ran.calls, &start, &order)
    }

    fn judge_crashes(
        &self,
        image: &MemoryDevice,
        events: Vec<Event>,
        calls: &[Vec<Call>],
        start: &Replica,
        order: &[usize],
    ) -> Result<(), Verdict> {
        // The superblock, two sectors with one checksum, is taken to be written at once.
        let superblock = 1024..2048;
        let images = CrashImages::new(image, events.clone(), self.schedule_seed)
            .map_err(|error| error.to_string())?
            .keeping_whole(superblock);
        // The first one loses nothing.
        let number = usize::from(!self.schedule_seed.is_multiple_of(4));
        for crash in images.skip(number).take(1) {
            let crash = crash.map_err(|error| error.to_string())?;
            let moments: HashSet<u64> = events[..crash.events_before]
                .iter()
                .filter_map(|event| match event.kind {
                    EventKind::Mark(moment) => Some(moment),
                    _ => None,
                })
                .collect();
            let left: Arc<dyn BlockDevice> = Arc::new(crash.device);
            let recovered = sim::run(&self.settings(), || self.recover(&left)).0;
            let recovered = recovered.map_err(|what| format!("{}: {what}", crash.description))?;
            let is_known = calls.iter().flatten().all(|call| call.outcome.is_some());
            let last = calls.iter().flatten().map(|call| call.ended).max();
            if !is_known && moments.iter().max() >= last.as_ref() {
                // What was done after the fault isn't known.
                continue;
            }
            let begun = |call: &&Call| moments.contains(&call.begun);
            let calls =
                calls.iter().map(|all| all.iter().take_while(begun).cloned().collect()).collect();
            let is_delayed = self.is_delayed;
            let crashed = Crashed { calls, moments, order, start, is_delayed };
            let explained = crashed.explain(&recovered);
            explained.map_err(|what| format!("{}: {what}", crash.description))?;
        }
        Ok(())
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
        is_end && found.is_none_or(|found| difference(&node.replica, found).is_none())
    });
    match goal {
        Ok(goal) => Ok(goal.order),
        Err(NotFound::TooLong) => Err(Verdict::Undecided),
        Err(NotFound::Nowhere(longest)) => {
            Err(Verdict::Wrong(unexplained(calls, start, found, &longest)))
        }
    }
}

/// What differs between the model and what was found.
fn difference(replica: &Replica, found: &VisibleState) -> Option<String> {
    let expected = replica.state(None);
    if let Some(difference) = expected.difference(found, |_, _, _| false) {
        return Some(difference);
    }
    let differs = |path: &&Vec<u8>| {
        let found = found.entries.get(*path).and_then(|entry| entry.content.as_ref());
        expected.entries[*path].content.as_ref() != found
    };
    let path = expected.entries.keys().find(differs)?;
    Some(format!("{} has other content", String::from_utf8_lossy(path)))
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
        replica.apply(thread, &calls[thread][done[thread]].operation);
        done[thread] += 1;
    }
    let mut text =
        format!("no order of the calls explains what callers saw, beyond {} calls", order.len());
    for (thread, calls) in calls.iter().enumerate() {
        if let Some(call) = calls.get(done[thread]) {
            let expected = replica.clone().apply(thread, &call.operation);
            text.push_str(&format!("\n  next{call} (expected {expected})"));
        }
    }
    if let Some(difference) = found.and_then(|found| difference(&replica, found)) {
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
