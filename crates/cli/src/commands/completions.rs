//! `completions`: a script that completes the command's arguments in a shell.

use crate::failure::Outcome;
use clap::CommandFactory;

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

pub fn run(arguments: &Arguments) -> Outcome {
    let mut command = crate::arguments::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "drystone", &mut std::io::stdout());
    Ok(())
}
