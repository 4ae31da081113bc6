//! Random interleavings and power cuts: some seeds are good, some planted defects are found, and a seed
//! repeats.
#![cfg(sim)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn faults(arguments: &str) -> Output {
    let mut simulate = Command::new(env!("CARGO_BIN_EXE_drystone-simulate"));
    simulate.arg("faults").args(arguments.split_whitespace()).output().unwrap()
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout[..], &output.stderr[..]];
    String::from_utf8_lossy(&parts.concat()).into_owned()
}

#[test]
fn seeds_are_good() {
    let output = faults("--seeds 300");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("300 seeds: 0 failed, 0 undecided"), "{}", text(&output));
}

#[test]
fn planted_defects_are_found() {
    for name in ["commit-without-flush", "lost-wakeup", "unlink-without-orphan"] {
        let output = faults(&format!("--plant {name} --seeds 100"));
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains(&format!("{name}: found by seed")), "{}", text(&output));
    }
    assert!(!faults("--plant anything").status.success());
}

#[test]
fn a_seed_repeats() {
    let first = text(&faults("--seed 5"));
    assert!(first.contains("trace") && first.contains("nothing is wrong"), "{first}");
    assert_eq!(first, text(&faults("--seed 5")));
    assert_ne!(first, text(&faults("--seed 5 --schedule 6")));
    assert_ne!(first, text(&faults("--seed 5 --keep 1,2,3")));
}
