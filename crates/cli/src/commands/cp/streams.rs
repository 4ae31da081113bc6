//! Standard input as a source.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::location::Location;
use crate::tree::ImageTree;
use anyhow::Context;
use drystone::OpenOptions;
use drystone::transfer::CopySummary;
use std::io::{ErrorKind, Read, Write};

/// Copied at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Copies standard input into a file, which is made or replaced.
pub fn from_input(target: &Location, global: &Global) -> Outcome<CopySummary> {
    with_one(&target.image, Intent::Change, global, |tree| {
        write_all(tree, target, &mut std::io::stdin().lock())
    })
}

fn write_all(
    tree: &ImageTree<'_>,
    target: &Location,
    input: &mut dyn Read,
) -> Outcome<CopySummary> {
    let problem = |error| tree.error_at(&target.path, error);
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644);
    let mut file = tree.fs.open_with(&target.path, options).map_err(problem)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut summary = CopySummary { files: 1, ..CopySummary::default() };
    loop {
        tree.check_interrupt()?;
        match input.read(&mut buffer) {
            Ok(0) => return Ok(summary),
            Ok(length) => {
                let written = file.write_all(&buffer[..length]);
                written.map_err(|error| problem(error.into()))?;
                summary.bytes += length as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("standard input")?,
        }
    }
}
