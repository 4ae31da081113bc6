//! Test programs that cargo has built, and running them side by side.
//!
//! Most tests wait half of the time, for disks, mounts and other programs. So as many programs run at once
//! as there are cores, each with its output in a file.

use crate::parts::{Parts, side_by_side};
use crate::process;
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Lines of a failed program's output that are printed.
const LINES_SHOWN: usize = 200;

/// A test program.
#[derive(Debug)]
pub struct TestProgram {
    /// The test target.
    pub name: String,
    /// The folder of the package, in which cargo runs the program.
    pub directory: PathBuf,
    pub executable: PathBuf,
}

/// A message of cargo.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl TestProgram {
    /// The programs that a call of `cargo test --no-run` builds.
    pub fn build(mut cargo: Command) -> anyhow::Result<Vec<TestProgram>> {
        let output = cargo
            .arg("--message-format=json-render-diagnostics")
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "the tests can't be built");
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        let programs = messages.filter(|message| message.profile.as_ref().is_some_and(|p| p.test));
        let programs = programs.filter_map(|message| {
            Some(TestProgram {
                name: message.target?.name,
                directory: message.manifest_path?.parent()?.to_owned(),
                executable: message.executable?,
            })
        });
        let programs: Vec<_> = programs.collect();
        ensure!(!programs.is_empty(), "cargo names no test programs");
        Ok(programs)
    }

    /// A call of the program in the folder in which cargo runs it, and a name for it.
    pub fn command(&self) -> (String, Command) {
        let package = self.directory.file_name().unwrap_or_default().to_string_lossy();
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory);
        (format!("{} of {package}", self.name), command)
    }
}

/// Runs programs, as many at once as there are cores, with their output in the folder `logs`; tells when
/// each begins and ends.
pub fn run_side_by_side(logs: &Path, programs: Vec<(String, Command)>) -> anyhow::Result<Parts> {
    fs::create_dir_all(logs)?;
    eprintln!("{} programs, whose output goes to {}", programs.len(), logs.display());
    let done = side_by_side(programs, |(name, mut command)| {
        let start = SystemTime::now();
        eprintln!("{name}: begun");
        let log = logs.join(name.replace([' ', '/'], "-")).with_extension("log");
        let ended = run_logged(&mut command, &log);
        let verdict = if ended.is_ok() { "ok" } else { "FAILED" };
        eprintln!("{name}: {verdict} after {} s", start.elapsed().unwrap_or_default().as_secs());
        (name, ended)
    });
    let mut parts = Parts::default();
    for (name, ended) in done {
        parts.run(&name, || ended);
    }
    Ok(parts)
}

/// Runs a program whose output goes to a file; if it fails, the error has the end of that.
fn run_logged(command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let output = File::create(log)?;
    command.stdout(output.try_clone()?).stderr(output);
    let status = command.status().with_context(|| process::describe(command))?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    bail!("{}: {status}; the end of {}:\n{last}", process::describe(command), log.display())
}
