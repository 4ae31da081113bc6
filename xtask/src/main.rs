//! What the entry scripts call: `./dev COMMAND` ends in `cargo run -p xtask -- COMMAND`.
#![forbid(unsafe_code)]

mod bench;
mod bench_build;
mod bench_mount;
mod bench_tables;
mod book;
mod capi;
mod ceph;
mod ci;
mod demo;
mod ending;
mod features;
mod fuzz;
mod host;
mod install;
mod judge_damage;
mod judge_mount;
mod judge_repair;
mod long;
mod manual;
mod minimum;
mod notices;
mod ordinary_user;
mod package;
mod parts;
mod pictures;
mod process;
mod python;
mod rings;
mod semver;
mod skips;
mod suites;
mod test_program;
mod tidy;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "What the entry scripts of Drystone call")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that a change must pass.
    Ci,
    /// The rules of style that a tool can check.
    Tidy,
    /// The test suite.
    Test {
        /// Arguments for `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Random operations from many threads.
    Stress {
        /// How long each test runs.
        #[arg(long, default_value_t = 180)]
        seconds: u64,
        /// Repeats a run.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Crash images of recorded workloads.
    Crash {
        /// How many images.
        #[arg(long, default_value_t = 10_000)]
        images: u64,
        /// Repeats a run.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Random system calls on a mount and on the kernel's ext4.
    Differential {
        /// How many sequences of each profile, on each transport.
        #[arg(long, default_value_t = 1_000)]
        sequences: u64,
        /// Where seeds start.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Interleavings of the lock-free parts.
    Loom,
    /// Workloads on virtual cores in virtual time: './dev simulate orphan --explain'.
    #[command(disable_help_flag = true)]
    Simulate {
        /// Workloads and options; '--help' shows them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Random interleavings and crashes of the engine, by a seed.
    #[command(disable_help_flag = true)]
    SimulateFaults {
        /// Options; '--help' shows them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzzing of the formats.
    Fuzz {
        /// The target; all in turn when there is none.
        target: Option<String>,
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Instructions, time and allocations per operation.
    Bench {
        /// Only benchmarks whose name contains one of these.
        filters: Vec<String>,
    },
    /// Scale: large directories, many inodes, memory, threads.
    BenchLong {
        /// Names of measurements; all if there are none.
        measurements: Vec<String>,
    },
    /// The variants of the mechanisms and the kernel's ext4 side by side, with the targets.
    BenchTables(bench_tables::Options),
    /// Our mount beside fuse2fs, the kernel's ext4 and an empty FUSE server.
    BenchMount(bench_mount::Options),
    /// Building an image, side by side with what else builds them.
    BenchBuild(bench_build::Options),
    /// The documentation as HTML.
    Book,
    /// Builds and installs the command.
    Install(install::Options),
    /// A package of the command.
    Package(package::Options),
    /// A Ceph cluster on this machine, and the tests that need one.
    Ceph(ceph::Options),
    /// Builds and installs the library for C.
    Capi(capi::Options),
    /// The library's interface, compared with that of a release or a commit.
    Semver(semver::Options),
    /// The wheel for Python, tested.
    Python(python::Options),
    /// The pictures of the documentation.
    Pictures,
    /// Other people's programs on a mount, and the server killed under them.
    JudgeMount(judge_mount::Options),
    /// The repair on many damaged images, beside e2fsck.
    JudgeDamage(judge_damage::Options),
    /// The repair on the damaged images of e2fsprogs' tests, beside e2fsck.
    JudgeRepair(judge_repair::Options),
    /// A main job on real input, judged by others.
    Demo(demo::Options),
}

fn main() -> std::process::ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    std::env::set_current_dir(process::workspace_root())?;
    match task {
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Test { arguments } => suites::test(&arguments),
        Task::Stress { seconds, seed } => long::stress(seconds, seed),
        Task::Crash { images, seed } => long::crash(images, seed),
        Task::Differential { sequences, seed } => long::differential(sequences, seed),
        Task::Loom => suites::loom(),
        Task::Simulate { arguments } => suites::simulate(&arguments),
        Task::SimulateFaults { arguments } => suites::simulate_faults(&arguments),
        Task::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Task::Bench { filters } => bench::run(&filters),
        Task::BenchLong { measurements } => bench::run_long(&measurements),
        Task::BenchTables(options) => bench_tables::run(&options),
        Task::BenchMount(options) => bench_mount::run(&options),
        Task::BenchBuild(options) => bench_build::run(&options),
        Task::Book => book::run(),
        Task::Install(options) => install::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Ceph(options) => ceph::run(&options),
        Task::Capi(options) => capi::run(&options),
        Task::Semver(options) => semver::run(&options),
        Task::Python(options) => python::run(&options),
        Task::Pictures => pictures::run(),
        Task::JudgeMount(options) => judge_mount::run(&options),
        Task::JudgeDamage(options) => judge_damage::run(&options),
        Task::JudgeRepair(options) => judge_repair::run(&options),
        Task::Demo(options) => demo::run(&options),
    }
}
