//! Writes the manual pages of the `drystone` command, from the definitions that the command itself
//! parses its arguments with.
//!
//! A program of its own, so that the command needn't carry what makes pages.
#![forbid(unsafe_code)]

mod page;

use anyhow::Context;
use clap::Parser;
use std::path::PathBuf;

/// Write the manual pages of drystone and its commands
#[derive(Parser)]
struct Arguments {
    /// Where the pages go: drystone.1, drystone-mkfs.1 and so on.
    directory: PathBuf,
    /// The date that the pages show.
    #[arg(long, default_value = "")]
    date: String,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    for (name, text) in page::all(drystone_cli::definition(), &arguments.date)? {
        let path = arguments.directory.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
