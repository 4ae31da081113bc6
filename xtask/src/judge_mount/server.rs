//! The process that serves a mount, and its end.

use crate::process;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The process that serves the mount in `directory`, as the command `drystone` lists it.
pub(super) fn server_of(drystone: &Path, directory: &Path) -> anyhow::Result<Pid> {
    let listed = process::output(Command::new(drystone).args(["mounts", "--json"]))?;
    let directory = directory.display().to_string();
    let line = listed.lines().find(|line| line.contains(&directory));
    let line = line.context("the mount isn't listed")?;
    let after = line.split_once("\"process\":").context("no process is listed")?.1;
    let pid: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    Pid::from_raw(pid.parse()?).context("no process is listed")
}

/// Kills a server. It has let go of its files then.
pub(super) fn kill(server: Pid) -> anyhow::Result<()> {
    rustix::process::kill_process(server, Signal::KILL)?;
    let folder = Path::new("/proc").join(server.as_raw_pid().to_string());
    for _ in 0..2000 {
        // The first thread stays until its parent has heard of the end.
        let threads = std::fs::read_dir(folder.join("task")).map_or(0, Iterator::count);
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        if threads == 0 || threads == 1 && status.contains("\nState:\tZ") {
            return Ok(());
        }
        process::nap(Duration::from_millis(5));
    }
    bail!("the killed server doesn't end")
}
