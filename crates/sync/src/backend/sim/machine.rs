//! The costs of a simulated machine.

/// The most processors that a machine can have.
pub const CPUS_MAX: usize = 256;

/// A machine: its shape, and its costs in picoseconds. A *processor* is a hardware thread: what Linux calls
/// a CPU. Processors are numbered as Linux numbers them on such machines: first one of each core, socket by
/// socket, then the cores' second threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineModel {
    /// Processors of a core.
    pub threads_per_core: usize,
    /// Cores that share a cache of the last level.
    pub cores_per_cluster: usize,
    /// Clusters of a socket.
    pub clusters_per_socket: usize,
    /// Sockets.
    pub sockets: usize,
    /// A line from the other processor of the same core.
    pub sibling_ps: u64,
    /// A line from a core of the same cluster.
    pub near_ps: u64,
    /// A line from another cluster of the same socket.
    pub socket_ps: u64,
    /// A line from another socket.
    pub far_ps: u64,
    /// A line from memory, that no core has.
    pub memory_ps: u64,
    /// A load of a line that the core has.
    pub hit_ps: u64,
    /// An atomic read-modify-write of a line that the core alone has.
    pub atomic_ps: u64,
    /// The time for work that takes a core of the [`WorkTable`](super::WorkTable) 1000.
    pub work_permille: u64,
    /// How much longer work takes while the other processor of the core works too, in thousandths.
    pub shared_core_permille: u64,
    /// How long a waiter for a lock spins before it sleeps.
    pub spin_ps: u64,
    /// What waking another thread costs the waker.
    pub wake_ps: u64,
    /// The time from then until the woken thread runs.
    pub wake_latency_ps: u64,
    /// The time from starting a thread until it runs.
    pub spawn_ps: u64,
    /// How long a thread runs before another that waits for its processor does.
    pub slice_ps: u64,
    /// The time to go from one thread to another.
    pub switch_ps: u64,
}

impl MachineModel {
    /// A machine whose events take as long as the work before them, and where nothing else takes time: for
    /// runs that don't ask what things cost.
    #[must_use]
    pub fn even() -> MachineModel {
        MachineModel {
            threads_per_core: 1,
            cores_per_cluster: 8,
            clusters_per_socket: 1,
            sockets: 1,
            sibling_ps: 0,
            near_ps: 0,
            socket_ps: 0,
            far_ps: 0,
            memory_ps: 0,
            hit_ps: 0,
            atomic_ps: 0,
            work_permille: 1000,
            shared_core_permille: 1000,
            spin_ps: 0,
            wake_ps: 0,
            wake_latency_ps: 0,
            spawn_ps: 0,
            slice_ps: 100_000_000,
            switch_ps: 0,
        }
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores_per_cluster * self.clusters_per_socket * self.sockets
    }

    /// How many processors there are.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.threads_per_core * self.cores()
    }

    /// All costs but the work, multiplied.
    #[must_use]
    pub fn with_costs(&self, factor: f64) -> MachineModel {
        let times = |cost: u64| (cost as f64 * factor) as u64;
        MachineModel {
            sibling_ps: times(self.sibling_ps),
            near_ps: times(self.near_ps),
            socket_ps: times(self.socket_ps),
            far_ps: times(self.far_ps),
            memory_ps: times(self.memory_ps),
            hit_ps: times(self.hit_ps),
            atomic_ps: times(self.atomic_ps),
            wake_ps: times(self.wake_ps),
            wake_latency_ps: times(self.wake_latency_ps),
            switch_ps: times(self.switch_ps),
            ..self.clone()
        }
    }

    fn core(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// The processors that share a core with one, itself left out.
    pub(super) fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let (core, cores) = (self.core(cpu), self.cores());
        (0..self.threads_per_core)
            .map(move |thread| core + thread * cores)
            .filter(move |&at| at != cpu)
    }

    /// The cost of a line that another processor has.
    pub(super) fn transfer_ps(&self, from: usize, to: usize) -> u64 {
        let cluster = |cpu: usize| self.core(cpu) / self.cores_per_cluster;
        let socket = |cpu: usize| cluster(cpu) / self.clusters_per_socket;
        if self.core(from) == self.core(to) {
            self.sibling_ps
        } else if cluster(from) == cluster(to) {
            self.near_ps
        } else if socket(from) == socket(to) {
            self.socket_ps
        } else {
            self.far_ps
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cost_by_distance() {
        let machine = MachineModel {
            threads_per_core: 2,
            cores_per_cluster: 2,
            clusters_per_socket: 2,
            sockets: 2,
            sibling_ps: 1,
            near_ps: 2,
            socket_ps: 3,
            far_ps: 4,
            ..MachineModel::even()
        };
        assert_eq!((machine.cores(), machine.cpus()), (8, 16));
        assert_eq!(
            [8, 1, 9, 2, 11, 4, 15].map(|cpu| machine.transfer_ps(0, cpu)),
            [1, 2, 2, 3, 3, 4, 4]
        );
        assert_eq!(machine.siblings(11).collect::<Vec<_>>(), [3]);
        let doubled = machine.with_costs(2.0);
        assert_eq!((doubled.far_ps, doubled.work_permille), (8, 1000));
    }
}
