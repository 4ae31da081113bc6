//! The test suites and how they find their tests.
//!
//! - Tests in `crates/*/tests/stress.rs` and `crash.rs`, or folders of these names, run shortly in
//!   the ordinary suite. The long runs build them optimised but with their assertions, include the
//!   ignored ones and say how much to do through `DRYSTONE_STRESS_SECONDS`,
//!   `DRYSTONE_CRASH_IMAGES` and `DRYSTONE_SEED`.
//! - `crates/*/tests/damage` damages images for as long as the stress suite takes, and
//!   `crates/*/tests/fields` each field of an image, for the checker and for e2fsck.
//!   `crates/*/tests/repairs` damages whole images, and has the repair and e2fsck mend them.
//! - `crates/*/tests/kernel` has the real kernel of NILFS2 change volumes, for the stress suite too.
//! - `crates/*/tests/reshape` changes images of every kind as a whole, for the stress suite too.
//! - `crates/*/tests/build` builds an image with a directory of many names, for the stress suite too.
//! - Loom explores `crates/*/tests/loom*.rs` and the unit tests in `crates/*/src/**/loom*.rs`, in
//!   a target folder of its own, since `--cfg loom` changes every crate.

use crate::parts::Parts;
use crate::process;
use crate::skips::{self, Skips, User};
use anyhow::bail;
use drystone_testkit::skip::Prerequisite;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kinds of images that the damage suite does one after the other.
const DAMAGE_KINDS: u64 = 14;

/// Seconds that it takes to give each field of the suite's seven images one wrong value.
const SECONDS_PER_VALUE: u64 = 120;

/// Damaged images that are repaired in both ways, and judged, in a second.
const REPAIRS_PER_SECOND: u64 = 5;

/// Seconds in which volumes of NILFS2 of each layout are changed by the kernel and the engine.
const SECONDS_PER_LIFE: u64 = 200;

/// Names in one directory of an image that is built.
const NAMES: u64 = 1_000_000;

/// Seconds in which images of each kind are changed as a whole once, and judged.
const SECONDS_PER_CHANGE: u64 = 30;

/// The whole suite; lists at the end what was skipped.
pub fn test(arguments: &[String]) -> anyhow::Result<()> {
    test_strictly(arguments).map(drop)
}

/// The whole suite; gives what tests found missing though the machine has it.
pub fn test_strictly(arguments: &[String]) -> anyhow::Result<Vec<Prerequisite>> {
    let skips = Skips::begin("test")?;
    let mut cargo = process::cargo(["test", "--workspace", "--quiet", "--no-fail-fast"]);
    let tested = process::run(skips.tell(cargo.args(arguments)));
    let wrong = skips::list(&skips.noted()?, User::ours())?;
    tested.map(|()| wrong)
}

/// Compiles the whole suite, including the command and the examples. Building single packages would
/// compile most crates again, because test dependencies add features to them.
pub fn build() -> Command {
    process::cargo(["test", "--workspace", "--no-run", "--quiet"])
}

/// Operations of each profile that all kinds of images together get done in a second.
const MATRIX_OPERATIONS_PER_SECOND: u64 = 10;

/// Long runs of random operations from many threads, on every kind of image, with every policy.
pub fn stress(seconds: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let operations = seconds * MATRIX_OPERATIONS_PER_SECOND;
    let mut parts = Parts::default();
    for (name, variable, amount) in [
        ("stress", "DRYSTONE_STRESS_SECONDS", seconds),
        // Each kind of image gets this long.
        ("damage", "DRYSTONE_STRESS_SECONDS", seconds / DAMAGE_KINDS),
        ("fields", "DRYSTONE_FIELD_VALUES", seconds.div_ceil(SECONDS_PER_VALUE)),
        ("repairs", "DRYSTONE_DAMAGED_IMAGES", seconds * REPAIRS_PER_SECOND),
        ("matrix", "DRYSTONE_OPERATIONS", operations),
        ("policies", "DRYSTONE_OPERATIONS", operations),
        ("kernel", "DRYSTONE_LIVES", seconds.div_ceil(SECONDS_PER_LIFE)),
        ("reshape", "DRYSTONE_CHANGES", seconds.div_ceil(SECONDS_PER_CHANGE)),
        ("build", "DRYSTONE_NAMES", NAMES),
    ] {
        parts.run(name, || long_suite(name, variable, amount, seed));
    }
    parts.end()
}

/// Many crash images.
pub fn crash(images: u64, seed: Option<u64>) -> anyhow::Result<()> {
    long_suite("crash", "DRYSTONE_CRASH_IMAGES", images, seed)
}

/// Many sequences of system calls on a mount and on the kernel's ext4.
pub fn differential(sequences: u64, seed: Option<u64>) -> anyhow::Result<()> {
    long_suite("differential", "DRYSTONE_SEQUENCES", sequences, seed)
}

fn long_suite(name: &str, variable: &str, amount: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let packages: Vec<String> = crate_folders()?
        .iter()
        .filter(|folder| {
            let tests = folder.join("tests");
            tests.join(format!("{name}.rs")).is_file() || tests.join(name).join("main.rs").is_file()
        })
        .flat_map(|folder| ["--package".to_string(), package_name(folder)])
        .collect();
    if packages.is_empty() {
        bail!("no crate has tests/{name}.rs or tests/{name}/main.rs");
    }
    let mut command = process::cargo(["test", "--release", "--no-fail-fast"]);
    command.args(packages).args(["--test", name]).env(variable, amount.to_string());
    // The order of locks is checked with the assertions.
    command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    command.env("CARGO_TARGET_DIR", process::target_directory().join("long"));
    if let Some(seed) = seed {
        command.env("DRYSTONE_SEED", seed.to_string());
    }
    let skips = Skips::begin(name)?;
    let tested =
        process::run(skips.tell(&mut command).args(["--", "--include-ignored", "--nocapture"]));
    let wrong = skips::list(&skips.noted()?, User::ours())?;
    tested.and_then(|()| skips::expect_none(&wrong))
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

/// The engine compiles for virtual cores, and a simulation repeats.
pub fn check_simulation() -> anyhow::Result<()> {
    process::run(&mut simulation_tests())
}

fn simulation_tests() -> Command {
    simulation("test", "--cfg sim -D warnings")
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
