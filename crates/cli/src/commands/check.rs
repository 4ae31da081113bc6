//! `check`: looks for errors in an image and reports each with its place.

use crate::arguments::Global;
use crate::failure::{Failure, Outcome};
use crate::location::Location;
use crate::output::Escaped;
use crate::progress::Steps;
use crate::terminal::Output;
use drystone::fsck::{Options, Report};
use std::io::Write;
use std::path::Path;

/// Errors were found; `e2fsck` uses the same.
const FOUND_ERRORS: u8 = 4;
/// The image could not be checked; `e2fsck` uses the same.
const OPERATIONAL_ERROR: u8 = 8;
/// Problems that are told one by one. All are counted.
const PROBLEMS_MAX: usize = 1_000_000;

/// Look for errors in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checked are superblock, journal, groups, bitmaps, inodes, extents, directories, attributes, link \
counts, quota and checksums. Every error is reported with its place. Nothing is changed: a dirty \
journal is replayed in memory first, so that what the next mount would see is checked.

Exit codes: 0 no errors; 4 errors; 8 the image could not be checked.

Examples:
  drystone check disk.img
  drystone check --json disk.img | jq -r '.problems[].problem'")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = Location::parser())]
    image: Location,
    /// Check the image as it is, without replaying its journal.
    #[arg(long)]
    no_replay: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image.image;
    let steps = Steps::new(global.quiet);
    let options = Options { replay: !arguments.no_replay, problems_max: PROBLEMS_MAX };
    let checked = drystone::check_image(path, &options, &mut |progress| steps.follow(&progress));
    steps.end();
    let report = checked.map_err(|error| {
        crate::terminal::tell(format_args!("{}: {error}", path.display()));
        Failure::Code(OPERATIONAL_ERROR)
    })?;
    Output::with_stdout(global.json, |output| {
        if output.json {
            output.json(&report)?;
        } else {
            show(path, &report, global.quiet, output)?;
        }
        Ok(())
    })?;
    if report.is_clean() { Ok(()) } else { Err(Failure::Code(FOUND_ERRORS)) }
}

fn show(path: &Path, report: &Report, quiet: bool, output: &mut Output<'_>) -> std::io::Result<()> {
    for problem in &report.problems {
        // Names in an image may hold anything, and a problem is a line.
        writeln!(output, "{}", Escaped(problem.to_string().as_bytes()))?;
    }
    let left_out = report.errors + report.warnings - report.problems.len() as u64;
    if left_out > 0 {
        writeln!(output, "… and {left_out} more")?;
    }
    if quiet {
        return Ok(());
    }
    let (summary, path) = (&report.summary, path.display());
    match summary.transactions_replayed {
        0 => {}
        1 => writeln!(output, "{path}: one transaction of the journal was replayed in memory")?,
        n => writeln!(output, "{path}: {n} transactions of the journal were replayed in memory")?,
    }
    let verdict = match (report.errors, report.warnings) {
        (0, 0) => "clean".to_string(),
        (0, warnings) => format!("clean, {}", counted(warnings, "warning")),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => {
            format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
        }
    };
    writeln!(output, "{path}: {verdict}, {summary}")
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
