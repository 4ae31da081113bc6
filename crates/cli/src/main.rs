//! The program `drystone`.
#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    drystone_cli::main()
}
