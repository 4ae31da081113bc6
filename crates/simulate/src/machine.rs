//! Machine files: a simulated machine as TOML.

use anyhow::{Context, Result, bail, ensure};
use drystone_sync::sim::{CPUS_MAX, DeviceModel, MachineModel, MeasuredMachine};
use serde::Deserialize;
use std::fs;
use std::ops::RangeInclusive;

/// The machines that the program knows by name, the first one being the default.
const MACHINES: [(&str, &str); 6] = [
    ("epyc-128", include_str!("../machines/epyc-128.toml")),
    ("xeon-80", include_str!("../machines/xeon-80.toml")),
    ("kunpeng-920", include_str!("../machines/kunpeng-920.toml")),
    ("phenom-6", include_str!("../machines/phenom-6.toml")),
    ("xeon-16", include_str!("../machines/xeon-16.toml")),
    ("haswell-48", include_str!("../machines/haswell-48.toml")),
];

/// Clocks of processors. What lies outside has another unit.
pub const CLOCK_GHZ: RangeInclusive<f64> = 0.1..=10.0;

/// The machine of runs that name none.
pub const DEFAULT_MACHINE: &str = MACHINES[0].0;

/// A machine with its device.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// What it is.
    pub description: String,
    /// Its costs. Work still takes as long as on the core of the work table.
    pub model: MachineModel,
    /// Its device.
    pub device: DeviceModel,
    /// The clock of its cores.
    pub clock_ghz: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    description: String,
    shape: ShapeSection,
    core: CoreSection,
    lines: LinesSection,
    threads: ThreadsSection,
    device: DeviceSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeSection {
    sockets: usize,
    clusters_per_socket: usize,
    cores_per_cluster: usize,
    threads_per_core: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoreSection {
    clock_ghz: f64,
    shared_core: f64,
    hit_ns: f64,
    atomic_ns: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinesSection {
    sibling_ns: Option<f64>,
    cluster_ns: Option<f64>,
    socket_ns: Option<f64>,
    far_ns: Option<f64>,
    memory_ns: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThreadsSection {
    spin_us: f64,
    wake_us: f64,
    wake_latency_us: f64,
    spawn_us: f64,
    slice_us: f64,
    switch_us: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceSection {
    read_us: f64,
    write_us: f64,
    flush_us: f64,
    gigabytes_per_second: f64,
    depth: usize,
}

/// The machines by name, with what they are.
pub fn list() -> String {
    let lines = MACHINES.map(|(name, text)| {
        let description = parse(text).map(|machine| machine.description);
        format!("{name:<12} {}\n", description.unwrap_or_else(|error| format!("{error:#}")))
    });
    lines.concat()
}

impl SimulatedMachine {
    /// The machine of a name, or of a file.
    ///
    /// # Errors
    /// There is none, or the file is wrong somewhere.
    pub fn load(name: &str) -> Result<SimulatedMachine> {
        if let Some((_, text)) = MACHINES.iter().find(|(known, _)| *known == name) {
            return parse(text).with_context(|| format!("machine {name}"));
        }
        if !name.contains('/') && !name.ends_with(".toml") {
            let names = MACHINES.map(|(known, _)| known).join(", ");
            bail!("no machine '{name}'; there are: {names}; a file's name ends in .toml");
        }
        let text = fs::read_to_string(name).with_context(|| format!("machine file {name}"))?;
        parse(&text).with_context(|| format!("machine file {name}"))
    }
}

fn parse(text: &str) -> Result<SimulatedMachine> {
    let file: MachineFile = toml::from_str(text)?;
    let shape = &file.shape;
    for (name, count, most) in [
        ("sockets", shape.sockets, CPUS_MAX),
        ("clusters_per_socket", shape.clusters_per_socket, CPUS_MAX),
        ("cores_per_cluster", shape.cores_per_cluster, CPUS_MAX),
        ("threads_per_core", shape.threads_per_core, 8),
    ] {
        ensure!((1..=most).contains(&count), "shape.{name} is {count}; it is 1 to {most}");
    }
    let (core, threads, device) = (&file.core, &file.threads, &file.device);
    let bandwidth = device.gigabytes_per_second;
    for (name, value, range) in [
        ("core.clock_ghz", core.clock_ghz, CLOCK_GHZ),
        ("core.shared_core", core.shared_core, 1.0..=4.0),
        ("device.gigabytes_per_second", bandwidth, 0.001..=100_000.0),
    ] {
        let (least, most) = (range.start(), range.end());
        ensure!(range.contains(&value), "{name} is {value}; it is {least} to {most}");
    }
    ensure!(
        (1..=4096).contains(&device.depth),
        "device.depth is {}; it is 1 to 4096",
        device.depth
    );
    let lines = Distances { lines: &file.lines };
    let model = MachineModel {
        threads_per_core: shape.threads_per_core,
        cores_per_cluster: shape.cores_per_cluster,
        clusters_per_socket: shape.clusters_per_socket,
        sockets: shape.sockets,
        sibling_ps: lines.of("sibling_ns", file.lines.sibling_ns, shape.threads_per_core)?,
        near_ps: lines.of("cluster_ns", file.lines.cluster_ns, shape.cores_per_cluster)?,
        socket_ps: lines.of("socket_ns", file.lines.socket_ns, shape.clusters_per_socket)?,
        far_ps: lines.of("far_ns", file.lines.far_ns, shape.sockets)?,
        memory_ps: ps("lines.memory_ns", file.lines.memory_ns, PS_PER_NS)?,
        hit_ps: ps("core.hit_ns", core.hit_ns, PS_PER_NS)?,
        atomic_ps: ps("core.atomic_ns", core.atomic_ns, PS_PER_NS)?,
        work_permille: 1000,
        shared_core_permille: (core.shared_core * 1000.0) as u64,
        spin_ps: ps("threads.spin_us", threads.spin_us, PS_PER_US)?,
        wake_ps: ps("threads.wake_us", threads.wake_us, PS_PER_US)?,
        wake_latency_ps: ps("threads.wake_latency_us", threads.wake_latency_us, PS_PER_US)?,
        spawn_ps: ps("threads.spawn_us", threads.spawn_us, PS_PER_US)?,
        slice_ps: ps("threads.slice_us", threads.slice_us, PS_PER_US)?,
        switch_ps: ps("threads.switch_us", threads.switch_us, PS_PER_US)?,
    };
    let cpus = model.cpus();
    ensure!(cpus <= CPUS_MAX, "shape: {cpus} processors are more than {CPUS_MAX}");
    let device = DeviceModel {
        read_ps: ps("device.read_us", device.read_us, PS_PER_US)?,
        write_ps: ps("device.write_us", device.write_us, PS_PER_US)?,
        flush_ps: ps("device.flush_us", device.flush_us, PS_PER_US)?,
        bytes_per_second: (bandwidth * 1e9) as u64,
        depth: device.depth,
    };
    let description = file.description;
    Ok(SimulatedMachine { description, model, device, clock_ghz: core.clock_ghz })
}

const PS_PER_NS: f64 = 1e3;
const PS_PER_US: f64 = 1e6;
/// A second: nothing in a machine takes longer.
const PS_MAX: f64 = 1e12;

fn ps(name: &str, value: f64, unit_ps: f64) -> Result<u64> {
    let ps = value * unit_ps;
    ensure!((0.0..=PS_MAX).contains(&ps), "{name} is {value}; it is 0 to a second");
    Ok(ps as u64)
}

struct Distances<'f> {
    lines: &'f LinesSection,
}

impl Distances<'_> {
    /// The cost of a line over a distance, which is needed if there are several of what lies so far apart.
    fn of(&self, name: &str, value: Option<f64>, count: usize) -> Result<u64> {
        match value {
            Some(value) => ps(&format!("lines.{name}"), value, PS_PER_NS),
            None if count > 1 => bail!("lines.{name} is missing; the shape has such pairs"),
            None => ps("lines.memory_ns", self.lines.memory_ns, PS_PER_NS),
        }
    }
}

/// A machine file of what was measured. The device isn't measured: it is the default machine's.
pub fn file_of(machine: &MeasuredMachine, processor: &str) -> String {
    let line = |name: &str, value: Option<f64>| match value {
        Some(value) => format!("{name} = {value:.1}\n"),
        None => String::new(),
    };
    let us = |ns: f64| ns / 1000.0;
    let device = MACHINES[0].1.split_once("[device]").map_or("", |(_, device)| device);
    format!(
        "# Measured by 'simulate --measure': medians on the machine that it ran on.\n\
         description = \"{processor}, {} CPUs, measured\"\n\n\
         [shape]\nsockets = {}\nclusters_per_socket = {}\ncores_per_cluster = {}\nthreads_per_core = {}\n\n\
         [core]\nclock_ghz = {:.2}\n\
         shared_core = {} # assumed: two threads of a core do 1.3 times the work of one\n\
         hit_ns = {:.2} # a cycle: loads that hit overlap; one that waits for the other takes {:.1}\n\
         atomic_ns = {:.1}\n\n\
         [lines]\n{}{}{}{}memory_ns = {:.0}\n\n\
         [threads]\n\
         spin_us = 3 # assumed: before a waiter for a lock sleeps\n\
         wake_us = {:.2}\nwake_latency_us = {:.1}\nspawn_us = {:.1}\n\
         slice_us = 3000 # assumed\n\
         switch_us = 1.5 # assumed\n\n\
         [device]{device}",
        machine.threads_per_core
            * machine.cores_per_cluster
            * machine.clusters_per_socket
            * machine.sockets,
        machine.sockets,
        machine.clusters_per_socket,
        machine.cores_per_cluster,
        machine.threads_per_core,
        machine.clock_ghz,
        if machine.threads_per_core > 1 { "1.55" } else { "1.0" },
        machine.clock_ghz.recip(),
        machine.hit_ns,
        machine.atomic_ns,
        line("sibling_ns", machine.sibling_ns),
        line("cluster_ns", machine.cluster_ns),
        line("socket_ns", machine.socket_ns),
        line("far_ns", machine.far_ns),
        machine.memory_ns,
        us(machine.wake_ns),
        us(machine.wake_latency_ns),
        us(machine.spawn_ns),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_named_machines_are_read() {
        for (name, cpus) in [
            ("epyc-128", 128),
            ("xeon-80", 80),
            ("kunpeng-920", 64),
            ("phenom-6", 6),
            ("xeon-16", 16),
            ("haswell-48", 48),
        ] {
            let machine = SimulatedMachine::load(name).unwrap();
            assert_eq!(machine.model.cpus(), cpus, "{name}");
        }
        assert_eq!(list().lines().count(), MACHINES.len());
        let machine = SimulatedMachine::load(DEFAULT_MACHINE).unwrap();
        assert_eq!(machine.model.far_ps, 197_000);
        assert_eq!(machine.device.flush_ps, 20_000_000);
    }

    #[test]
    fn errors_say_what_where_and_what_to_do() {
        let good = MACHINES[0].1;
        for (old, new, expected) in [
            ("far_ns = 197", "", "lines.far_ns is missing"),
            ("far_ns = 197", "far_ns = -3", "lines.far_ns is -3; it is 0 to"),
            ("far_ns = 197", "fur_ns = 197", "unknown field `fur_ns`"),
            ("far_ns = 197", "far_ns = \"x\"", "line 20"),
            ("sockets = 2", "sockets = 0", "shape.sockets is 0; it is 1 to"),
            ("sockets = 2", "sockets = 8", "512 processors are more than 256"),
            ("clock_ghz = 3.5", "clock_ghz = 0", "core.clock_ghz is 0; it is 0.1 to 10"),
            ("clock_ghz = 3.5", "clock_ghz = 3500", "core.clock_ghz is 3500; it is 0.1 to 10"),
            ("clock_ghz = 3.5", "clock_ghz = inf", "core.clock_ghz is inf; it is 0.1 to 10"),
            ("clock_ghz = 3.5", "clock_ghz = nan", "core.clock_ghz is NaN; it is 0.1 to 10"),
            ("shared_core = 1.0", "shared_core = inf", "core.shared_core is inf; it is 1 to 4"),
            ("second = 100", "second = 1e-12", "it is 0.001 to 100000"),
            ("depth = 128", "depth = 0", "device.depth is 0; it is 1 to"),
        ] {
            let error = format!("{:#}", parse(&good.replace(old, new)).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let error = format!("{:#}", SimulatedMachine::load("cray").unwrap_err());
        assert!(error.contains("no machine 'cray'; there are: epyc-128"), "{error}");
        let error = format!("{:#}", SimulatedMachine::load("/no/such.toml").unwrap_err());
        assert!(error.contains("machine file /no/such.toml"), "{error}");
    }

    #[test]
    fn what_is_measured_is_a_machine_file() {
        let measured = MeasuredMachine {
            threads_per_core: 1,
            cores_per_cluster: 2,
            clusters_per_socket: 1,
            sockets: 1,
            sibling_ns: None,
            cluster_ns: Some(190.0),
            socket_ns: None,
            far_ns: None,
            memory_ns: 120.4,
            hit_ns: 1.4,
            atomic_ns: 6.0,
            clock_ghz: 2.9,
            wake_ns: 2500.0,
            wake_latency_ns: 80_000.0,
            spawn_ns: 50_000.0,
        };
        let text = file_of(&measured, "A CPU");
        let machine = parse(&text).unwrap();
        assert_eq!(machine.description, "A CPU, 2 CPUs, measured");
        assert_eq!((machine.model.near_ps, machine.model.wake_ps), (190_000, 2_500_000));
        assert_eq!((machine.device.depth, machine.model.hit_ps), (128, 340));
    }
}
