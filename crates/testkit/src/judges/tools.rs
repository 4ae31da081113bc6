//! Programs of e2fsprogs, and files to run them on.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drystone_blockdev::BlockDevice;

use super::FeatureSet;
use crate::skip::{Prerequisite, skip};

/// Zeros of this length in an image become a hole in its file.
const PIECE_BYTES: usize = 65_536;

/// Seconds of [`e2fsck_at`]; time of a processor, since the machine may be busy.
const E2FSCK_CPU_MAX: &str = "--cpu=20";

/// A directory that is removed at the end of a test, kept if `DRYSTONE_KEEP_SCRATCH` is set.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl Scratch {
    /// A new, empty directory whose name starts with `name`.
    pub fn new(name: &str) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new().prefix(&format!("drystone-{name}-")).tempdir()?;
        let path = directory.path().to_owned();
        if std::env::var_os("DRYSTONE_KEEP_SCRATCH").is_some() {
            eprintln!("scratch directory kept: {}", path.display());
            let _ = directory.keep();
            return Ok(Scratch { directory: None, path });
        }
        Ok(Scratch { directory: Some(directory), path })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.as_ref().map_or(&self.path, |directory| directory.path())
    }

    /// A path in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// Everything it printed.
    pub output: String,
}

impl Judgement {
    /// True if the exit code is 0.
    pub fn is_clean(&self) -> bool {
        self.code == 0
    }

    /// Panics with the output unless the exit code is 0.
    pub fn expect_clean(&self, what: &str) {
        assert!(self.is_clean(), "{what}: exit code {}\n{}", self.code, self.output);
    }
}

/// Runs a program to its end; both its outputs are read as one.
pub fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> io::Result<Judgement> {
    // The output goes through one pipe, so that lines keep their order.
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // The tools of e2fsprogs are only on the superuser's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let mut child = command.spawn()?;
    // Closes the parent's end of the pipe, without which reading would not end.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    let code = child.wait()?.code().unwrap_or(-1);
    Ok(Judgement { code, output: String::from_utf8_lossy(&output).into_owned() })
}

/// True if a program is installed; otherwise the skip is noted.
pub fn have(program: &str) -> bool {
    let found = run(program, ["-V"]).is_ok();
    if !found {
        skip(Prerequisite::Program(program.to_owned()), "it isn't installed");
    }
    found
}

/// Checks an image without changing it: clean if the exit code is 0.
pub fn e2fsck_check(image: &Path) -> io::Result<Judgement> {
    run("e2fsck", [OsStr::new("-fn"), image.as_os_str()])
}

/// Runs e2fsck with `option`, as if it were `now_seconds` since 1970; -1 if it takes too long.
pub fn e2fsck_at(now_seconds: u64, option: &str, image: &Path) -> io::Result<Judgement> {
    let clock = format!("E2FSCK_TIME={now_seconds}");
    let arguments = [E2FSCK_CPU_MAX, "env", &clock, "e2fsck", option].map(OsStr::new);
    run("prlimit", arguments.into_iter().chain([image.as_os_str()]))
}

/// Replays the journal and repairs an image: 0 if nothing was wrong, 1 if it was repaired.
pub fn e2fsck_repair(image: &Path) -> io::Result<Judgement> {
    run("e2fsck", [OsStr::new("-fy"), image.as_os_str()])
}

/// Runs one command of debugfs on an image.
pub fn debugfs(image: &Path, request: &str) -> io::Result<Judgement> {
    run("debugfs", [OsStr::new("-R"), OsStr::new(request), image.as_os_str()])
}

/// Makes an image file of `size_bytes` with a feature set.
pub fn mke2fs(image: &Path, set: &FeatureSet, size_bytes: u64) -> io::Result<Judgement> {
    File::create(image)?.set_len(size_bytes)?;
    let fixed = ["-q", "-F", "-E", "nodiscard"];
    let arguments = set.arguments.split_whitespace().chain(fixed).map(OsStr::new);
    let made = run("mke2fs", arguments.chain([image.as_os_str()]))?;
    if !made.is_clean() || set.tune.is_empty() {
        return Ok(made);
    }
    let arguments = set.tune.split_whitespace().map(OsStr::new);
    run("tune2fs", arguments.chain([image.as_os_str()]))
}

/// Writes what a device holds to a file, with holes for zeros.
pub fn write_image(device: &dyn BlockDevice, image: &Path) -> io::Result<()> {
    let mut file = File::create(image)?;
    let size = device.size_bytes();
    file.set_len(size)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let zeros = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        let piece = &mut buffer[..PIECE_BYTES.min((size - at) as usize)];
        device.read_at(at, piece).map_err(io::Error::other)?;
        if *piece != zeros[..piece.len()] {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(piece)?;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_blockdev::MemoryDevice;

    #[test]
    fn programs_are_run() {
        let judgement = run("sh", ["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!(judgement.code, 3);
        assert_eq!(judgement.output, "out\nerr\n");
        assert!(run("no-such-program", [""; 0]).is_err());
    }

    #[test]
    fn images_are_written_sparsely() {
        let scratch = Scratch::new("write-image").unwrap();
        let device = MemoryDevice::new(1 << 20);
        device.write_at(700_000, b"here").unwrap();
        write_image(&device, &scratch.join("image")).unwrap();
        assert_eq!(std::fs::read(scratch.join("image")).unwrap(), device.to_vec());
    }
}
