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

/// Whether somebody asked for the end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the signals over.
    pub fn install() -> std::io::Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
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
