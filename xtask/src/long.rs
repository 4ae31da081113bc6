//! Long runs of test suites, which are short in the ordinary tests.
//!
//! A suite is the test programs of one name: `crates/*/tests/NAME.rs` or a folder of that name. They are
//! built optimised but with their assertions, run with their ignored tests, and are told how much to do
//! by a variable of their own.
//!
//! - `stress` has many threads do random operations, `matrix` and `policies` those on every kind of image and
//!   with every policy.
//! - `damage` damages images for as long as `stress` takes, and `fields` each field of an image, for the
//!   checker and for e2fsck. `repairs` damages whole images, and has the repair and e2fsck mend them.
//! - `kernel` has the real kernel of NILFS2 change volumes.
//! - `reshape` changes images of every kind as a whole.
//! - `build` builds an image with a directory of many names.

use crate::process;
use crate::skips::{self, Skips, User};
use crate::suites::{crate_folders, package_name};
use crate::test_program::{TestProgram, run_side_by_side};
use anyhow::ensure;
use std::path::PathBuf;

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

/// Operations of each profile that all kinds of images together get done in a second.
const MATRIX_OPERATIONS_PER_SECOND: u64 = 10;

/// A suite, and how much of it is done.
struct Suite {
    name: &'static str,
    /// The variable that says how much.
    variable: &'static str,
    amount: u64,
}

/// Random operations from many threads, damage, repair and change of images of every kind.
pub fn stress(seconds: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let operations = seconds * MATRIX_OPERATIONS_PER_SECOND;
    let suites = [
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
    ];
    run("stress", &suites.map(|(name, variable, amount)| Suite { name, variable, amount }), seed)
}

/// Many crash images.
pub fn crash(images: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let crash = Suite { name: "crash", variable: "DRYSTONE_CRASH_IMAGES", amount: images };
    run("crash", &[crash], seed)
}

/// Many sequences of system calls on a mount and on the kernel's ext4.
pub fn differential(sequences: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let calls = Suite { name: "differential", variable: "DRYSTONE_SEQUENCES", amount: sequences };
    run("differential", &[calls], seed)
}

/// Runs the programs of some suites, also after one has failed, and lists what they skipped.
fn run(title: &str, suites: &[Suite], seed: Option<u64>) -> anyhow::Result<()> {
    let skips = Skips::begin(title)?;
    let built = build(suites)?;
    let mut programs = Vec::new();
    for suite in suites {
        let count = programs.len();
        for program in built.iter().filter(|built| built.name == suite.name) {
            let (name, mut command) = program.command();
            command.args(["--include-ignored", "--nocapture"]);
            command.env(suite.variable, suite.amount.to_string());
            if let Some(seed) = seed {
                command.env("DRYSTONE_SEED", seed.to_string());
            }
            skips.tell(&mut command);
            programs.push((name, command));
        }
        ensure!(programs.len() > count, "no crate has tests of the name '{}'", suite.name);
    }
    let mut parts = run_side_by_side(&directory().join("logs").join(title), programs)?;
    let wrong = skips::list(&skips.noted()?, User::ours())?;
    parts.run("skips", || skips::expect_none(&wrong));
    parts.end()
}

/// Builds the programs of all crates that have one of the suites.
fn build(suites: &[Suite]) -> anyhow::Result<Vec<TestProgram>> {
    let has_suite = |folder: &&PathBuf| {
        let tests = folder.join("tests");
        let is_there = |name| {
            tests.join(format!("{name}.rs")).is_file() || tests.join(name).join("main.rs").is_file()
        };
        suites.iter().any(|suite| is_there(suite.name))
    };
    let mut cargo = process::cargo(["test", "--release", "--no-run", "--quiet"]);
    for folder in crate_folders()?.iter().filter(has_suite) {
        cargo.args(["--package", &package_name(folder)]);
    }
    for suite in suites {
        cargo.args(["--test", suite.name]);
    }
    // The order of locks is checked with the assertions.
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    cargo.env("CARGO_TARGET_DIR", directory());
    eprintln!("$ {}", process::describe(&cargo));
    TestProgram::build(cargo)
}

fn directory() -> PathBuf {
    process::target_directory().join("long")
}
