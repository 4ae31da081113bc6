//! Compares building an image with other builders.
//!
//! Source, archive and images lie in memory (`/dev/shm`, or `DRYSTONE_BENCH_DIRECTORY`), so that the
//! programs are measured and not a disk. If a tree with its images doesn't fit there, a part of it is
//! taken, and the table says how much. Each way is run several times in turn; the fastest counts.

use crate::process;
use anyhow::{Context, bail};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of each way.
const RUNS: usize = 3;
/// Names of the large directory that `mke2fs` builds too, which takes minutes.
const EMPTY_FILES: u32 = 50_000;
/// Names of the directory that only we build.
const MANY_FILES: u32 = 1_000_000;

/// What is measured, and where.
#[derive(clap::Args)]
pub struct Options {
    /// The tree to build from.
    #[arg(default_value = "/usr")]
    tree: PathBuf,
    /// Bytes of it that are copied into memory at most.
    #[arg(long, default_value_t = 2 << 30)]
    bytes_max: u64,
    /// Have mke2fs build the large directory too, which takes minutes.
    #[arg(long)]
    patient: bool,
}

/// A folder that goes away with what is in it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left over from a run that was killed, at worst.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A mounted image, until it is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

struct Measured {
    name: String,
    seconds: Option<f64>,
    memory_kib: Option<u64>,
}

/// Prints the tables.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let place = std::env::var_os("DRYSTONE_BENCH_DIRECTORY");
    let place = place.map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let scratch = Scratch(place.join(format!("drystone-bench-build-{}", std::process::id())));
    fs::create_dir_all(&scratch.0)?;
    process::run(
        process::cargo(["build", "--release", "--quiet", "--package"]).arg("drystone-cli"),
    )?;
    let drystone = process::target_directory().join("release/drystone");
    let tree = scratch.0.join("tree");
    let (files, bytes) = copy_part(&options.tree, &tree, options.bytes_max)?;
    let tar = scratch.0.join("tree.tar");
    process::run(
        Command::new("tar").args(["--xattrs", "--acls", "--format=pax", "-cf"]).arg(&tar).args([
            "-C".as_ref(),
            tree.as_os_str(),
            ".".as_ref(),
        ]),
    )?;
    println!(
        "{}: {files} files, {:.2} GB of data{}; the fastest of {RUNS} runs\n",
        options.tree.display(),
        bytes as f64 / 1e9,
        if bytes >= options.bytes_max { " (a part of it)" } else { "" }
    );
    let rows = from_tree(&scratch.0, &drystone, &tree, &tar, bytes)?;
    table(&rows);
    fs::remove_dir_all(&tree)?;
    fs::remove_file(&tar)?;
    println!();
    large_directories(&scratch.0, &drystone, options.patient)
}

/// All builders, from a directory and from a tar.
fn from_tree(
    scratch: &Path,
    drystone: &Path,
    tree: &Path,
    tar: &Path,
    bytes: u64,
) -> anyhow::Result<Vec<Measured>> {
    let image = scratch.join("image");
    // For the others the size is guessed generously, as their users do.
    let size = format!("{}K", (bytes + bytes / 3) / 1024 + 512 * 1024);
    let build = |from: &Path| {
        let mut command = Command::new(drystone);
        command.args(["build", "-q"]).arg(&image).arg("--from").arg(from);
        command
    };
    let copied = scratch.join("copy");
    let mut copy = Command::new("cp");
    copy.arg(tar).arg(&copied);
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(tree).arg(&image).arg(&size);
    let mut rows = vec![
        best("drystone build, from the directory", &image, &mut build(tree))?,
        best("drystone build, from a tar", &image, &mut build(tar))?,
        best("cp of the tar (the limit)", &copied, &mut copy)?,
        best("mke2fs -d, from the directory", &image, &mut mke2fs)?,
    ];
    let mounted = loop_mount(scratch, &image, tar, &size);
    rows.push(mounted.unwrap_or_else(|error| {
        eprintln!("SKIPPED: loop mount: {error:#}");
        Measured { name: "kernel loop mount and tar x".into(), seconds: None, memory_kib: None }
    }));
    let mut tar2ext4 = Command::new("tar2ext4");
    tar2ext4.arg("-i").arg(tar).arg("-o").arg(&image);
    match Command::new("tar2ext4").arg("-h").output() {
        Ok(_) => rows.push(best("tar2ext4", &image, &mut tar2ext4)?),
        Err(_) => eprintln!("SKIPPED: tar2ext4 isn't installed"),
    }
    Ok(rows)
}

/// The usual way with root: an image on a loop device, and tar.
fn loop_mount(scratch: &Path, image: &Path, tar: &Path, size: &str) -> anyhow::Result<Measured> {
    let at = scratch.join("mounted");
    fs::create_dir_all(&at)?;
    let mut fastest: Option<f64> = None;
    for _ in 0..RUNS {
        let _ = fs::remove_file(image);
        let start = now_seconds();
        process::run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(image).arg(size))?;
        process::run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&at))?;
        let mounted = Mounted(&at);
        process::run(
            Command::new("tar").args(["--xattrs", "--acls", "-xf"]).arg(tar).arg("-C").arg(&at),
        )?;
        drop(mounted);
        let seconds = now_seconds() - start;
        fastest = Some(fastest.map_or(seconds, |best| best.min(seconds)));
    }
    Ok(Measured { name: "kernel loop mount and tar x".into(), seconds: fastest, memory_kib: None })
}

fn large_directories(scratch: &Path, drystone: &Path, patient: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for count in [EMPTY_FILES, MANY_FILES] {
        let tree = scratch.join("names");
        fs::create_dir(&tree)?;
        for number in 0..count {
            fs::File::create(tree.join(format!("file-{number}")))?;
        }
        let image = scratch.join("image");
        let mut build = Command::new(drystone);
        build.args(["build", "-q"]).arg(&image).arg("--from").arg(&tree);
        rows.push(best(&format!("drystone build, {count} empty files"), &image, &mut build)?);
        if count == EMPTY_FILES && patient {
            let _ = fs::remove_file(&image);
            let mut mke2fs = Command::new("mke2fs");
            mke2fs.args(["-q", "-F", "-t", "ext4", "-N", "70000", "-d"]);
            let start = now_seconds();
            process::run(mke2fs.arg(&tree).arg(&image).arg("1G"))?;
            let seconds = Some(now_seconds() - start);
            let name = format!("mke2fs -d, {count} empty files");
            rows.push(Measured { name, seconds, memory_kib: None });
        }
        fs::remove_dir_all(&tree)?;
    }
    table(&rows);
    Ok(())
}

/// Runs a command several times; what it makes is removed before each.
fn best(name: &str, makes: &Path, command: &mut Command) -> anyhow::Result<Measured> {
    let mut fastest: Option<f64> = None;
    let mut memory_kib = None;
    for _ in 0..RUNS {
        let _ = fs::remove_file(makes);
        let start = now_seconds();
        let mut child = command.spawn().with_context(|| process::describe(command))?;
        let status = child.wait()?;
        let seconds = now_seconds() - start;
        if !status.success() {
            bail!("{} failed", process::describe(command));
        }
        fastest = Some(fastest.map_or(seconds, |best| best.min(seconds)));
    }
    // Measured apart, by a program that may not be there.
    if let Ok(output) = timed(makes, command) {
        memory_kib = output.lines().last().and_then(|line| line.trim().parse().ok());
    }
    let _ = fs::remove_file(makes);
    eprintln!("{name}: {:.2} s", fastest.unwrap_or_default());
    Ok(Measured { name: name.to_owned(), seconds: fastest, memory_kib })
}

/// The memory of a run, as GNU time reports it.
fn timed(makes: &Path, command: &Command) -> anyhow::Result<String> {
    let _ = fs::remove_file(makes);
    let mut time = Command::new("/usr/bin/time");
    time.args(["-f", "%M"]).arg(command.get_program()).args(command.get_args());
    let output = time.output()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn table(rows: &[Measured]) {
    let ours = rows.first().and_then(|row| row.seconds);
    println!("| way | s | to the first | MiB of memory |\n| --- | --- | --- | --- |");
    for row in rows {
        let ratio = row.seconds.zip(ours).map(|(seconds, ours)| seconds / ours);
        let show =
            |figure: Option<f64>| figure.map_or("—".into(), |figure| format!("{figure:.2}"));
        let memory = row.memory_kib.map_or("—".into(), |kib| (kib / 1024).to_string());
        println!("| {} | {} | {} | {memory} |", row.name, show(row.seconds), show(ratio));
    }
}

/// Copies a tree up to this many bytes of data, with all metadata.
fn copy_part(from: &Path, to: &Path, bytes_max: u64) -> anyhow::Result<(u64, u64)> {
    fs::create_dir_all(to)?;
    let mut names: Vec<PathBuf> = fs::read_dir(from)
        .with_context(|| from.display().to_string())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    names.sort();
    let (mut files, mut bytes) = (0, 0);
    let mut waiting = names;
    waiting.reverse();
    while let Some(path) = waiting.pop() {
        let (inner_files, inner_bytes) = measure(&path)?;
        if bytes + inner_bytes > bytes_max {
            // A directory that is too large goes in part.
            if path.is_dir() && !path.is_symlink() {
                let mut inner: Vec<PathBuf> = fs::read_dir(&path)?
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<Result<_, _>>()?;
                inner.sort();
                waiting.extend(inner.into_iter().rev());
            }
            continue;
        }
        let target = to.join(path.strip_prefix(from)?);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut copy = Command::new("cp");
        // Not printed one by one: there may be many.
        if !copy.args(["-a", "--sparse=always"]).arg(&path).arg(&target).status()?.success() {
            bail!("{} failed", process::describe(&copy));
        }
        files += inner_files;
        bytes += inner_bytes;
    }
    Ok((files, bytes))
}

/// Files and bytes of data below a path.
fn measure(path: &Path) -> anyhow::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok((1, if metadata.is_file() { metadata.len() } else { 0 }));
    }
    let (mut files, mut bytes) = (1, 0);
    for entry in fs::read_dir(path)? {
        let (inner_files, inner_bytes) = measure(&entry?.path())?;
        files += inner_files;
        bytes += inner_bytes;
    }
    Ok((files, bytes))
}

fn now_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
