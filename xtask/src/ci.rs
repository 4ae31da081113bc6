//! Everything that a change must pass, in the order in which it fails soonest.

use crate::{demo, process, suites, tidy};
use std::time::SystemTime;

type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: [Step; 8] = [
    ("format", format),
    ("tidy", tidy::run),
    ("clippy", clippy),
    ("docs", docs),
    ("tests", || suites::test(&[])),
    ("examples", examples),
    ("loom", suites::loom),
    ("demo", || demo::run(&demo::Options::short())),
];

/// Runs every step, also after one has failed, and fails if any did.
pub fn run() -> anyhow::Result<()> {
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        eprintln!("== {name}");
        let start = SystemTime::now();
        let result = step();
        let seconds = start.elapsed().unwrap_or_default().as_secs_f64();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        lines.push(format!("{name:8} {verdict:7} {seconds:7.1} s"));
        if let Err(error) = result {
            eprintln!("{name}: {error:#}");
            failed.push(name);
        }
    }
    eprintln!("== summary");
    for line in lines {
        eprintln!("{line}");
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn format() -> anyhow::Result<()> {
    process::run(&mut process::cargo(["fmt", "--all", "--check"]))
}

fn clippy() -> anyhow::Result<()> {
    process::run(&mut process::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn docs() -> anyhow::Result<()> {
    process::run(
        process::cargo(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The examples of the library, which the tests have only compiled.
fn examples() -> anyhow::Result<()> {
    let folder = process::target_directory().join("examples-run");
    std::fs::create_dir_all(&folder)?;
    for (example, arguments) in [("hello", &[][..]), ("copy_tree", &["docs"])] {
        let image = folder.join("example.img");
        let mut run =
            process::cargo(["run", "--quiet", "--package", "drystone", "--example", example]);
        process::run(run.arg("--").args(arguments).arg(&image))?;
        process::run(std::process::Command::new("e2fsck").arg("-fn").arg(&image))?;
        std::fs::remove_file(&image)?;
    }
    Ok(std::fs::remove_dir(&folder)?)
}
