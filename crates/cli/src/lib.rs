//! The `drystone` command.
//!
//! It is thin on purpose: the library does the work, through `FileSystem` for files and through calls such
//! as `check_image` for whole images.
//! `arguments` is the command line, `global` what all commands take; `commands` has one module for each
//! command; `image` opens the images that they work on; `output` formats what they print.
//!
//! The program is a call of [`main`]; the manual pages are made from the [`definition`].
#![deny(unsafe_code)]
// These macros panic if standard output is closed, and an image may be open: see `messages` and `terminal`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accounts;
mod acl;
mod allocator;
mod arguments;
mod called_as;
mod commands;
mod failure;
mod flags;
mod global;
mod image;
mod interrupt;
mod location;
mod messages;
mod mode;
mod mounting;
mod mounts;
mod output;
mod owners;
mod progress;
mod shell_image;
mod size;
mod terminal;
#[cfg(test)]
mod testing;
mod tree;
mod walk;
mod wrong_call;

use arguments::Arguments;
use clap::CommandFactory;
use commands::Command;
use failure::Failure;
use std::process::ExitCode;
use wrong_call::with_advice;

/// The definition of the command line.
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Does what the arguments of the process say.
pub fn main() -> ExitCode {
    allocator::keep_freed_memory_for_a_while();
    let arguments = Arguments::read();
    if matches!(arguments.command, Command::Check(_)) {
        allocator::take_no_more_memory_than_needed();
    }
    // A mount decides itself where its messages go.
    if !matches!(arguments.command, Command::Mount(_)) {
        arguments.global.start_tracing();
    }
    match commands::run(&arguments.command, &arguments.global, definition) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            Failure::Usage(with_advice(&message, &arguments.called)).report()
        }
        Err(failure) => failure.report(),
    }
}
