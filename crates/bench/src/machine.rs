//! What the measurements were made on.

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as it calls itself; for a simulation, the simulated machine.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in MiB; 0 for a simulation.
    pub memory_mib: u64,
    /// The kernel's release; empty for a simulation.
    pub kernel: String,
    /// Whether the program was compiled without optimisation, which makes every figure worthless.
    pub debug_build: bool,
    /// When, in seconds since 1970.
    pub time_seconds: i64,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Machine {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: field(&processors, "model name").unwrap_or("unknown").to_string(),
            cores: drystone_sync::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field(&memory, "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kibibytes| kibibytes >> 10),
            kernel: kernel.trim().to_string(),
            debug_build: cfg!(debug_assertions),
            time_seconds: drystone_sync::clock::wall().0,
        }
    }
}

/// The value of the first line `NAME : VALUE`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A CPU: fast\nmodel name : B\n";
        assert_eq!(field(text, "model name"), Some("A CPU: fast"));
        assert_eq!(field(text, "bogomips"), None);
        assert!(Machine::this().cores > 0);
    }
}
