//! Measures the memory of the server while the kernel knows millions of files and programs have very many open. The
//! limit is what the mount option `memory` allows, and a few bytes for each file that the kernel knows.

use super::{JudgedMount, Options};
use crate::process;
use anyhow::{Context, ensure};
use rustix::process::Pid;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Files in one directory.
const FILES_PER_DIRECTORY: u64 = 1000;
/// Files that one process has open.
const FILES_PER_PROCESS: u64 = 15_000;
/// Of the open files one in so many is written to.
const WRITTEN_EACH: u64 = 97;
/// What the server may use for metadata.
const BUDGET_MEBIBYTES: u64 = 64;
/// What a file that the kernel knows may cost beyond that.
const BYTES_PER_FILE_MAX: u64 = 40;
/// What may be there beside: buffers of requests, and what the allocator keeps.
const REST_MAX: u64 = 64 << 20;

/// A judgement of memory.
pub(super) struct Measure {
    pub name: &'static str,
    pub judge: fn(&Options) -> anyhow::Result<String>,
}

pub(super) const MEASURES: &[Measure] =
    &[Measure { name: "walk", judge: walk }, Measure { name: "open-files", judge: open_files }];

/// `find` over very many files.
fn walk(options: &Options) -> anyhow::Result<String> {
    let mut judged = JudgedMount::unmade(options)?;
    judged.options.push_str(&format!(",memory={BUDGET_MEBIBYTES}M"));
    let files = options.files;
    build(&judged, files)?;
    let server = Server::start(&judged)?;
    let mut find = Command::new("find");
    find.arg(&judged.mount).args(["-type", "f", "-printf", "%s\n"]).stdout(Stdio::piped());
    let mut find = find.spawn()?;
    let lines = find.stdout.take().context("find has an output")?;
    let count = drystone_sync::thread::spawn("count", move || {
        BufReader::new(lines).lines().count() as u64
    })?;
    let mut peak = server.resident()?;
    while find.try_wait()?.is_none() {
        peak = peak.max(server.resident()?);
        process::nap(Duration::from_millis(50));
    }
    let found = count.join().map_err(|_| anyhow::anyhow!("counting failed"))?;
    ensure!(found == files, "{found} of {files} files were found");
    server.judge(&judged, files, peak)
}

/// Very many files that are open at once.
fn open_files(options: &Options) -> anyhow::Result<String> {
    let mut judged = JudgedMount::unmade(options)?;
    judged.options.push_str(&format!(",memory={BUDGET_MEBIBYTES}M"));
    let count = options.open_files;
    build(&judged, count)?;
    let server = Server::start(&judged)?;
    let mut openers = (0..count)
        .step_by(FILES_PER_PROCESS as usize)
        .map(|first| Opener::start(&judged.mount, first..count.min(first + FILES_PER_PROCESS)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for opener in &mut openers {
        opener.wait_until_open()?;
    }
    let peak = server.resident()?;
    // All of them work, one that has lost its name too.
    fs::remove_file(path_of(&judged.mount, 0))?;
    openers.iter_mut().try_for_each(Opener::end)?;
    let peak = peak.max(server.resident()?);
    for number in (0..count).filter(|number| number % WRITTEN_EACH == 0).skip(1) {
        let found = fs::read_to_string(path_of(&judged.mount, number))?;
        ensure!(found == format!("{number}\n"), "file {number} holds {found:?}");
    }
    server.judge(&judged, count, peak)
}

fn path_of(root: &Path, number: u64) -> std::path::PathBuf {
    let directory = number / FILES_PER_DIRECTORY;
    root.join(format!("d{directory}/f{number}"))
}

/// A process that has files open: the system limits how many one may have.
struct Opener(Child);

impl Opener {
    fn start(root: &Path, files: std::ops::Range<u64>) -> anyhow::Result<Opener> {
        let script = format!(
            "set -e; opened=()
            for ((n = {first}; n < {end}; n++)); do
                exec {{fd}}<>d$((n / {FILES_PER_DIRECTORY}))/f$n; opened[n]=$fd
            done
            echo open; read -r _
            for ((n = {first}; n < {end}; n++)); do
                if ((n % {WRITTEN_EACH} == 0)); then echo $n >&${{opened[n]}}; fi
            done",
            first = files.start,
            end = files.end,
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(root);
        Ok(Opener(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?))
    }

    fn wait_until_open(&mut self) -> anyhow::Result<()> {
        let mut said = [0; 5];
        let said = self.0.stdout.as_mut().context("it has an output")?.read_exact(&mut said);
        said.context("the files can't be opened")
    }

    /// Has it write to some of the files, close them all and end.
    fn end(&mut self) -> anyhow::Result<()> {
        writeln!(self.0.stdin.take().context("it has an input")?)?;
        ensure!(self.0.wait()?.success(), "the open files can't be written to");
        Ok(())
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // After an error it is still there.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds an image of empty files.
fn build(judged: &JudgedMount, files: u64) -> anyhow::Result<()> {
    let mut manifest = String::new();
    for number in 0..files {
        if number % FILES_PER_DIRECTORY == 0 {
            writeln!(manifest, "/d{} type=directory", number / FILES_PER_DIRECTORY)?;
        }
        let directory = number / FILES_PER_DIRECTORY;
        writeln!(manifest, "/d{directory}/f{number} type=file")?;
    }
    let path = judged.scratch.join("manifest");
    fs::write(&path, manifest)?;
    let mut build = Command::new(&judged.drystone);
    build.arg("build").arg(&judged.image).arg("--from").arg(&judged.elsewhere);
    build.arg("--manifest").arg(&path).args(["--free", "64M", "--quiet"]);
    process::output(&mut build).context("building the image")?;
    Ok(fs::remove_file(&path)?)
}

/// The server of a mount.
struct Server {
    process: Pid,
    /// Bytes in memory before anything was done.
    at_start: u64,
}

impl Server {
    fn start(judged: &JudgedMount) -> anyhow::Result<Server> {
        judged.mount()?;
        let server = Server { process: judged.server()?, at_start: 0 };
        Ok(Server { at_start: server.resident()?, ..server })
    }

    /// Bytes in memory.
    fn resident(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.as_raw_pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
        Ok(kibibytes.parse::<u64>()? << 10)
    }

    /// Judges the most that was used; has the kernel forget what it knows, and looks again.
    fn judge(&self, judged: &JudgedMount, files: u64, peak: u64) -> anyhow::Result<String> {
        let budget = BUDGET_MEBIBYTES << 20;
        fs::write("/proc/sys/vm/drop_caches", "2").context("having the kernel forget")?;
        let mut after = self.resident()?;
        // Forgets take their time; an inode that isn't in memory frees a few bytes.
        for _ in 0..100 {
            process::nap(Duration::from_millis(50));
            after = after.min(self.resident()?);
        }
        judged.unmount()?;
        judged.check()?;
        let beyond = peak.saturating_sub(self.at_start + budget) as f64 / files as f64;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let told = format!(
            ", {files} files: {:.0} MiB resident at the start, {:.0} at most with a budget of \
             {BUDGET_MEBIBYTES} ({beyond:.0} bytes a file beyond), {:.0} after the kernel forgot them",
            mebibytes(self.at_start),
            mebibytes(peak),
            mebibytes(after),
        );
        let allowed = self.at_start + budget + files * BYTES_PER_FILE_MAX + REST_MAX;
        ensure!(peak <= allowed, "more than {:.0} MiB{told}", mebibytes(allowed));
        Ok(told)
    }
}
