//! An archive with a static program, which needs no library of the machine that it runs on.

use super::bare_root::BareRoot;
use crate::process;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the archive and of the folder in it.
fn name() -> String {
    format!("drystone-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// Builds the archive; gives its path.
pub fn build() -> anyhow::Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    add_target(&target)?;
    let program = super::build_program(Some(&target))?;
    let folder = super::folder()?;
    super::fill(&folder.join(name()), &program)?.list()?;
    let archive = folder.join(format!("{}.tar.gz", name()));
    let mut tar = Command::new("tar");
    // The same files give the same archive.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w"]);
    tar.arg(format!("--mtime={}", process::output(&mut last_change())?.trim()));
    tar.args(["--use-compress-program", "gzip -9n", "--create", "--file"]).arg(&archive);
    process::run(tar.arg("--directory").arg(&folder).arg(name()))?;
    Ok(archive)
}

/// Tells the date of the last change of the sources.
fn last_change() -> Command {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%cI"]);
    git
}

/// Has rustup fetch the standard library for a target, if it isn't there.
fn add_target(target: &str) -> anyhow::Result<()> {
    let mut rustc = Command::new("rustc");
    let library = process::output(rustc.args(["--print", "target-libdir", "--target", target]))?;
    if Path::new(library.trim()).exists() {
        return Ok(());
    }
    process::run(Command::new("rustup").args(["target", "add", target]))
        .with_context(|| format!("the Rust toolchain lacks the target {target}"))
}

/// Uses the program from the archive in a root directory without any library, device or other program.
pub fn test(archive: &Path) -> anyhow::Result<()> {
    let root = BareRoot::empty()?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]).arg(archive);
    process::run(tar.arg("--directory").arg(root.path()))?;
    // Reading a tree goes through /proc.
    for folder in ["tmp", "proc"] {
        std::fs::create_dir(root.path().join(folder))?;
    }
    let steps = [
        "--version",
        "mkfs /tmp/empty.img --size 64M",
        "build /tmp/disk.img --from /share --free 20%",
        "ls -l /tmp/disk.img:/doc/drystone",
        "cp /tmp/disk.img:/doc/drystone/README.md /tmp/copied",
        "check /tmp/empty.img",
        "check /tmp/disk.img",
    ];
    for step in steps {
        root.run(&["/bin/drystone"], &step.split(' ').collect::<Vec<_>>())?;
    }
    let read = |name: &str| std::fs::read(root.path().join(name)).with_context(|| name.to_owned());
    anyhow::ensure!(read("tmp/copied")? == read("share/doc/drystone/README.md")?, "a wrong copy");
    println!("the static program works without anything else in its root directory");
    Ok(())
}
