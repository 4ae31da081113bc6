//! The workloads of `drystone bench` on virtual cores (`./dev simulate`).
#![deny(unsafe_code)]

#[cfg(sim)]
mod calibrate;
#[cfg(sim)]
mod command;
#[cfg(sim)]
mod device;
#[cfg(sim)]
mod explain;
#[cfg(sim)]
mod faults;
#[cfg(sim)]
mod machine;
#[cfg(sim)]
mod repeatable;
#[cfg(sim)]
mod screen;
#[cfg(sim)]
mod target;
#[cfg(sim)]
mod validation;
#[cfg(sim)]
mod work_file;

#[cfg(not(sim))]
fn main() {
    eprintln!("simulate: built without `--cfg sim`; use ./dev simulate");
    std::process::exit(2);
}

#[cfg(sim)]
fn main() -> std::process::ExitCode {
    repeatable::begin();
    command::main()
}
