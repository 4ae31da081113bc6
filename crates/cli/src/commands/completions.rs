//! `completions`: prints a script that completes the command's arguments in a shell.

use crate::failure::Outcome;
use std::io::Write;

/// Print a script that completes arguments in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  drystone completions bash > /etc/bash_completion.d/drystone
  drystone completions zsh > ~/.zfunc/_drystone")]
pub struct Arguments {
    /// The shell.
    shell: clap_complete::Shell,
}

/// `definition` is that of the whole command line.
pub fn run(arguments: &Arguments, definition: fn() -> clap::Command) -> Outcome {
    // Written in one go: `generate` panics if a writer fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "drystone", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
