//! Control-C, and the signals by which a system asks a program to end.
//!
//! The first one asks a long command to stop where it is and close its image as it should be; a
//! second one ends it at once, after which the next command replays the journal.

use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicBool, Ordering};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The code that shells give a program that Control-C ended.
pub const INTERRUPTED: u8 = 130;

/// The signals by which a program is asked to end, but not those that whoever started it has it ignore, as
/// `nohup` does with SIGHUP: these stay ignored.
pub fn signals_to_end() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_signals(&status);
    let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect()
}

/// The set of ignored signals in the system's description of a process: bit 0 is signal 1.
fn ignored_signals(status: &str) -> u64 {
    let word = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    word.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
}

/// Whether somebody asked for the end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the signals over.
    pub fn install() -> std::io::Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in signals_to_end() {
            // Run in this order: the first signal finds the flag down, the second one ends us.
            flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Interrupt(asked))
    }

    /// True after the first signal.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        assert_eq!(ignored_signals("Name:\tcat\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored_signals(""), 0);
    }
}
