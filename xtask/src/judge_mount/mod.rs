//! Runs other people's programs on a mount. Each does its work on a fresh image; then `e2fsck` must find nothing
//! and the kernel's ext4 must show what the mount showed. With `--kill` the server is killed in the middle,
//! at different moments each time (`kills`).

mod kills;
mod memory;
mod programs;
mod server;

use crate::ending::{AtEnd, at_end};
use crate::{process, rings};
use anyhow::{bail, ensure};
use memory::MEASURES;
use programs::{PROGRAMS, Program};
use rustix::process::Pid;
use server::server_of;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// How to judge.
#[derive(clap::Args)]
pub struct Options {
    /// Programs to run; all if there are none.
    names: Vec<String>,
    /// Kill the server so many times in each program.
    #[arg(long, default_value_t = 0)]
    kill: u32,
    /// Repeats the moments of a run's kills.
    #[arg(long)]
    seed: Option<u64>,
    /// Files that `walk` walks over.
    #[arg(long, default_value_t = 2_000_000)]
    files: u64,
    /// Files that `open-files` has open at once.
    #[arg(long, default_value_t = 100_000)]
    open_files: u64,
    /// What carries requests.
    #[arg(long, default_value = "best")]
    transport: String,
    /// Where images go.
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
}

/// The name of the directory to mount on.
const MOUNT: &str = "mnt";
/// Longest time that a program may take.
const PROGRAM_SECONDS_MAX: &str = "300";
/// What callers see of a tree, the content included.
const DIGEST: &str = r#"
    cd "$M"; find . -printf '%p %y %m %U %G %s %T@ %l\n' | sed 's/^\(.* d [^ ]* [^ ]* [^ ]*\) [^ ]*/\1/' | sort
    find . -type f -print0 | sort -z | xargs -0 -r sha256sum"#;

pub fn run(options: &Options) -> anyhow::Result<()> {
    for name in &options.names {
        let measures = MEASURES.iter().map(|measure| measure.name);
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).chain(measures).collect();
        ensure!(known.contains(&&name[..]), "no program '{name}'; there are: {}", known.join(", "));
    }
    // With its assertions.
    let cli = ["build", "--quiet", "--package", "drystone-cli"];
    process::run(&mut process::cargo(cli))?;
    let _offer = rings::offer(&options.transport)?;
    let is_chosen = |name| options.names.is_empty() || options.names.iter().any(|n| n == name);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    if options.kill > 0 {
        println!("kills of --seed {seed}");
    }
    let mut failed = Vec::new();
    let mut tell = |name, start: SystemTime, result: anyhow::Result<String>| {
        let seconds = start.elapsed().unwrap_or_default().as_secs_f64();
        match &result {
            Ok(told) => println!("{name:16} ok, {seconds:.1} s{told}"),
            Err(error) => println!("{name:16} FAILED after {seconds:.1} s: {error:#}"),
        }
        failed.extend(result.is_err().then_some(name));
    };
    for program in PROGRAMS.iter().filter(|program| is_chosen(program.name)) {
        let start = SystemTime::now();
        let result = expect_installed(program).and_then(|()| match options.kill {
            0 => JudgedMount::new(options)
                .and_then(|judged| judged.judge(program))
                .map(|()| String::new()),
            times => kills::judge(options, program, times, seed),
        });
        tell(program.name, start, result);
    }
    // Killing these would show nothing new.
    for measure in MEASURES.iter().filter(|one| options.kill == 0 && is_chosen(one.name)) {
        let start = SystemTime::now();
        tell(measure.name, start, (measure.judge)(options));
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// `./dev` installs all of them, so that none is left out.
fn expect_installed(program: &Program) -> anyhow::Result<()> {
    for need in program.needs {
        let mut find = Command::new("sh");
        let found = find.args(["-c", "command -v \"$0\"", need]).stdout(Stdio::null()).status();
        ensure!(found.is_ok_and(|status| status.success()), "{need} is not installed");
    }
    Ok(())
}

/// A fresh image and where it is mounted. Unmounted and deleted when dropped.
struct JudgedMount {
    drystone: PathBuf,
    scratch: PathBuf,
    image: PathBuf,
    mount: PathBuf,
    elsewhere: PathBuf,
    options: String,
    _end: AtEnd,
}

impl JudgedMount {
    fn new(options: &Options) -> anyhow::Result<JudgedMount> {
        let judged = JudgedMount::unmade(options)?;
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-F", "-text4", "-Oorphan_file", "-N300000", "-m0"]);
        process::output(make.arg(&judged.image).arg("2G"))?;
        judged.mount()?;
        std::fs::create_dir(judged.work())?;
        std::fs::create_dir(judged.witnessed())?;
        Ok(judged)
    }

    /// The places for all of it; there is no image yet.
    fn unmade(options: &Options) -> anyhow::Result<JudgedMount> {
        let scratch = options.scratch.join(format!("drystone-judge-{}", std::process::id()));
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch)?;
        }
        let drystone = process::target_directory().join("debug/drystone");
        let end = at_end({
            let (drystone, scratch) = (drystone.clone(), scratch.clone());
            move || {
                // Errors are ignored: a failure has been reported already. What a failed script has left
                // keeps the mount, and the next judge would meet its server.
                if let Ok(server) = server_of(&drystone, &scratch.join(MOUNT)) {
                    let _ = server::kill(server);
                }
                let _ = Command::new("umount").arg("-ql").arg(scratch.join(MOUNT)).status();
                let _ = std::fs::remove_dir_all(scratch);
            }
        })?;
        let judged = JudgedMount {
            drystone,
            image: scratch.join("disk.img"),
            mount: scratch.join(MOUNT),
            elsewhere: scratch.join("elsewhere"),
            options: format!("allow_other,transport={}", options.transport),
            scratch,
            _end: end,
        };
        std::fs::create_dir_all(&judged.mount)?;
        std::fs::create_dir_all(&judged.elsewhere)?;
        Ok(judged)
    }

    fn work(&self) -> PathBuf {
        self.mount.join("work")
    }

    /// The directory of the witness.
    fn witnessed(&self) -> PathBuf {
        self.mount.join("witnessed")
    }

    fn mount(&self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.drystone);
        command.arg("mount").args([&self.image, &self.mount]).args(["-o", &self.options]);
        process::output(&mut command).map(drop)
    }

    fn unmount(&self) -> anyhow::Result<()> {
        process::output(Command::new(&self.drystone).arg("umount").arg(&self.mount)).map(drop)
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args([PROGRAM_SECONDS_MAX, "bash", "-euo", "pipefail", "-c", script]);
        command.env("M", self.work()).env("T", &self.elsewhere).stdin(Stdio::null());
        // This program has been started by cargo, and another one may be.
        command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
        command
    }

    fn judge(&self, program: &Program) -> anyhow::Result<()> {
        process::output(&mut self.shell(program.prepare))?;
        process::output(&mut self.shell(program.script))?;
        let shown = process::output(&mut self.shell(DIGEST))?;
        self.unmount()?;
        self.check()?;
        let mut mount = Command::new("mount");
        process::output(mount.args(["-o", "loop,ro"]).args([&self.image, &self.mount]))?;
        let seen = process::output(&mut self.shell(DIGEST));
        process::output(Command::new("umount").arg(&self.mount))?;
        let seen = seen?;
        let differs = shown.lines().zip(seen.lines()).find(|(shown, seen)| shown != seen);
        if let Some((shown, seen)) = differs {
            bail!("the kernel sees another tree: '{shown}' became '{seen}'");
        }
        ensure!(shown.len() == seen.len(), "the kernel sees more or fewer files");
        Ok(())
    }

    fn server(&self) -> anyhow::Result<Pid> {
        server_of(&self.drystone, &self.mount)
    }

    fn check(&self) -> anyhow::Result<()> {
        process::output(Command::new("e2fsck").arg("-fn").arg(&self.image)).map(drop)
    }
}
