//! The documentation as a book: HTML from `docs/`, made by mdBook.
//!
//! mdBook is a wheel of PyPI with a fixed checksum, since it takes minutes to compile. It checks that
//! pages which the contents list exist; `tidy` checks links and headings.

use crate::ci::Verdict;
use crate::process;
use anyhow::Context;
use std::path::PathBuf;
use std::process::Command;

/// The release and its checksums, for pip.
const REQUIREMENTS: &str = "docs/requirements.txt";

/// Builds the book, and says where it is.
pub fn run() -> anyhow::Result<()> {
    let mdbook = program()?;
    let folder = std::path::absolute(process::target_directory().join("book"))?;
    let mut build = Command::new(mdbook);
    let output = build.args(["build", "docs", "--dest-dir"]).arg(&folder).output();
    let output = output.with_context(|| format!("can't run {}", process::describe(&build)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // It goes on after a warning.
    let is_sound = output.status.success() && !said.contains("WARN") && !said.contains("ERROR");
    anyhow::ensure!(is_sound, "mdbook: {}: {said}", output.status);
    let page = folder.join("index.html");
    anyhow::ensure!(page.exists(), "mdbook has not made {}", page.display());
    println!("{}", page.display());
    Ok(())
}

/// The step of continuous integration.
pub fn check() -> anyhow::Result<Verdict> {
    match program() {
        Ok(_) => run().map(|()| Verdict::Passed),
        // Another checksum is an error; anything else is something that the machine lacks.
        Err(error) if format!("{error:#}").contains("HASHES") => Err(error),
        Err(error) => Ok(Verdict::Impossible(format!("{error:#}"))),
    }
}

/// mdBook of the release in [`REQUIREMENTS`], fetched if it isn't there.
fn program() -> anyhow::Result<PathBuf> {
    let requirements = std::fs::read_to_string(REQUIREMENTS).context(REQUIREMENTS)?;
    let folder = process::target_directory().join("mdbook");
    let installed = folder.join("requirements.txt");
    if std::fs::read_to_string(&installed).ok().as_ref() != Some(&requirements) {
        let mut pip = Command::new("pip3");
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--upgrade"]);
        pip.args(["--require-hashes", "--no-deps", "--requirement", REQUIREMENTS, "--target"]);
        process::output(pip.arg(&folder)).context("can't fetch mdbook")?;
        std::fs::write(&installed, requirements)
            .with_context(|| installed.display().to_string())?;
    }
    Ok(folder.join("bin/mdbook"))
}
