//! A main job on real input: an image is made, a real tree copied in by several threads, part of it
//! deleted and renamed, the program killed mid-way, the image recovered, checked by us and by
//! `e2fsck`, and every file compared with its source through somebody else's reader.

mod compare;
mod judges;

use crate::process;
use anyhow::{Context, bail, ensure};
use compare::{Differences, Plan, Totals};
use judges::Judge;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Trees of a few megabytes that a short run may use, the first that exists.
const SHORT_TREES: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/perl5", "/usr/share/doc"];
/// Longest time that the copy to be killed is let run.
const KILL_AFTER_MAX: Duration = Duration::from_secs(20);

/// What to do it with.
#[derive(clap::Args)]
pub struct Options {
    /// The tree to copy.
    #[arg(default_value = "/usr/share")]
    tree: PathBuf,
    /// How many threads copy.
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Where the image goes; it is overwritten and left there.
    #[arg(long)]
    image: Option<PathBuf>,
}

impl Options {
    /// A run of seconds, for continuous integration.
    pub fn short() -> Options {
        let tree = SHORT_TREES.iter().map(Path::new).find(|tree| tree.is_dir());
        let tree = tree.unwrap_or(process::workspace_root()).to_path_buf();
        Options { tree, threads: 4, image: None }
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
    demo.kill_midway(copied)?;
    demo.recover()?;
    demo.check()?;
    demo.compare(&plan)?;

    println!("\nAll as it should be. The image is {}", demo.image.display());
    Ok(())
}

struct Demo {
    drystone: PathBuf,
    tree: PathBuf,
    image: PathBuf,
    mount_point: PathBuf,
    threads: String,
}

impl Demo {
    fn new(options: &Options) -> anyhow::Result<Demo> {
        let tree =
            options.tree.canonicalize().with_context(|| options.tree.display().to_string())?;
        ensure!(tree.is_dir(), "{} is no directory", tree.display());
        step("Building");
        process::run(&mut process::cargo([
            "build",
            "--release",
            "--quiet",
            "--package",
            "drystone-cli",
        ]))?;
        let folder = process::target_directory().join("demo");
        let mount_point = folder.join("mounted");
        std::fs::create_dir_all(&mount_point)?;
        Ok(Demo {
            drystone: process::target_directory().join("release/drystone"),
            tree,
            image: options.image.clone().unwrap_or_else(|| folder.join("demo.img")),
            mount_point,
            threads: options.threads.to_string(),
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
        // Room for the tree twice: the second copy is the one that gets killed.
        let entries = source.files + source.directories + source.others;
        let mebibytes = (source.bytes * 5 / 2 + entries * 16384) / (1 << 20) + 256;
        let inodes = entries * 2 + entries / 2 + 1024;
        process::run(
            self.drystone("mkfs")
                .arg(&self.image)
                .args(["--size", &format!("{mebibytes}M"), "--inodes", &inodes.to_string()])
                .args(["--label", "demo"]),
        )
    }

    fn copy_command(&self, to: &str) -> Command {
        let mut command = self.drystone("cp");
        command.args(["--threads", &self.threads]).arg(&self.tree).arg(self.inside(to));
        command
    }

    fn copy_in(&self, to: &str) -> anyhow::Result<Duration> {
        step(&format!("Copying the tree in with {} threads", self.threads));
        let start = SystemTime::now();
        process::run(&mut self.copy_command(to))?;
        Ok(start.elapsed().unwrap_or_default())
    }

    /// Deletes the first directory of the tree and moves the last one up.
    fn delete_and_rename(&self) -> anyhow::Result<Plan> {
        step("Deleting and renaming part of it");
        let mut directories = Vec::new();
        for entry in std::fs::read_dir(&self.tree)?.flatten() {
            if entry.file_type()?.is_dir() {
                directories.push(entry.file_name());
            }
        }
        directories.sort();
        let mut plan = Plan::default();
        if let [first, .., last] = directories.as_slice() {
            process::run(
                self.drystone("rm").arg("-r").arg(self.inside(Path::new("tree").join(first))),
            )?;
            process::run(
                self.drystone("mv")
                    .arg(self.inside(Path::new("tree").join(last)))
                    .arg(self.inside("moved")),
            )?;
            plan = Plan { deleted: Some(first.clone()), moved: Some(last.clone()) };
        }
        Ok(plan)
    }

    fn kill_midway(&self, copied: Duration) -> anyhow::Result<()> {
        let delay = (copied / 2).min(KILL_AFTER_MAX);
        step(&format!("Copying it again, and killing that after {:.1} s", delay.as_secs_f64()));
        let mut command = self.copy_command("killed");
        eprintln!("$ {}", process::describe(&command));
        let mut child = command.stdin(Stdio::null()).spawn()?;
        // The child's end is polled, so that a copy that ends early is noticed.
        let start = SystemTime::now();
        while start.elapsed().unwrap_or_default() < delay {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "the copy failed by itself: {status}");
                say("it had ended before");
                return Ok(());
            }
            nap(Duration::from_millis(10))?;
        }
        child.kill()?;
        say(&format!("{}", child.wait()?));
        Ok(())
    }

    fn recover(&self) -> anyhow::Result<()> {
        step("Recovering: the next command replays the journal");
        process::run(self.drystone("rm").arg("-rf").arg(self.inside("killed")))
    }

    fn check(&self) -> anyhow::Result<()> {
        step("Checking with drystone and with e2fsck");
        process::run(self.drystone("check").arg(&self.image))?;
        process::run(Command::new("e2fsck").arg("-fn").arg(&self.image))
    }

    fn compare(&self, plan: &Plan) -> anyhow::Result<()> {
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

fn nap(duration: Duration) -> anyhow::Result<()> {
    let timespec = rustix::time::Timespec::try_from(duration)?;
    // An interrupted nap is only a shorter one.
    let _ = rustix::thread::nanosleep(&timespec);
    Ok(())
}

fn step(text: &str) {
    println!("\n{text}");
}

fn say(text: &str) {
    println!("  {text}");
}
