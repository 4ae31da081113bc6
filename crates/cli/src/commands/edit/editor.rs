//! The editor.

use crate::failure::{Failure, Outcome};
use anyhow::{Context, anyhow};
use drystone_sync::Arc;
use drystone_sync::atomic::AtomicBool;
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::{SigId, flag, low_level};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Runs the user's editor on a file, and fails if it does.
pub fn run(file: &Path) -> Outcome {
    let editor = chosen();
    // What a terminal sends to both is for the editor.
    let _quiet = QuietSignals::new()?;
    // It may have options of its own, as with git.
    let mut script = editor.clone();
    script.push(r#" "$@""#);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").arg(file);
    let name = editor.display();
    let status = command.status().with_context(|| format!("can't start the editor '{name}'"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow!(
            "the editor '{name}' failed ({status}); nothing was changed"
        ))),
    }
}

fn chosen() -> OsString {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| OsString::from("vi"))
}

/// As long as it lives, Control-C and the like don't end this process. A program that it starts has
/// them as usual.
struct QuietSignals(Vec<SigId>);

impl QuietSignals {
    fn new() -> std::io::Result<QuietSignals> {
        let seen = Arc::new(AtomicBool::new(false));
        let register = |signal| flag::register(signal, Arc::clone(&seen));
        [SIGINT, SIGQUIT].into_iter().map(register).collect::<Result<_, _>>().map(QuietSignals)
    }
}

impl Drop for QuietSignals {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            low_level::unregister(id);
        }
    }
}
