//! The costs of a simulated machine.

/// A machine: its shape, and its costs in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineModel {
    /// Cores that share a cache of the last level.
    pub cores_per_cluster: usize,
    /// Clusters of a socket.
    pub clusters_per_socket: usize,
    /// Sockets.
    pub sockets: usize,
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
    /// Work between two events.
    pub work_ps: u64,
    /// How long a waiter for a lock spins before it sleeps.
    pub spin_ps: u64,
    /// What waking another thread costs the waker.
    pub wake_ps: u64,
    /// The time from then until the woken thread runs.
    pub wake_latency_ps: u64,
    /// The time from starting a thread until it runs.
    pub spawn_ps: u64,
}

impl MachineModel {
    /// Two sockets of 64 cores, as sold in 2023: clusters of eight cores. Latencies between cores are
    /// those that public measurements give for EPYC Milan (Chips and Cheese; nviennot/core-to-core-latency):
    /// 23 ns in a cluster, 107 ns across, 197 ns to the other socket.
    #[must_use]
    pub fn two_sockets_128() -> MachineModel {
        MachineModel {
            cores_per_cluster: 8,
            clusters_per_socket: 8,
            sockets: 2,
            near_ps: 23_000,
            socket_ps: 107_000,
            far_ps: 197_000,
            memory_ps: 90_000,
            hit_ps: 500,
            atomic_ps: 6_000,
            work_ps: 10_000,
            spin_ps: 3_000_000,
            wake_ps: 1_000_000,
            wake_latency_ps: 5_000_000,
            spawn_ps: 20_000_000,
        }
    }

    /// A machine whose events take as long as each other, and where nothing else takes time: for runs that
    /// don't ask what things cost.
    #[must_use]
    pub fn even(event_ps: u64) -> MachineModel {
        MachineModel {
            cores_per_cluster: 8,
            clusters_per_socket: 1,
            sockets: 1,
            near_ps: 0,
            socket_ps: 0,
            far_ps: 0,
            memory_ps: 0,
            hit_ps: 0,
            atomic_ps: 0,
            work_ps: event_ps,
            spin_ps: 0,
            wake_ps: 0,
            wake_latency_ps: 0,
            spawn_ps: 0,
        }
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores_per_cluster * self.clusters_per_socket * self.sockets
    }

    /// The cost of a line that another core has.
    pub(super) fn transfer_ps(&self, from: usize, to: usize) -> u64 {
        let cluster = |core: usize| core / self.cores_per_cluster;
        let socket = |core: usize| cluster(core) / self.clusters_per_socket;
        if cluster(from) == cluster(to) {
            self.near_ps
        } else if socket(from) == socket(to) {
            self.socket_ps
        } else {
            self.far_ps
        }
    }
}
