//! The `drystone` command: ext4 images, with and without mounting them.
//!
//! Thin on purpose: everything it does to an image goes through the library's `FileSystem`.
//! `arguments` says what may be asked, `commands` has one module for each command, `image` opens
//! what they work on, `output` is how they print.
#![deny(unsafe_code)]
// They panic if nobody reads what they print, with an image open: see `terminal`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator;
mod arguments;
mod called_as;
mod commands;
mod failure;
mod image;
mod interrupt;
mod location;
mod mode;
mod mounting;
mod output;
mod progress;
mod size;
mod terminal;
#[cfg(test)]
mod testing;
mod tree;
mod unfinished;
mod walk;

use arguments::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_freed_memory_for_a_while();
    let arguments = Arguments::read();
    // A mount says itself where its messages go.
    if !matches!(arguments.command, arguments::Command::Mount(_)) {
        arguments.global.start_tracing();
    }
    match commands::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
