//! Fuzz targets, built by the stable compiler and run as many at once as there are cores.
//!
//! `cargo fuzz` asks for unstable flags, though it needs none without a sanitizer: libFuzzer wants
//! counters of edges and comparisons, which a pass of LLVM puts in. The crates forbid unsafe code, so
//! that no sanitizer of memory is needed. Corpora and findings are where `cargo fuzz` has them.

use crate::parts::{Parts, side_by_side};
use crate::process;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo fuzz --sanitizer none` passes on to the compiler.
const FLAGS: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Most memory of a target, and longest time for one input.
const LIMITS: [&str; 2] = ["-rss_limit_mb=2048", "-timeout=10"];

/// Runs a target, or all of them, for this long each.
pub fn run(target: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    let mut targets = all()?;
    if let Some(target) = target {
        if !targets.iter().any(|name| name == target) {
            bail!("no fuzz target '{target}'; there are: {}", targets.join(", "));
        }
        targets = vec![target.to_owned()];
    }
    let programs = build()?;
    let done = side_by_side(targets, |target| {
        let told = fuzz(&programs, &target, seconds);
        match &told {
            Ok(told) => eprintln!("{target:20} ok: {told}"),
            Err(_) => eprintln!("{target:20} FAILED"),
        }
        (target, told)
    });
    let mut parts = Parts::default();
    for (target, told) in done {
        parts.run(&target, || told.map(drop));
    }
    parts.end()
}

/// The names of all targets, sorted.
fn all() -> anyhow::Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in std::fs::read_dir("fuzz/fuzz_targets")?.flatten() {
        if let Some(name) = entry.path().file_stem() {
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    targets.sort();
    Ok(targets)
}

/// Builds all targets and says where they are.
pub fn build() -> anyhow::Result<PathBuf> {
    let about = process::output(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    let directory = process::target_directory().join("fuzz");
    // With a target, the flags aren't for build scripts and macros.
    let mut cargo = process::cargo(["build", "--release", "--quiet", "--bins", "--target", host]);
    cargo.args(["--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    cargo.env("CARGO_TARGET_DIR", &directory).env("RUSTFLAGS", FLAGS.join(" "));
    process::run(&mut cargo)?;
    Ok(directory.join(host).join("release"))
}

/// Runs a target, and gives what it says at the end.
fn fuzz(programs: &Path, target: &str, seconds: u64) -> anyhow::Result<String> {
    let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| format!("fuzz/{kind}/{target}/"));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(programs.join(target));
    command.args(LIMITS).arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={artifacts}")).arg(&corpus);
    let output = command.output().with_context(|| format!("can't run {target}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {}: {said}", process::describe(&command), output.status);
    }
    Ok(said.lines().last().unwrap_or_default().to_owned())
}
