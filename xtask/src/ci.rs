//! Everything that a change must pass; what fails soonest comes first.

use crate::host::Host;
use crate::{
    book, demo, features, fuzz, minimum, ordinary_user, process, semver, skips, suites, tidy,
};
use drystone_sync::thread;
use std::process::Command;
use std::time::SystemTime;

/// Seconds that each fuzz target runs.
const FUZZ_SECONDS: u64 = 5;

/// What is added to the niceness of work that fills gaps.
const LOWEST_PRIORITY: i32 = 19;

/// The outcome of a step that didn't fail.
pub enum Verdict {
    Passed,
    /// What this machine can't do, and why.
    Impossible(String),
}

type Step = (&'static str, fn() -> anyhow::Result<Verdict>);

const STEPS: [Step; 16] = [
    ("format", || passed(format())),
    ("tidy", || passed(tidy::run())),
    ("book", book::check),
    ("package", || passed(package())),
    ("semver", semver::check),
    ("clippy", || passed(clippy())),
    ("features", || passed(features::run())),
    ("docs", || passed(docs())),
    ("tests", || passed(tests())),
    ("ordinary user", ordinary_user::run),
    ("examples", || passed(examples())),
    ("loom", || passed(suites::loom())),
    ("simulate", || passed(suites::check_simulation())),
    ("fuzz", || passed(fuzz::run(None, FUZZ_SECONDS))),
    ("minimum Rust", minimum::run),
    ("demo", || passed(demo::run(&demo::Options::short()))),
];

fn passed(result: anyhow::Result<()>) -> anyhow::Result<Verdict> {
    result.map(|()| Verdict::Passed)
}

/// Runs every step, also after one has failed, and fails if any did, or if the host isn't left as it
/// was.
pub fn run() -> anyhow::Result<()> {
    let host = Host::now();
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    let mut tell = |name, start: SystemTime, result: anyhow::Result<Verdict>| {
        let seconds = start.elapsed().unwrap_or_default().as_secs_f64();
        let verdict = match result {
            Ok(Verdict::Passed) => "ok".to_owned(),
            Ok(Verdict::Impossible(why)) => format!("the machine can't: {why}"),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failed.push(name);
                "FAILED".to_owned()
            }
        };
        lines.push(format!("{name:14} {seconds:7.1} s  {verdict}"));
    };
    for (name, step) in STEPS {
        eprintln!("== {name}");
        tell(name, SystemTime::now(), step());
    }
    tell("host", SystemTime::now(), passed(host.expect_unchanged()));
    eprintln!("== summary");
    for line in lines {
        eprintln!("{line}");
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// The tests wait half of the time, for disks, mounts and virtual machines. Meanwhile the programs of
/// later steps are compiled, at a priority that leaves the tests the processors that they want.
fn tests() -> anyhow::Result<()> {
    process::run(&mut suites::build())?;
    thread::scope(|scope| {
        scope.spawn(|| {
            // Linux gives each thread a priority of its own, which its children inherit.
            let lowered = rustix::process::nice(LOWEST_PRIORITY);
            // The steps that run them say what is wrong.
            let _ = lowered.map(|_| (suites::compile_special_tests(), fuzz::build()));
        });
        skips::expect_none(&suites::test_strictly()?)
    })
}

/// What would be published can be packed: each package names its licence, its version and those of what
/// it uses. Packages aren't compiled again.
fn package() -> anyhow::Result<()> {
    process::run(&mut process::cargo([
        "package",
        "--workspace",
        "--exclude",
        "xtask",
        "--exclude",
        "drystone-manual",
        "--exclude",
        "drystone-simulate",
        "--no-verify",
        "--allow-dirty",
        "--quiet",
    ]))
}

fn format() -> anyhow::Result<()> {
    process::run(&mut process::cargo(["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"];
    process::run(&mut process::cargo(fuzz))
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
    process::run(&mut suites::build())?;
    let folder = process::target_directory().join("examples-run");
    std::fs::create_dir_all(&folder)?;
    for (example, arguments) in [("hello", &[][..]), ("copy_tree", &["docs"])] {
        let image = folder.join("example.img");
        let program = process::target_directory().join("debug/examples").join(example);
        process::run(Command::new(program).args(arguments).arg(&image))?;
        process::run(Command::new("e2fsck").arg("-fn").arg(&image))?;
        std::fs::remove_file(&image)?;
    }
    Ok(std::fs::remove_dir(&folder)?)
}
