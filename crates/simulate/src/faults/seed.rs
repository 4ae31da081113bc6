//! What a seed stands for: threads with their operations, the order in which they go on, an image, a
//! device with its faults, and a crash.

use super::image::{Shape, in_order};
use super::workload::{self, PathChoice, WriteSizes};
use drystone_blockdev::{DeviceOperation, Effect, Fault, Trigger};
use drystone_ext4::{MountOptions, Policy};
use drystone_sync::sim::{Schedule, SimulationSettings};
use drystone_testkit::operations::Operation;
use std::collections::BTreeSet;
use std::time::Duration;

/// A run that takes more virtual time doesn't end.
const TIME_MAX: Duration = Duration::from_secs(2000);
/// Operations of the device after which it may fail.
const FAULT_AFTER_MAX: u64 = 120;

/// What a seed stands for.
#[derive(Clone, Debug)]
pub struct SeededRun {
    /// The order of events, delays and the crash follow from it.
    pub schedule_seed: u64,
    pub schedule: Schedule,
    /// By thread.
    pub operations: Vec<Vec<Operation>>,
    pub sizes: WriteSizes,
    pub shape: Shape,
    pub is_delayed: bool,
    pub policy: Policy,
    pub memory_bytes: usize,
    pub disk_delay_max_us: u64,
    pub fault: Option<Fault>,
    /// The defect that it has to find.
    pub planted: Option<String>,
}

impl SeededRun {
    /// What a seed stands for.
    pub fn new(seed: u64) -> SeededRun {
        let mut random = fastrand::Rng::with_seed(seed);
        let schedule = match random.u8(..4) {
            0 => Schedule::Priorities { changes: random.u32(1..6), events: 20_000 },
            1 => Schedule::Random { one_in: 2 },
            2 => Schedule::Random { one_in: 16 },
            _ => Schedule::Random { one_in: 128 },
        };
        let threads = random.usize(2..=5);
        let count = random.usize(5..40);
        let shape = Shape::ALL[random.usize(..Shape::ALL.len())];
        // A crowded image may cut a larger write short; the model never runs out of space.
        let is_small = shape == Shape::Crowded || random.bool();
        let sizes = if is_small { WriteSizes::Sectors } else { WriteSizes::Any };
        let paths = PathChoice::new(&mut random);
        let operations =
            (0..threads).map(|_| workload::operations(&mut random, sizes, paths, count)).collect();
        let policies = Policy::presets_and_flips();
        SeededRun {
            schedule_seed: seed,
            schedule,
            operations,
            sizes,
            shape,
            is_delayed: random.bool(),
            policy: policies[random.usize(..policies.len())],
            memory_bytes: if random.u8(..3) == 0 { 8 << 10 } else { 8 << 20 },
            disk_delay_max_us: [0, 300, 10_000][random.usize(..3)],
            fault: (random.u8(..6) == 0).then(|| fault(&mut random)),
            planted: None,
        }
    }

    /// Keeps only operations with these numbers, counted through all threads.
    pub fn keep(&mut self, numbers: &[usize]) {
        let numbers: BTreeSet<usize> = numbers.iter().copied().collect();
        let mut number = 0;
        for operation in self.operations.iter_mut() {
            operation.retain(|_| {
                number += 1;
                numbers.contains(&(number - 1))
            });
        }
    }

    /// How many operations there are.
    pub fn count(&self) -> usize {
        self.operations.iter().map(Vec::len).sum()
    }

    /// How it runs.
    pub fn settings(&self) -> SimulationSettings {
        SimulationSettings {
            seed: self.schedule_seed,
            schedule: self.schedule,
            time_max: TIME_MAX,
            planted: self.planted.clone(),
            ..in_order(self.operations.len() + 2)
        }
    }

    /// How its image is mounted.
    pub fn mount_options(&self) -> MountOptions {
        MountOptions::default()
            .delayed_allocation(self.is_delayed)
            .policy(self.policy)
            .memory_budget_bytes(self.memory_bytes)
    }
}

fn fault(random: &mut fastrand::Rng) -> Fault {
    let operations = [DeviceOperation::Write, DeviceOperation::Flush, DeviceOperation::Read];
    let operation = operations[random.usize(..operations.len())];
    let effect = match random.bool() {
        true => Effect::InputOutputError,
        false => Effect::Short { bytes: 512 * random.u64(..8) },
    };
    let after = random.u64(..FAULT_AFTER_MAX);
    let trigger = if random.bool() { Trigger::Nth(after) } else { Trigger::From(after) };
    Fault::of(operation, effect).when(trigger)
}
