//! The test suites and how they find their tests.
//!
//! - Each suite has a short form among the tests of its crate; `long` has the long runs.
//! - Loom explores `crates/*/tests/loom*.rs` and the unit tests in `crates/*/src/**/loom*.rs`, in
//!   a target folder of its own, since `--cfg loom` changes every crate.

use crate::parts::Parts;
use crate::process;
use crate::skips::{self, Skips, User};
use crate::test_program::{TestProgram, run_side_by_side};
use drystone_testkit::skip::Prerequisite;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The whole suite, or what `arguments` of `cargo test` select; lists at the end what was skipped.
pub fn test(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.is_empty() {
        return test_strictly().map(drop);
    }
    let skips = Skips::begin("test")?;
    let mut cargo = process::cargo(["test", "--workspace", "--quiet", "--no-fail-fast"]);
    let tested = process::run(skips.tell(cargo.args(arguments)));
    skips::list(&skips.noted()?, User::ours())?;
    tested
}

/// The whole suite; gives what tests found missing though the machine has it.
pub fn test_strictly() -> anyhow::Result<Vec<Prerequisite>> {
    let skips = Skips::begin("test")?;
    let built = TestProgram::build(build())?;
    let mut programs: Vec<_> = built.iter().map(TestProgram::command).collect();
    for (_, command) in &mut programs {
        skips.tell(command.arg("--quiet"));
    }
    let mut examples =
        process::cargo(["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"]);
    skips.tell(&mut examples);
    programs.insert(0, ("examples in documentation".to_owned(), examples));
    let parts = run_side_by_side(&process::target_directory().join("test-logs"), programs)?;
    let wrong = skips::list(&skips.noted()?, User::ours())?;
    parts.end().map(|()| wrong)
}

/// Compiles the whole suite, including the command and the examples. Building single packages would
/// compile most crates again, because test dependencies add features to them.
pub fn build() -> Command {
    process::cargo(["test", "--workspace", "--no-run", "--quiet"])
}

/// Interleavings.
pub fn loom() -> anyhow::Result<()> {
    let tests = loom_tests()?;
    if tests.is_empty() {
        eprintln!("loom: no crate has a loom test");
    }
    let mut parts = Parts::default();
    for (name, mut cargo) in tests {
        parts.run(&name, || process::run(&mut cargo));
    }
    parts.end()
}

/// The packages that have tests of interleavings, and how they are run.
fn loom_tests() -> anyhow::Result<Vec<(String, Command)>> {
    let mut tests = Vec::new();
    for folder in crate_folders()? {
        let name = package_name(&folder);
        for (sources, selection) in [("tests", ["--test", "loom*"]), ("src", ["--lib", "loom"])] {
            if has_loom_file(&folder.join(sources)) {
                let mut cargo = process::cargo(["test", "--quiet", "--package", &name]);
                cargo.args(selection).env("RUSTFLAGS", "--cfg loom");
                cargo.env("CARGO_TARGET_DIR", process::target_directory().join("loom"));
                tests.push((name.clone(), cargo));
            }
        }
    }
    Ok(tests)
}

/// The engine on virtual cores, in a target folder of its own, since `--cfg sim` changes every crate.
pub fn simulate(arguments: &[String]) -> anyhow::Result<()> {
    process::run(simulation("run", "--cfg sim").args(["--release", "--"]).args(arguments))
}

/// Random interleavings and crashes of the engine, with the assertions of a debug build.
pub fn simulate_faults(arguments: &[String]) -> anyhow::Result<()> {
    process::run(simulation("run", "--cfg sim").args(["--", "faults"]).args(arguments))
}

/// The engine compiles for virtual cores, a simulation repeats, and some seeds of interleavings and crashes
/// are good.
pub fn check_simulation() -> anyhow::Result<()> {
    process::run(&mut simulation_tests())
}

fn simulation_tests() -> Command {
    let mut cargo = simulation("test", "--cfg sim -D warnings");
    // The other tests of `sync` have real threads.
    let tests = ["--lib", "--bins", "--test", "repeats", "--test", "faults"];
    cargo.args(["--package", "drystone-sync"]).args(tests);
    cargo
}

/// Compiles what [`loom`] and [`check_simulation`] run.
pub fn compile_special_tests() -> anyhow::Result<()> {
    for (_, mut cargo) in loom_tests()? {
        process::run(cargo.arg("--no-run"))?;
    }
    process::run(simulation_tests().arg("--no-run"))
}

fn simulation(task: &str, flags: &str) -> Command {
    let mut cargo = process::cargo([task, "--quiet", "--package", "drystone-simulate"]);
    cargo.env("RUSTFLAGS", flags);
    cargo.env("CARGO_TARGET_DIR", process::target_directory().join("simulate"));
    cargo
}

fn has_loom_file(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            has_loom_file(&path)
        } else {
            entry.file_name().to_string_lossy().starts_with("loom")
        }
    })
}

/// The folders of the crates, sorted.
pub fn crate_folders() -> anyhow::Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("crates")?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    folders.sort();
    Ok(folders)
}

/// The package in `crates/NAME`: `drystone-NAME`, but for `drystone` itself.
pub fn package_name(folder: &Path) -> String {
    match folder.file_name().unwrap_or_default().to_string_lossy().as_ref() {
        "drystone" => "drystone".to_string(),
        name => format!("drystone-{name}"),
    }
}
