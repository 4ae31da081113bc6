//! Test programs that cargo has built.

use anyhow::ensure;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A test program.
#[derive(Debug)]
pub struct TestProgram {
    /// The test target.
    pub name: String,
    /// The folder of the package, in which cargo runs the program.
    pub directory: PathBuf,
    pub executable: PathBuf,
}

/// A message of cargo.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl TestProgram {
    /// The programs that a call of `cargo test --no-run` builds.
    pub fn build(mut cargo: Command) -> anyhow::Result<Vec<TestProgram>> {
        let output = cargo.arg("--message-format=json").stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the tests can't be built");
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        let programs = messages.filter(|message| message.profile.as_ref().is_some_and(|p| p.test));
        let programs = programs.filter_map(|message| {
            Some(TestProgram {
                name: message.target?.name,
                directory: message.manifest_path?.parent()?.to_owned(),
                executable: message.executable?,
            })
        });
        Ok(programs.collect())
    }
}
