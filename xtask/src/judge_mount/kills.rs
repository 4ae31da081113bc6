//! Kills the server while a program works, at moments that follow from a seed. Then it must be possible to mount the
//! image, what was synced must be there with its content, and `e2fsck` must find nothing.
//!
//! Beside the program a witness writes and syncs files of its own and keeps outside of the mount what
//! it was promised; programs that know what they were promised are asked as well.

use super::programs::Program;
use super::{JudgedMount, Options, server};
use crate::process;
use anyhow::Context;
use drystone_sync::thread;
use drystone_testkit::witness::Witness;
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between two syncs of the witness.
const WITNESS_PAUSE: Duration = Duration::from_millis(1);

/// Kills the server this many times; returns what was checked.
pub(super) fn judge(
    options: &Options,
    program: &Program,
    times: u32,
    seed: u64,
) -> anyhow::Result<String> {
    let judged = JudgedMount::new(options)?;
    process::output(&mut judged.shell(program.prepare)).context("preparing")?;
    judged.unmount()?;
    let prepared = judged.scratch.join("prepared");
    std::fs::create_dir(&prepared)?;
    copy(&judged.image, &prepared)?;
    copy(&judged.elsewhere, &prepared)?;
    let (mut syncs, mut files) = (0, 0);
    for round in 0..times {
        let round_seed = seed.wrapping_add(u64::from(round));
        let killed = KillRun { judged: &judged, program, seed: round_seed };
        copy(&prepared.join("disk.img"), &judged.scratch)?;
        std::fs::remove_dir_all(&judged.elsewhere)?;
        copy(&prepared.join("elsewhere"), &judged.scratch)?;
        let (synced, checked) = killed.judge().with_context(|| {
            format!("kill {round}, to be repeated with --kill 1 --seed {round_seed}")
        })?;
        syncs += synced;
        files += checked;
    }
    Ok(format!(", {times} kills; {syncs} syncs had returned, {files} synced files were compared"))
}

/// Copies a file or a tree into a directory, over what is there; holes stay holes.
fn copy(from: &Path, into: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cp");
    process::output(command.args(["-a", "--sparse=always"]).args([from, into])).map(drop)
}

struct KillRun<'a> {
    judged: &'a JudgedMount,
    program: &'a Program,
    seed: u64,
}

impl KillRun<'_> {
    /// One kill. Returns how many syncs had returned, and how many files were compared.
    fn judge(&self) -> anyhow::Result<(u64, u64)> {
        let KillRun { judged, program, seed } = *self;
        let mut random = fastrand::Rng::with_seed(seed);
        judged.mount()?;
        let server = judged.server()?;
        let mut script = contained(&judged.shell(program.script));
        let mut script = script.env("R", random.u32(..1 << 16).to_string()).spawn()?;
        let mut witness = Witness::new(&judged.witnessed(), random.u64(..));
        let witness = thread::spawn("witness", move || {
            for moment in 1.. {
                if witness.step(|| moment).is_err() {
                    break;
                }
                // Leaves the cores to the program.
                process::nap(WITNESS_PAUSE);
            }
            witness
        })?;
        process::nap(Duration::from_millis(random.u64(program.kill_after.clone())));
        server::kill(server)?;
        let witness = witness.join().map_err(|_| anyhow::anyhow!("the witness panicked"))?;
        end(&mut script)?;
        process::output(Command::new("umount").arg("-l").arg(&judged.mount))?;
        judged.mount().context("mounting again")?;
        let checked = witness.check_directory(u64::MAX, &judged.witnessed())?;
        process::output(&mut judged.shell(program.after_kill)).context("after the recovery")?;
        judged.unmount()?;
        judged.check()?;
        Ok((witness.synced(), checked as u64))
    }
}

/// A script whose processes, also those that leave its session, end with the first.
fn contained(script: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    command.arg(script.get_program()).args(script.get_args());
    for (name, value) in script.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Ends a contained script; nothing of it is left then.
fn end(script: &mut Child) -> anyhow::Result<()> {
    let parent = script.id();
    let first = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let first = first.ok().and_then(|list| list.split_whitespace().next()?.parse().ok());
    if let Some(first) = first.and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = rustix::process::kill_process(first, Signal::KILL);
    }
    script.wait()?;
    Ok(())
}
