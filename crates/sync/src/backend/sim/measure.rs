//! Measures the machine that the program runs on, for a machine file.

use super::machine::CPUS_MAX;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// Messages between two processors, and how many measurements of them.
const MESSAGES: u64 = 5_000;
const ROUNDS: usize = 9;
/// Pairs of one kind that are measured.
const PAIRS_MAX: usize = 24;
/// What takes nanoseconds is done so often at a time, and the median of so many times is taken: short enough that
/// other programs seldom come between.
const AT_ONCE: usize = 10_000;
const TIMES: usize = 200;
/// The cycles of a multiplication and an `or` that wait for each other: 3 and 1 on today's processors.
const MULTIPLICATION_CYCLES: f64 = 4.0;
const WAKES: usize = 200;
/// So that the other thread is asleep.
const WAKE_PAUSE: Duration = Duration::from_micros(300);
const CACHED_LINES: usize = 256;
/// 512 MiB: more than caches have.
const MEMORY_LINES: usize = 8 << 20;

/// What was measured. Times are medians, in nanoseconds; none where the machine has no such pair.
#[derive(Clone, Debug)]
pub struct MeasuredMachine {
    /// Processors of a core.
    pub threads_per_core: usize,
    /// Cores that share a cache of the last level.
    pub cores_per_cluster: usize,
    /// Clusters of a socket.
    pub clusters_per_socket: usize,
    /// Sockets.
    pub sockets: usize,
    /// A message between two processors of a core.
    pub sibling_ns: Option<f64>,
    /// Between cores that share a cache.
    pub cluster_ns: Option<f64>,
    /// Between other cores of a socket.
    pub socket_ns: Option<f64>,
    /// Between sockets.
    pub far_ns: Option<f64>,
    /// A load from memory.
    pub memory_ns: f64,
    /// A load from the first cache.
    pub hit_ns: f64,
    /// An atomic addition without contention.
    pub atomic_ns: f64,
    /// The clock under load.
    pub clock_ghz: f64,
    /// What waking a thread costs the waker.
    pub wake_ns: f64,
    /// The time from then until it runs.
    pub wake_latency_ns: f64,
    /// The time from starting a thread until it runs.
    pub spawn_ns: f64,
}

/// Where a processor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CpuPlace {
    socket: u64,
    /// The first processor of those that share its last cache.
    cluster: u64,
    core: u64,
    cpu: usize,
}

/// Measures the processors that this process may use.
///
/// # Errors
/// The system doesn't let threads be bound to processors, or has no threads left.
pub fn measure() -> io::Result<MeasuredMachine> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CPUS_MAX).filter(|&cpu| allowed.is_set(cpu)).collect();
    let places: Vec<CpuPlace> = cpus.iter().map(|&cpu| place_of(cpu)).collect();
    let count = |key: fn(&CpuPlace) -> (u64, u64, u64)| {
        places.iter().map(key).collect::<BTreeSet<_>>().len().max(1)
    };
    let sockets = count(|at| (at.socket, 0, 0));
    let clusters = count(|at| (at.socket, at.cluster, 0));
    let cores = count(|at| (at.socket, at.cluster, at.core));
    let [mut siblings, mut near, mut same_socket, mut far] = [const { Vec::new() }; 4];
    for (index, one) in places.iter().enumerate() {
        for other in &places[index + 1..] {
            let pairs = match () {
                () if one.socket != other.socket => &mut far,
                () if one.cluster != other.cluster => &mut same_socket,
                () if one.core != other.core => &mut near,
                () => &mut siblings,
            };
            pairs.push((one.cpu, other.cpu));
        }
    }
    let [sibling_ns, cluster_ns, socket_ns, far_ns] =
        [siblings, near, same_socket, far].map(|pairs| message_between(&pairs));
    let first = cpus.first().copied().unwrap_or(0);
    let second = cpus.get(1).copied().unwrap_or(first);
    let (wake_ns, wake_latency_ns) = wakes(first, second)?;
    on(first)?;
    let measured = MeasuredMachine {
        threads_per_core: places.len().div_ceil(cores).max(1),
        cores_per_cluster: cores.div_ceil(clusters),
        clusters_per_socket: clusters.div_ceil(sockets),
        sockets,
        sibling_ns: sibling_ns?,
        cluster_ns: cluster_ns?,
        socket_ns: socket_ns?,
        far_ns: far_ns?,
        memory_ns: load_ns(MEMORY_LINES),
        hit_ns: load_ns(CACHED_LINES),
        atomic_ns: atomic_ns(),
        clock_ghz: clock_ghz(),
        wake_ns,
        wake_latency_ns,
        spawn_ns: spawn_ns()?,
    };
    sched_setaffinity(None, &allowed)?;
    Ok(measured)
}

fn place_of(cpu: usize) -> CpuPlace {
    let read = |name: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{name}")).unwrap_or_default()
    };
    let number = |text: &str| {
        let digits = text.trim().split(|character: char| !character.is_ascii_digit());
        digits.into_iter().next().and_then(|digits| digits.parse().ok())
    };
    let socket = number(&read("topology/physical_package_id")).unwrap_or(0);
    let core = number(&read("topology/core_id")).unwrap_or(cpu as u64);
    // Without such a cache, the socket is the cluster.
    let cluster = number(&read("cache/index3/shared_cpu_list")).unwrap_or(0);
    CpuPlace { socket, cluster, core, cpu }
}

/// Binds the current thread to a processor.
fn on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The time of a message: half of a round trip of one line.
fn message_between(pairs: &[(usize, usize)]) -> io::Result<Option<f64>> {
    let step = pairs.len().div_ceil(PAIRS_MAX).max(1);
    let mut all = Vec::new();
    for &(one, other) in pairs.iter().step_by(step) {
        for _ in 0..ROUNDS {
            all.push(message_ns(one, other)?);
        }
    }
    Ok(median(all))
}

#[repr(align(128))]
struct Line(AtomicU64);

fn message_ns(one: usize, other: usize) -> io::Result<f64> {
    let line = Arc::new(Line(AtomicU64::new(0)));
    let ready = Arc::new(Barrier::new(2));
    let partner = thread::Builder::new().spawn({
        let (line, ready) = (Arc::clone(&line), Arc::clone(&ready));
        move || {
            let is_bound = on(other);
            ready.wait();
            exchange(&line.0, 1);
            is_bound
        }
    })?;
    let is_bound = on(one);
    ready.wait();
    let start = Instant::now();
    exchange(&line.0, 0);
    let elapsed = start.elapsed();
    match partner.join() {
        Ok(other_is_bound) => other_is_bound?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    is_bound?;
    Ok(elapsed.as_nanos() as f64 / (2 * MESSAGES) as f64)
}

/// Counts up in turn with another thread.
fn exchange(line: &AtomicU64, parity: u64) {
    for round in 0..MESSAGES {
        let mine = 2 * round + parity;
        while line.compare_exchange(mine, mine + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            spin_loop();
        }
    }
}

fn atomic_ns() -> f64 {
    let line = Line(AtomicU64::new(0));
    each_ns(|| {
        black_box(&line).0.fetch_add(1, Ordering::Relaxed);
    })
}

/// What an operation takes that follows itself at once.
fn each_ns(mut operation: impl FnMut()) -> f64 {
    let times = (0..TIMES).map(|_| {
        let start = Instant::now();
        (0..AT_ONCE).for_each(|_| operation());
        start.elapsed().as_nanos() as f64 / AT_ONCE as f64
    });
    median(times.collect()).unwrap_or(0.0)
}

/// The clock of the core that this runs on, under load.
#[must_use]
pub fn clock_ghz() -> f64 {
    let mut number = black_box(3_u64);
    let each = each_ns(|| number = number.wrapping_mul(number) | 1);
    black_box(number);
    MULTIPLICATION_CYCLES / each
}

/// Loads that each need the one before, in an order that no prefetcher knows.
fn load_ns(lines: usize) -> f64 {
    #[derive(Clone)]
    #[repr(align(64))]
    struct Padded(usize);
    let mut next: Vec<Padded> = (0..lines).map(Padded).collect();
    // One cycle through all (S. Sattolo, "An algorithm to generate a random cyclic permutation").
    let mut random = 1_u64;
    for index in (1..lines).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = (random >> 33) as usize % index;
        let swapped = next[index].0;
        next[index].0 = next[other].0;
        next[other].0 = swapped;
    }
    let mut at = 0;
    let each = each_ns(|| at = next[at].0);
    black_box(at);
    each
}

/// What waking a sleeping thread takes: the waker's time, and the time until the other runs.
fn wakes(waker: usize, sleeper: usize) -> io::Result<(f64, f64)> {
    let start = Instant::now();
    let woken = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let thread = thread::Builder::new().spawn({
        let woken = Arc::clone(&woken);
        move || {
            let is_bound = on(sleeper);
            for _ in 0..WAKES {
                while !woken.0.swap(false, Ordering::AcqRel) {
                    thread::park();
                }
                let now = start.elapsed().as_nanos() as u64;
                woken.1.store(now, Ordering::Release);
            }
            is_bound
        }
    })?;
    let is_bound = on(waker);
    let (mut costs, mut latencies) = (Vec::new(), Vec::new());
    for _ in 0..WAKES {
        thread::sleep(WAKE_PAUSE);
        let before = start.elapsed().as_nanos() as u64;
        woken.1.store(0, Ordering::Release);
        woken.0.store(true, Ordering::Release);
        thread.thread().unpark();
        costs.push((start.elapsed().as_nanos() as u64 - before) as f64);
        let mut ran = 0;
        while ran == 0 {
            thread::yield_now();
            ran = woken.1.load(Ordering::Acquire);
        }
        latencies.push(ran.saturating_sub(before) as f64);
    }
    match thread.join() {
        Ok(sleeper_is_bound) => sleeper_is_bound?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    is_bound?;
    Ok((median(costs).unwrap_or(0.0), median(latencies).unwrap_or(0.0)))
}

fn spawn_ns() -> io::Result<f64> {
    let start = Instant::now();
    let mut all = Vec::new();
    for _ in 0..WAKES {
        let before = start.elapsed();
        let thread = thread::Builder::new().spawn(move || start.elapsed())?;
        match thread.join() {
            Ok(ran) => all.push(ran.saturating_sub(before).as_nanos() as f64),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(median(all).unwrap_or(0.0))
}
