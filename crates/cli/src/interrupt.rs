//! Interrupts: Control-C, and the signals by which a system asks a program to end.
//!
//! The first one makes a long command stop and close its image cleanly, or take back a change of the whole image. A
//! second one ends the process at once; the next command then replays the journal, or takes back the change. A signal that was ignored when the program
//! started, as under `nohup`, stays ignored.

use drystone_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use drystone_sync::{Arc, OnceLock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// What shells add to a signal's number for the code of a program that it ended.
const ENDED_BY_SIGNAL: u8 = 128;

/// The signals by which this process may be asked to end: none that was ignored when it was started.
pub fn signals_to_end() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    let is_heeded = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heeded).collect()
}

/// The signals that a process ignores, as bits, from its status in `/proc`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether an interrupt has come.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Installs the signal handlers. A later command of a shell takes those that are there, and forgets the
    /// signals before it.
    pub fn install() -> std::io::Result<Interrupt> {
        static INSTALLED: OnceLock<Interrupt> = OnceLock::new();
        match INSTALLED.get() {
            Some(installed) => installed.asked.store(false, Ordering::Relaxed),
            // Only the thread of the commands calls this.
            None => drop(INSTALLED.set(Interrupt::install_once()?)),
        }
        INSTALLED.get().cloned().ok_or_else(|| std::io::Error::other("no signal handlers"))
    }

    fn install_once() -> std::io::Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicUsize::new(0));
        for signal in signals_to_end() {
            // Handlers run in this order: the first signal finds the flag unset, the second one
            // ends the process.
            let code = i32::from(ENDED_BY_SIGNAL) + signal;
            flag::register_conditional_shutdown(signal, code, Arc::clone(&asked))?;
            flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Interrupt { asked, signal: number })
    }

    /// From now on a signal ends the process at once, until [`install`](Interrupt::install) is called again.
    pub fn end_at_next(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// From now on the process ends as soon as its terminal goes away: nothing is left to draw on, and
    /// crossterm reads from it for ever.
    pub fn end_with_terminal() -> std::io::Result<()> {
        if signals_to_end().contains(&SIGHUP) {
            let code = i32::from(ENDED_BY_SIGNAL) + SIGHUP;
            flag::register_conditional_shutdown(SIGHUP, code, Arc::new(AtomicBool::new(true)))?;
        }
        Ok(())
    }

    /// True after the first signal.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The flag that a signal sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// The code to end with: 130 after Control-C, as shells have it.
    pub fn code(&self) -> u8 {
        // Signals have small numbers.
        ENDED_BY_SIGNAL + self.signal.load(Ordering::Relaxed) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits() {
        let status = "Name:\tdrystone\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << 12);
        assert_eq!(ignored(""), 0);
    }
}
