//! Tests, and parts of tests, that can't run on this machine.
//!
//! A test that can't run passes, so skips have to be counted: each skip prints what is missing on
//! standard error, and appends a line to the file that `DRYSTONE_SKIPS` names. `./dev test` lists them
//! at the end, and `./dev ci` fails unless the machine really lacks what a line names.

use drystone_sync::thread;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Names the file that skips are appended to.
pub const SKIPS: &str = "DRYSTONE_SKIPS";

/// What a test needs and this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prerequisite {
    /// The rights of root.
    Root,
    /// A user who isn't root: nothing is forbidden to root.
    OrdinaryUser,
    /// `/dev/fuse`, and the right to mount there.
    Fuse,
    /// FUSE over io_uring, and the right to turn it on.
    Rings,
    /// The kernel's ext4 on a loop device, or the right to mount it.
    LoopMounts,
    /// A program that a package holds.
    Program(String),
    /// A feature that this kernel was built without.
    Kernel(String),
    /// Something that the host's file systems or limits don't allow.
    Host(String),
}

impl Prerequisite {
    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Prerequisite> {
        let fixed = [
            Prerequisite::Root,
            Prerequisite::OrdinaryUser,
            Prerequisite::Fuse,
            Prerequisite::Rings,
            Prerequisite::LoopMounts,
        ];
        if let Some(lack) = fixed.into_iter().find(|lack| lack.to_string() == text) {
            return Some(lack);
        }
        let (kind, name) = text.split_once(' ')?;
        match kind {
            "program" => Some(Prerequisite::Program(name.to_owned())),
            "kernel" => Some(Prerequisite::Kernel(name.to_owned())),
            "host" => Some(Prerequisite::Host(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prerequisite::Root => f.write_str("root"),
            Prerequisite::OrdinaryUser => f.write_str("ordinary-user"),
            Prerequisite::Fuse => f.write_str("fuse"),
            Prerequisite::Rings => f.write_str("rings"),
            Prerequisite::LoopMounts => f.write_str("loop-mounts"),
            Prerequisite::Program(name) => write!(f, "program {name}"),
            Prerequisite::Kernel(what) => write!(f, "kernel {what}"),
            Prerequisite::Host(what) => write!(f, "host {what}"),
        }
    }
}

/// A line of the file of skips.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// What is missing.
    pub lack: Prerequisite,
    /// The test, or another thread of its program.
    pub test: String,
    /// What isn't tested, or the reason.
    pub what: String,
}

impl Skip {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Skip> {
        let mut fields = line.split('\t');
        let (lack, test, what) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Skip {
            lack: Prerequisite::parse(lack)?,
            test: test.to_owned(),
            what: what.to_owned(),
        })
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}", self.lack, self.test, self.what)
    }
}

/// Notes that the running test is skipped, or the part of it that `what` names.
pub fn skip(lack: Prerequisite, what: impl fmt::Display) {
    let program = std::env::current_exe().unwrap_or_default();
    // Cargo adds `-` and a hash to the name.
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
    let thread = thread::current();
    let test = format!("{stem}::{}", thread.name().unwrap_or("?"));
    let what = what.to_string().replace(['\t', '\n'], " ");
    let skip = Skip { lack, test, what };
    eprintln!("SKIPPED: {}: {}", skip.lack, skip.what);
    if let Some(path) = std::env::var_os(SKIPS)
        && let Err(error) = append(Path::new(&path), &skip)
    {
        // A skip that can't be noted would look like a test that ran.
        panic!("{}: {error}", path.display());
    }
}

fn append(path: &Path, skip: &Skip) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    // One write, so that lines of several programs don't mix.
    file.write_all(format!("{skip}\n").as_bytes())
}

/// True as root; otherwise it is noted that `what` is skipped.
pub fn is_root(what: impl fmt::Display) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(Prerequisite::Root, what);
    }
    is_root
}

/// True if this user may mount with FUSE; otherwise it is noted that `what` is skipped.
pub fn can_mount(what: impl fmt::Display) -> bool {
    let opened = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    // A user's mounts are made by a helper with root's rights.
    let has_helper = || Command::new("fusermount3").arg("-V").output().is_ok();
    let can_mount = opened && (rustix::process::geteuid().is_root() || has_helper());
    if !can_mount {
        skip(Prerequisite::Fuse, what);
    }
    can_mount
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_written() {
        let named = |kind: fn(String) -> Prerequisite| kind("some thing".to_owned());
        for lack in [
            Prerequisite::Root,
            Prerequisite::OrdinaryUser,
            Prerequisite::Fuse,
            Prerequisite::Rings,
            Prerequisite::LoopMounts,
            named(Prerequisite::Program),
            named(Prerequisite::Kernel),
            named(Prerequisite::Host),
        ] {
            let skip = Skip { lack, test: "crash::a::b".into(), what: "why: because".into() };
            assert_eq!(Skip::parse(&skip.to_string()), Some(skip));
        }
        assert_eq!(Skip::parse("nothing\ta\tb"), None);
        assert_eq!(Skip::parse("root"), None);
    }

    #[test]
    fn skips_are_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("skips");
        let skip = Skip { lack: Prerequisite::Root, test: "a".into(), what: "b".into() };
        append(&path, &skip).unwrap();
        append(&path, &skip).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "root\ta\tb\nroot\ta\tb\n");
    }
}
