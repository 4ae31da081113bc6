//! What tests couldn't do on this machine, counted and listed.
//!
//! A test notes a skip in a file that it is told of (`drystone_testkit::skip`). A skip is an error in
//! continuous integration, unless the machine can't do what the test needs: what is missing is looked
//! for here once more, so that a test which finds it missing by mistake doesn't pass.

use crate::process;
use drystone_testkit::judges;
use drystone_testkit::skip::{Prerequisite, SKIPS, Skip};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file in which the tests of one run note their skips.
pub struct Skips(PathBuf);

impl Skips {
    /// None yet. `name` tells runs apart.
    pub fn begin(name: &str) -> anyhow::Result<Skips> {
        let directory = process::target_directory();
        fs::create_dir_all(&directory)?;
        let path = std::path::absolute(directory.join(format!("skips-{name}")))?;
        File::create(&path)?;
        Ok(Skips(path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Has the tests that a command runs note their skips here.
    pub fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(SKIPS, &self.0)
    }

    /// What was noted, each skip once.
    pub fn noted(&self) -> anyhow::Result<BTreeSet<Skip>> {
        let text = fs::read_to_string(&self.0)?;
        text.lines()
            .map(|line| Skip::parse(line).ok_or_else(|| anyhow::anyhow!("no skip: {line}")))
            .collect()
    }
}

/// The user that has run the tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum User {
    Root,
    Ordinary,
}

impl User {
    /// The user that runs this program.
    pub fn ours() -> User {
        if rustix::process::geteuid().is_root() { User::Root } else { User::Ordinary }
    }
}

/// An error that names what tests found missing though the machine has it, if there is something.
pub fn expect_none(wrong: &[Prerequisite]) -> anyhow::Result<()> {
    let named: Vec<String> = wrong.iter().map(Prerequisite::to_string).collect();
    anyhow::ensure!(wrong.is_empty(), "tests were skipped for want of {}", named.join(", "));
    Ok(())
}

/// Prints what was skipped, by what is missing; gives what is missing though the machine has it.
pub fn list(skips: &BTreeSet<Skip>, user: User) -> anyhow::Result<Vec<Prerequisite>> {
    let mut by_lack: BTreeMap<&Prerequisite, Vec<&Skip>> = BTreeMap::new();
    for skip in skips {
        by_lack.entry(&skip.lack).or_default().push(skip);
    }
    eprintln!("skipped tests, or parts of tests: {}", skips.len());
    let mut wrong = Vec::new();
    for (lack, skips) in by_lack {
        let is_missing = is_missing(lack, user)?;
        let verdict = if is_missing { "the machine can't" } else { "MUST RUN HERE" };
        eprintln!("  {lack}: {verdict}");
        let tests: BTreeSet<&str> = skips.iter().map(|skip| &*skip.test).collect();
        for test in tests {
            eprintln!("      {test}");
        }
        if !is_missing {
            wrong.push(lack.clone());
        }
    }
    Ok(wrong)
}

/// Whether this machine really can't do it, asked without the tests.
fn is_missing(lack: &Prerequisite, user: User) -> anyhow::Result<bool> {
    let is_root = user == User::Root;
    Ok(match lack {
        Prerequisite::Root => !is_root,
        Prerequisite::OrdinaryUser => is_root,
        Prerequisite::Fuse => {
            // Root gives an ordinary user a device to open.
            let opened = File::options().read(true).write(true).open("/dev/fuse");
            let has_helper = || Command::new("fusermount3").arg("-V").output().is_ok();
            opened.is_err() || !is_root && !has_helper()
        }
        Prerequisite::Rings => {
            let offered = File::options().write(true).open(drystone_testkit::rings::OFFERED);
            // No write: the setting stays as it is.
            offered.is_err() || !is_root
        }
        Prerequisite::LoopMounts => !is_root || !judges::can_mount()?,
        // ./dev installs them; this one is there for one architecture.
        Prerequisite::Program(name) => name == "linux.uml" && !cfg!(target_arch = "x86_64"),
        // Tests have asked this kernel and this host themselves; what they name can be read above.
        Prerequisite::Kernel(_) | Prerequisite::Host(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skip_counts_once_and_programs_have_to_be_there() {
        let skip =
            |lack: Prerequisite, test: &str| Skip { lack, test: test.into(), what: "it".into() };
        let program = skip(Prerequisite::Program("no-such".into()), "a");
        let noted: BTreeSet<Skip> =
            [program.clone(), program, skip(Prerequisite::Kernel("x".into()), "b")].into();
        assert_eq!(noted.len(), 2);
        assert_eq!(list(&noted, User::ours()).unwrap(), [Prerequisite::Program("no-such".into())]);
    }

    #[test]
    fn who_runs_it_is_root_or_not() {
        for (user, expected) in [(User::Root, [false, true]), (User::Ordinary, [true, false])] {
            let lacks = [Prerequisite::Root, Prerequisite::OrdinaryUser];
            assert_eq!(lacks.map(|lack| is_missing(&lack, user).unwrap()), expected);
        }
    }
}
