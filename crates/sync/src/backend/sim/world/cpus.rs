//! Which thread runs on which processor: each has one at a time.
//!
//! A thread that goes on takes the processor that it was given at its start, if that is idle; else the
//! nearest idle one; else it waits for its own. A thread that others wait for is preempted when its
//! time slice has ended, at its next event. A processor that becomes idle takes a thread that waits for
//! another.
//!
//! # Limits
//! - A thread that spins for a lock has given its processor back.
//! - Linux prefers an idle core to the idle second thread of a busy core, and spreads threads over sockets by load.
//!   Here the second thread is nearer, and threads fill one socket after the other in the order of their starts.

use super::super::machine::MachineModel;
use super::ThreadId;
use std::collections::VecDeque;

#[derive(Clone, Default)]
struct Cpu {
    running: Option<ThreadId>,
    /// The thread that ran last.
    last: Option<ThreadId>,
    slice_end_ps: u64,
    waiting: VecDeque<ThreadId>,
}

pub(super) struct Cpus {
    all: Vec<Cpu>,
    /// Threads that wait for a processor.
    waiting: usize,
}

/// What becomes of a thread that wants to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It runs on this processor, after the one before it has been put away.
    Runs { cpu: usize, switches: bool },
    /// It waits until a processor is free.
    Waits,
}

impl Cpus {
    pub fn new(count: usize) -> Cpus {
        Cpus { all: vec![Cpu::default(); count], waiting: 0 }
    }

    /// A thread that is to run on `home`, and ran on `cpu`, wants to go on at `at_ps`.
    pub fn admit(
        &mut self,
        machine: &MachineModel,
        thread: ThreadId,
        home: usize,
        cpu: usize,
        at_ps: u64,
    ) -> Admission {
        if self.all[cpu].running == Some(thread) {
            return Admission::Runs { cpu, switches: false };
        }
        let idle = |cpu: &usize| self.all[*cpu].running.is_none();
        let place = Some(home).filter(idle).or_else(|| {
            (0..self.all.len()).filter(idle).min_by_key(|&cpu| machine.transfer_ps(home, cpu))
        });
        match place {
            Some(cpu) => {
                let place = &mut self.all[cpu];
                let switches = place.last.is_some_and(|last| last != thread);
                place.running = Some(thread);
                place.last = Some(thread);
                place.slice_end_ps = at_ps.saturating_add(machine.slice_ps);
                Admission::Runs { cpu, switches }
            }
            None => {
                self.all[home].waiting.push_back(thread);
                self.waiting += 1;
                Admission::Waits
            }
        }
    }

    /// Whether the thread on a processor has to make room at its event at `now_ps`.
    #[inline]
    pub fn is_preempted(&self, cpu: usize, now_ps: u64) -> bool {
        self.waiting > 0
            && now_ps >= self.all[cpu].slice_end_ps
            && !self.all[cpu].waiting.is_empty()
    }

    /// The thread on a processor makes room at its next event, if another waits for it.
    pub fn end_slice(&mut self, cpu: usize) {
        self.all[cpu].slice_end_ps = 0;
    }

    /// Whether another thread runs on a processor.
    pub fn is_busy(&self, cpu: usize) -> bool {
        self.all.get(cpu).is_some_and(|cpu| cpu.running.is_some())
    }

    /// The thread on a processor stops at `now_ps`. Returns the one that runs there now.
    pub fn release(&mut self, machine: &MachineModel, cpu: usize, now_ps: u64) -> Option<ThreadId> {
        self.all[cpu].running = None;
        if self.waiting == 0 {
            return None;
        }
        let from = match self.all[cpu].waiting.is_empty() {
            false => cpu,
            true => (0..self.all.len()).max_by_key(|&cpu| self.all[cpu].waiting.len())?,
        };
        let next = self.all[from].waiting.pop_front()?;
        self.waiting -= 1;
        let place = &mut self.all[cpu];
        place.running = Some(next);
        place.last = Some(next);
        place.slice_end_ps = now_ps.saturating_add(machine.slice_ps);
        Some(next)
    }

    /// The thread on a processor goes to the end of those that wait for it.
    pub fn put_last(&mut self, thread: ThreadId, cpu: usize) {
        self.all[cpu].waiting.push_back(thread);
        self.waiting += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(cpu: usize, switches: bool) -> Admission {
        Admission::Runs { cpu, switches }
    }

    #[test]
    fn threads_take_idle_processors_and_then_turns() {
        let machine = MachineModel { slice_ps: 100, ..MachineModel::even() };
        let mut cpus = Cpus::new(2);
        assert_eq!(cpus.admit(&machine, 7, 0, 0, 0), runs(0, false));
        assert_eq!(cpus.admit(&machine, 7, 0, 0, 5), runs(0, false), "it is there already");
        assert_eq!(cpus.admit(&machine, 8, 0, 0, 10), runs(1, false), "its own is busy");
        assert_eq!(cpus.admit(&machine, 9, 0, 0, 20), Admission::Waits);
        assert!(!cpus.is_preempted(0, 99) && cpus.is_preempted(0, 100));
        assert!(!cpus.is_preempted(1, 500), "nothing waits for it");
        cpus.put_last(7, 0);
        assert_eq!(cpus.release(&machine, 0, 100), Some(9));
        assert_eq!(cpus.admit(&machine, 9, 0, 0, 100), runs(0, false));
        // The other processor takes what waits for the first.
        assert_eq!(cpus.release(&machine, 1, 150), Some(7));
        assert_eq!(cpus.release(&machine, 0, 160), None);
        assert_eq!(cpus.admit(&machine, 8, 0, 1, 170), runs(0, true));
        assert!(cpus.is_busy(0) && cpus.is_busy(1));
    }
}
