//! The documentation as a book: HTML from `docs/`, made by mdBook.
//!
//! mdBook takes minutes to compile, so nothing else needs it: `tidy` checks links and contents.

use crate::process;
use anyhow::bail;
use std::path::Path;
use std::process::Command;

/// What `./dev book` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Install mdBook with cargo if it isn't there; takes some minutes.
    #[arg(long)]
    install: bool,
}

/// Builds the book, and says where it is.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if Command::new("mdbook").arg("--version").output().is_err() {
        if !options.install {
            bail!("mdbook isn't installed: './dev book --install' installs it with cargo");
        }
        process::run(&mut process::cargo(["install", "mdbook", "--locked"]))?;
    }
    let folder = std::path::absolute(process::target_directory().join("book"))?;
    process::run(Command::new("mdbook").arg("build").arg("--dest-dir").arg(&folder).arg("docs"))?;
    let page = folder.join("index.html");
    anyhow::ensure!(Path::new(&page).exists(), "mdbook has not made {}", page.display());
    println!("{}", page.display());
    Ok(())
}
