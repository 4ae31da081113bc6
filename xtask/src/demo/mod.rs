//! The demonstration: makes an image, copies a real tree in with several threads, deletes and renames a part,
//! kills the program midway, recovers the image, checks it with our checker and `e2fsck`, and compares every file
//! with its source through a reader that isn't ours.

mod compare;
mod judges;

use crate::{process, suites};
use anyhow::{Context, bail, ensure};
use compare::{CopyChanges, Differences, Totals};
use judges::Judge;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Trees of a few megabytes that a short run may use, the first that exists.
const SHORT_TREES: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/perl5", "/usr/share/doc"];
/// The longest time before the copy is killed.
const KILL_AFTER_MAX: Duration = Duration::from_secs(20);
/// How often to retry the copy if it ends before it is killed.
const KILL_ATTEMPTS_MAX: u32 = 8;
/// How often that copy makes durable what it has, in seconds.
const COMMIT_INTERVAL_SECONDS: &str = "0.02";
/// Entries that the copy to be killed has at least, so that no machine is done with it before its
/// first commit.
const ENTRIES_TO_KILL_MIN: u64 = 50_000;

/// What the demonstration works with.
#[derive(clap::Args)]
pub struct Options {
    /// The tree to copy.
    #[arg(default_value = "/usr/share")]
    tree: PathBuf,
    /// How many threads copy.
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Where the image goes; it is overwritten and left there. Otherwise it is deleted at the end
    /// of a demonstration that went well.
    #[arg(long)]
    image: Option<PathBuf>,
    /// Whether the command is the one that the tests have built, which checks its own assertions.
    #[arg(skip)]
    is_tested: bool,
}

impl Options {
    /// A run of seconds, for continuous integration: of the command that the tests have built.
    pub fn short() -> Options {
        let tree = SHORT_TREES.iter().map(Path::new).find(|tree| tree.is_dir());
        let tree = tree.unwrap_or(process::workspace_root()).to_path_buf();
        Options { tree, threads: 4, image: None, is_tested: true }
    }
}

/// Runs the demonstration; an error as soon as anything is not as it should be.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let demo = Demo::new(options)?;
    let source = compare::measure(&demo.tree)?;
    step(&format!("The tree {}: {source}", demo.tree.display()));

    demo.make_image(&source)?;
    let copied = demo.copy_in("tree")?;
    say(&format!("{:.1} s, {}", copied.as_secs_f64(), source.rate(copied)));
    let plan = demo.delete_and_rename()?;
    let longer = demo.make_longer(&source)?;
    demo.kill_midway(&longer, copied)?;
    demo.recover()?;
    demo.check()?;
    demo.compare(&plan)?;
    demo.clean_up(options)?;
    println!(
        "\nAll as it should be, in {:.0} s.",
        demo.start.elapsed().unwrap_or_default().as_secs_f64()
    );
    Ok(())
}

struct Demo {
    drystone: PathBuf,
    tree: PathBuf,
    image: PathBuf,
    mount_point: PathBuf,
    threads: String,
    start: SystemTime,
}

impl Demo {
    fn new(options: &Options) -> anyhow::Result<Demo> {
        let tree =
            options.tree.canonicalize().with_context(|| options.tree.display().to_string())?;
        ensure!(tree.is_dir(), "{} isn't a directory", tree.display());
        step("Building");
        let release = ["build", "--release", "--quiet", "--package", "drystone-cli"];
        let (mut build, built) = match options.is_tested {
            true => (suites::build(), "debug"),
            false => (process::cargo(release), "release"),
        };
        process::run(&mut build)?;
        let folder = process::target_directory().join("demo");
        let mount_point = folder.join("mounted");
        std::fs::create_dir_all(&mount_point)?;
        Ok(Demo {
            drystone: process::target_directory().join(built).join("drystone"),
            tree,
            image: options.image.clone().unwrap_or_else(|| folder.join("demo.img")),
            mount_point,
            threads: options.threads.to_string(),
            start: SystemTime::now(),
        })
    }

    /// `IMAGE:PATH`.
    fn inside(&self, path: impl AsRef<Path>) -> OsString {
        let mut argument = self.image.clone().into_os_string();
        argument.push(":");
        argument.push(Path::new("/").join(path).as_os_str());
        argument
    }

    fn drystone(&self, command: &str) -> Command {
        let mut call = Command::new(&self.drystone);
        call.arg(command);
        call
    }

    fn make_image(&self, source: &Totals) -> anyhow::Result<()> {
        step("Making an image");
        if let Err(error) = std::fs::remove_file(&self.image)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).context(self.image.display().to_string());
        }
        // Room for the tree once more than it will be copied to be killed.
        let copies = copies_to_kill(source) + 1;
        let mebibytes = copies * (source.bytes * 5 / 4 + source.entries() * 8192) / (1 << 20) + 256;
        let inodes = copies * source.entries() * 5 / 4 + 1024;
        process::run(
            self.drystone("mkfs")
                .arg(&self.image)
                .args(["--size", &format!("{mebibytes}M"), "--inodes", &inodes.to_string()])
                .args(["--label", "demo"]),
        )
    }

    fn copy_command(&self, from: &Path, to: &str) -> Command {
        let mut command = self.drystone("cp");
        command.args(["--threads", &self.threads]).arg(from).arg(self.inside(to));
        command
    }

    fn copy_in(&self, to: &str) -> anyhow::Result<Duration> {
        step(&format!("Copying the tree in with {} threads", self.threads));
        let start = SystemTime::now();
        process::run(&mut self.copy_command(&self.tree, to))?;
        Ok(start.elapsed().unwrap_or_default())
    }

    /// Deletes the first directory of the tree and moves the last one up.
    fn delete_and_rename(&self) -> anyhow::Result<CopyChanges> {
        step("Deleting and renaming part of it");
        let mut directories = Vec::new();
        for entry in std::fs::read_dir(&self.tree)?.flatten() {
            if entry.file_type()?.is_dir() {
                directories.push(entry.file_name());
            }
        }
        directories.sort();
        let mut plan = CopyChanges::default();
        if let [first, .., last] = directories.as_slice() {
            process::run(
                self.drystone("rm").arg("-r").arg(self.inside(Path::new("tree").join(first))),
            )?;
            process::run(
                self.drystone("mv")
                    .arg(self.inside(Path::new("tree").join(last)))
                    .arg(self.inside("moved")),
            )?;
            plan = CopyChanges { deleted: Some(first.clone()), moved: Some(last.clone()) };
        }
        Ok(plan)
    }

    /// The tree, or as many copies of a small one as make a copy that lasts long enough.
    fn make_longer(&self, source: &Totals) -> anyhow::Result<KilledCopy> {
        let copies = copies_to_kill(source);
        if copies == 1 {
            return Ok(KilledCopy { tree: self.tree.clone(), copies });
        }
        let tree = process::target_directory().join("demo/longer");
        step(&format!("Making {copies} copies of the tree, for a copy that can be killed mid-way"));
        if tree.exists() {
            std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
        }
        std::fs::create_dir(&tree)?;
        for number in 0..copies {
            let copy = tree.join(number.to_string());
            process::output(Command::new("cp").arg("-a").arg(&self.tree).arg(copy))?;
        }
        Ok(KilledCopy { tree, copies })
    }

    /// Starts another copy and kills it when its journal holds what isn't in its place yet.
    fn kill_midway(&self, longer: &KilledCopy, copied: Duration) -> anyhow::Result<()> {
        let copies = u32::try_from(longer.copies)?;
        let mut delay = (copied * copies / 2).min(KILL_AFTER_MAX);
        for _ in 0..KILL_ATTEMPTS_MAX {
            step(&format!("Copying again, to be killed after {:.2} s", delay.as_secs_f64()));
            if self.copy_and_kill(&longer.tree, delay)? {
                return Ok(());
            }
            say("the copy had ended before: once more, with less time");
            process::run(self.drystone("rm").arg("-rf").arg(self.inside("killed")))?;
            delay /= 2;
        }
        bail!("the copy ended {KILL_ATTEMPTS_MAX} times before it could be killed");
    }

    /// False if the copy ended before.
    fn copy_and_kill(&self, tree: &Path, delay: Duration) -> anyhow::Result<bool> {
        let mut command = self.copy_command(tree, "killed");
        command.args(["--commit-interval", COMMIT_INTERVAL_SECONDS, "--quiet"]);
        eprintln!("$ {}", process::describe(&command));
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let start = SystemTime::now();
        while start.elapsed().unwrap_or_default() < delay || !self.has_something_to_replay()? {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "the copy failed by itself: {status}");
                return Ok(false);
            }
            process::nap(Duration::from_millis(5));
        }
        child.kill()?;
        let seconds = start.elapsed().unwrap_or_default().as_secs_f64();
        let status = child.wait()?;
        if status.success() {
            return Ok(false);
        }
        say(&format!("killed after {seconds:.2} s: {status}"));
        // Killed, but right after its last checkpoint: nothing would be shown.
        self.has_something_to_replay()
    }

    /// True if the journal isn't empty. Asks a program that reads an image that is in use.
    fn has_something_to_replay(&self) -> anyhow::Result<bool> {
        let output = Command::new("dumpe2fs").arg("-h").arg(&self.image).output();
        let output = output.context("can't run dumpe2fs")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let start = text.lines().find_map(|line| line.strip_prefix("Journal start:"));
        Ok(start.is_some_and(|start| start.trim() != "0"))
    }

    fn recover(&self) -> anyhow::Result<()> {
        step("Recovering: a check replays the journal in memory, the next change in the image");
        process::run(self.drystone("check").arg(&self.image))?;
        process::run(self.drystone("rm").arg("-rf").arg(self.inside("killed")))?;
        ensure!(!self.has_something_to_replay()?, "the journal still isn't empty");
        Ok(())
    }

    fn clean_up(&self, options: &Options) -> anyhow::Result<()> {
        if options.image.is_some() {
            return Ok(());
        }
        let folder = process::target_directory().join("demo");
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
    }

    fn check(&self) -> anyhow::Result<()> {
        step("Checking with drystone and with e2fsck");
        process::run(self.drystone("check").arg(&self.image))?;
        process::run(Command::new("e2fsck").arg("-fn").arg(&self.image))
    }

    fn compare(&self, plan: &CopyChanges) -> anyhow::Result<()> {
        let judge = Judge::open(&self.image, &self.mount_point)?;
        step(&format!("Comparing every file with its source, read through {judge}"));
        let start = SystemTime::now();
        let result = compare::compare(&self.tree, plan, &judge);
        let seconds = start.elapsed().unwrap_or_default().as_secs_f64();
        judge.close()?;
        let Differences { compared, found } = result?;
        for difference in found.iter().take(20) {
            say(difference);
        }
        if !found.is_empty() {
            bail!("{} differences", found.len());
        }
        say(&format!("{seconds:.1} s, equal: {compared}"));
        Ok(())
    }
}

/// The source of the copy that is killed: a tree, and how often it is copied.
struct KilledCopy {
    tree: PathBuf,
    copies: u64,
}

/// How many copies of a tree are copied to be killed.
fn copies_to_kill(source: &Totals) -> u64 {
    ENTRIES_TO_KILL_MIN.div_ceil(source.entries().max(1))
}

fn step(text: &str) {
    println!("\n{text}");
}

fn say(text: &str) {
    println!("  {text}");
}
