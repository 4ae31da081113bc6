//! A Ceph cluster of one monitor and one OSD on a sparse file, for tests and the demo.
//!
//! All of it is in one folder, which it makes and marks as its own, and nothing of it in `/etc/ceph`. It listens on 127.0.0.1 only, asks nobody who
//! they are, and keeps one copy of everything.

use crate::process;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The pool for images.
pub const POOL: &str = "rbd";
/// A file in the folder of each cluster that was made here. Nothing else is ever stopped, changed or removed.
const MARKER: &str = "made-by-drystone";
/// How much of a daemon's log is shown.
const LOG_LINES: usize = 10;
const DAEMONS: [&str; 2] = ["osd.0", "mon.a"];
const PLACEMENT_GROUPS: &str = "16";
const MOMENT: Duration = Duration::from_millis(50);
/// How long to wait for a daemon: 30 seconds.
const MOMENTS: u32 = 600;

pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    pub fn at(folder: &Path) -> Cluster {
        Cluster { folder: folder.to_path_buf() }
    }

    /// What `CEPH_CONF` has to say.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// Makes the cluster, in a new folder, and starts it. If that fails, nothing of it stays.
    pub fn create(&self, size_bytes: u64) -> anyhow::Result<()> {
        let folder = self.folder.display();
        fs::create_dir(&self.folder).with_context(|| {
            format!("{folder}: the folder of a cluster must be a new one in one that exists")
        })?;
        fs::write(self.folder.join(MARKER), "")?;
        self.set_up(size_bytes).inspect_err(|_| {
            if let Err(error) = self.stop().and_then(|()| self.remove()) {
                eprintln!("what is left of the cluster in {folder}: {error:#}");
            }
        })
    }

    fn set_up(&self, size_bytes: u64) -> anyhow::Result<()> {
        let folder = self.folder.display();
        let identity = uuid()?;
        // Free at this moment. The daemons take ports of Ceph's usual range for all else.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let monitor = format!("[v2:127.0.0.1:{port}]");
        let configuration = format!(
            "[global]
fsid = {identity}
mon host = {monitor}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
pid file = {folder}/$name.pid
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon data avail crit = 1
mon data avail warn = 2
[client]
pid file =
log file = /dev/null
admin socket =
[mon]
mon data = {folder}/monitor
[osd]
osd data = {folder}/storage
bluestore block create = true
bluestore block size = {size_bytes}
osd memory target = 1G
"
        );
        fs::write(self.configuration(), configuration)?;
        fs::create_dir(self.folder.join("storage"))?;
        let map = self.folder.join("monitors");
        let mut make_map = Command::new("monmaptool");
        make_map.args(["--create", "--fsid", &identity, "--addv", "a", &monitor]).arg(&map);
        process::output(&mut make_map)?;
        process::output(
            self.command("ceph-mon").args(["--mkfs", "-i", "a", "--monmap"]).arg(&map),
        )?;
        self.start_daemon("mon.a")?;
        let storage = uuid()?;
        process::output(self.command("ceph").args(["osd", "new", &storage, "0"]))?;
        process::output(self.command("ceph-osd").args([
            "--mkfs",
            "-i",
            "0",
            "--osd-uuid",
            &storage,
        ]))?;
        let place = ["osd", "crush", "add", "osd.0", "1", "root=default", "host=localhost"];
        process::output(self.command("ceph").args(place))?;
        self.start_daemon("osd.0")?;
        self.wait("the OSD isn't up", || {
            let status = process::output(self.command("ceph").args(["osd", "stat"]))?;
            Ok(status.contains(" 1 up"))
        })?;
        let pool = ["osd", "pool", "create", POOL, PLACEMENT_GROUPS];
        process::output(self.command("ceph").args(pool))?;
        process::output(self.command("rbd").args(["pool", "init", POOL]))?;
        Ok(())
    }

    /// Starts what was stopped or killed.
    pub fn start(&self) -> anyhow::Result<()> {
        for daemon in DAEMONS.into_iter().rev() {
            if self.process(daemon).is_none() {
                self.start_daemon(daemon)?;
            }
        }
        Ok(())
    }

    /// Ends all daemons.
    pub fn stop(&self) -> anyhow::Result<()> {
        for daemon in DAEMONS {
            if let Some(process) = self.process(daemon) {
                rustix::process::kill_process(process, Signal::TERM)?;
                self.wait(&format!("{daemon} doesn't end"), || Ok(self.process(daemon).is_none()))?;
            }
        }
        Ok(())
    }

    /// Whether there is one that was made here, running or not.
    pub fn exists(&self) -> bool {
        self.folder.join(MARKER).exists()
    }

    pub fn is_running(&self) -> bool {
        DAEMONS.iter().all(|daemon| self.process(daemon).is_some())
    }

    /// Removes it with all that is in it.
    pub fn remove(&self) -> anyhow::Result<()> {
        Ok(fs::remove_dir_all(&self.folder)?)
    }

    /// A program of Ceph that works with this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("CEPH_CONF", self.configuration());
        command
    }

    /// Starts a daemon, which goes on in the background.
    fn start_daemon(&self, name: &str) -> anyhow::Result<()> {
        let (kind, number) = name.split_once('.').context("a daemon's name")?;
        let mut command = self.command(&format!("ceph-{kind}"));
        // It keeps what it inherits open.
        command
            .args(["-i", number])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command.status().context("can't run the programs of Ceph")?;
        if !status.success() {
            bail!("{name} doesn't start; its log ends so:\n{}", self.log_end(name));
        }
        Ok(())
    }

    fn log_end(&self, name: &str) -> String {
        let log = fs::read(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// The process of a daemon, if it runs.
    fn process(&self, name: &str) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.join(format!("{name}.pid"))).ok()?;
        let number: i32 = text.trim().parse().ok()?;
        // Another process may have the number by now.
        let told = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
        let (kind, _) = name.split_once('.')?;
        (told.trim() == format!("ceph-{kind}")).then(|| Pid::from_raw(number)).flatten()
    }

    fn wait(
        &self,
        problem: &str,
        is_done: impl Fn() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        for _ in 0..MOMENTS {
            if is_done()? {
                return Ok(());
            }
            process::nap(MOMENT);
        }
        let logs = DAEMONS.map(|name| format!("{name}:\n{}", self.log_end(name)));
        bail!("{problem}; the logs end so:\n{}", logs.join("\n"))
    }
}

fn uuid() -> anyhow::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
