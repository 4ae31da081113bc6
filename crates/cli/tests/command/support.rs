//! A folder with an image, and calls of the command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a call.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub bytes: Vec<u8>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// The output of a call that must have succeeded without a word on standard error.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// The same, without messages about what only root can keep: owners and capabilities.
    pub fn without_losses(mut self) -> Done {
        if !is_root() {
            let losses = ["the owner", "an extended attribute"];
            let losses = losses.map(|what| format!("drystone: can't keep {what} of "));
            let is_loss = |line: &&str| losses.iter().any(|loss| line.starts_with(loss));
            let lines = self.stderr.split_inclusive('\n');
            self.stderr = lines.filter(|line| !is_loss(line)).collect();
        }
        self
    }

    /// The message of a call that must have failed with `code`.
    #[track_caller]
    pub fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.starts_with("drystone: "), "{}", self.stderr);
        self.stderr
    }

    /// The one JSON value that a call must have printed.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.good()).unwrap()
    }

    /// The JSON values, one a line.
    #[track_caller]
    pub fn json_lines(self) -> Vec<serde_json::Value> {
        self.good().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The command, ready for arguments.
pub fn command() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("drystone"));
    command.env("TZ", "UTC").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a program to its end.
pub fn finish(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        bytes: output.stdout,
    }
}

/// Calls the command where no image is needed.
pub fn call(arguments: &[&str]) -> Done {
    finish(command().args(arguments))
}

/// Calls a program of e2fsprogs.
pub fn tool(program: &str, arguments: &[&OsStr]) -> Done {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    finish(Command::new(program).env("PATH", path).args(arguments))
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder with `disk.img` in it, which is where calls are made.
pub struct Fixture {
    folder: TempDir,
}

impl Fixture {
    /// A folder without an image.
    pub fn empty() -> Fixture {
        Fixture { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with an image of 32 MiB.
    pub fn new() -> Fixture {
        Fixture::with(&["--size", "32M"])
    }

    /// A folder with an image that `mkfs` makes with these options.
    pub fn with(options: &[&str]) -> Fixture {
        let fixture = Fixture::empty();
        fixture.run(&[&["mkfs", "disk.img", "--quiet"], options].concat()).good();
        fixture
    }

    /// Another folder with the same files.
    pub fn copy(&self) -> Fixture {
        let other = Fixture::empty();
        let mut cp = Command::new("cp");
        cp.args(["-a", "--sparse=always"]).arg(self.path(".")).arg(other.path(""));
        assert!(cp.status().unwrap().success());
        other
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, in the folder.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = command();
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Done {
        finish(&mut self.command(arguments))
    }

    /// A line of words that are separated by spaces.
    pub fn line(&self, line: &str) -> Done {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Makes a file of the host.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Copies a program, or a script, to be run. A child does it: what this process has open for writing, a child
    /// of another test may have inherited, and then it can't be run yet.
    pub fn put_program(&self, name: &str, from: impl AsRef<OsStr>) -> PathBuf {
        let path = self.path(name);
        let mut install = Command::new("install");
        let done = finish(install.args(["-m", "755"]).arg(from).arg(&path));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        path
    }

    /// Makes a disk of 64 MiB with the partitions that a script of sfdisk(8) describes.
    pub fn partition(&self, name: &str, script: &str) {
        std::fs::File::create(self.path(name)).unwrap().set_len(64 << 20).unwrap();
        self.put("script.sfdisk", script);
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let mut sfdisk = Command::new("sfdisk");
        sfdisk.arg("--quiet").arg(self.path(name)).env("PATH", path);
        sfdisk.stdin(std::fs::File::open(self.path("script.sfdisk")).unwrap());
        let done = finish(&mut sfdisk);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }

    /// Makes files, each holding its name, and copies them in.
    pub fn fill(&self, names: &[&str]) {
        for name in names {
            self.put(&format!("source/{name}"), name);
        }
        self.line("cp source/. disk.img:/").good();
    }

    /// All paths in the image.
    pub fn paths(&self) -> Vec<String> {
        let found = self.line("find disk.img").good();
        let mut paths: Vec<String> = found.lines().map(str::to_string).collect();
        paths.retain(|path| path != "/" && path != "/lost+found");
        paths
    }

    /// Both checkers find nothing, and say so in their exit codes.
    #[track_caller]
    pub fn expect_sound(&self) {
        self.expect_sound_image("disk.img");
    }

    #[track_caller]
    pub fn expect_sound_image(&self, image: &str) {
        let image: OsString = self.path(image).into();
        let judged = tool("e2fsck", &["-fn".as_ref(), &image]);
        assert_eq!(judged.code, Some(0), "{}{}", judged.stdout, judged.stderr);
        let checked = self.run(&["check".as_ref(), image.as_os_str()]);
        assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    }
}
