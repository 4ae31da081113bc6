//! The same arguments give the same bytes; other seeds give others.
#![cfg(sim)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

fn run(variable: &str, arguments: &str) -> Vec<u8> {
    let mut simulate = Command::new(env!("CARGO_BIN_EXE_drystone-simulate"));
    simulate.env("ANY", variable).args(arguments.split_whitespace());
    let output = simulate.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn the_same_arguments_give_the_same_bytes() {
    let arguments = "orphan creat-clo --cores 1,6 --ops 100 --explain";
    let first = run("", arguments);
    assert_eq!(first, run("something that takes room", arguments));
    assert_ne!(first, run("", &format!("{arguments} --seeds 2")));
}
