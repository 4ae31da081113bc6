//! `check`: looks for errors in an image and reports each with its place, or repairs them.

use super::repair::RepairArguments;
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::reason;
use crate::location::whole_image;
use crate::output::{Escaped, counted};
use crate::progress::Steps;
use crate::size;
use crate::terminal::Output;
use drystone::FileSystemKind;
use drystone::fsck::CheckOptions;
use drystone::nilfs2_check::{IssueSeverity, Nilfs2CheckOptions, Nilfs2CheckReport};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Errors were found; `e2fsck` uses the same.
const FOUND_ERRORS: u8 = 4;
/// The image could not be checked; `e2fsck` uses the same.
const OPERATIONAL_ERROR: u8 = 8;
/// Problems that are printed one by one. All are counted.
const PROBLEMS_MAX: usize = 1_000_000;

/// Look for errors in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The check covers superblock, journal, groups, bitmaps, inodes, extents, directories, attributes, link \
counts, quota and checksums. It reports every error with its place and changes nothing. A dirty \
journal is first replayed in memory, so that the check sees what the next mount would see.

With --repair, -p or -y, the journal of an ext4 image is replayed and its errors are repaired. IMAGE.undo \
beside the image keeps the old bytes until the repair is complete: Ctrl-C takes it back, and after a kill \
'drystone undo IMAGE' does. Errors that can't be repaired yet are reported and left as they are.

Exit codes: 0 no errors; 1 all errors were repaired; 4 errors are left; 8 the image could not be checked, \
or the result could not be printed; 16 wrong usage of --repair; 32 the repair was cancelled.

Examples:
  drystone check disk.img
  drystone check --json disk.img | jq -r '.problems[].problem'
  drystone check --memory 256M disk.img
  drystone check -n disk.img
  drystone check -y disk.img --undo repair.undo")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// Check the image as it is, without replaying its journal.
    #[arg(long)]
    no_replay: bool,
    /// Limit the memory for what the check records about blocks, inodes and directories: 64M, 1G, ….
    ///
    /// By default as much as the image needs: about one byte for each inode and two bits for each block in use.
    /// With little memory fewer threads work, and fewer problems are listed; if it isn't enough, the check ends
    /// with exit code 8.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    #[command(flatten)]
    repair: RepairArguments,
}

impl Arguments {
    fn options(&self) -> CheckOptions {
        let memory_max = self.memory.unwrap_or(u64::MAX);
        let options = CheckOptions::default().replay(!self.no_replay).problems_max(PROBLEMS_MAX);
        options.memory_max(memory_max)
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match check(arguments, global) {
        // 1 would mean that errors were corrected.
        Err(failure @ (Failure::Failed(_) | Failure::Reported)) => {
            failure.report();
            Err(Failure::Code(OPERATIONAL_ERROR))
        }
        other => other,
    }
}

fn check(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    if arguments.repair.is_wanted() {
        let options = arguments.options();
        return super::repair::run(path, &arguments.repair, &options, global);
    }
    match drystone::kind_of(path).map_err(|error| impossible(path, &error.into()))? {
        Some(FileSystemKind::Nilfs2) => check_nilfs2(path, arguments, global),
        // The checker says what is wrong with an unknown superblock.
        Some(FileSystemKind::Ext4) | None => check_ext4(path, arguments, global),
    }
}

/// The exit code of a check, which reports errors even if they could not be printed.
fn conclude(is_clean: bool, printed: Outcome) -> Outcome {
    match printed {
        Err(failure) if !is_clean => {
            failure.report();
            Err(Failure::Code(FOUND_ERRORS))
        }
        Ok(()) if !is_clean => Err(Failure::Code(FOUND_ERRORS)),
        printed => printed,
    }
}

fn impossible(path: &Path, error: &drystone::Error) -> Failure {
    crate::messages::tell(format_args!("{}: {}", path.display(), reason(path, error.cause())));
    Failure::Code(OPERATIONAL_ERROR)
}

fn check_ext4(path: &Path, arguments: &Arguments, global: &Global) -> Outcome {
    let steps = Steps::new(global.quiet);
    let options = arguments.options();
    let checked = drystone::check_image(path, &options, &mut |progress| steps.follow(&progress));
    steps.end();
    let report = checked.map_err(|error| impossible(path, &error))?;
    let printed = Output::with_stdout(global.json, |output| {
        if output.json {
            output.json(&report)?;
            return Ok(());
        }
        show_problems(&report.problems, report.errors + report.warnings, output)?;
        if !global.quiet {
            let path = path.display();
            match report.summary.transactions_replayed {
                0 => {}
                1 => writeln!(
                    output,
                    "{path}: one transaction of the journal was replayed in memory"
                )?,
                n => writeln!(
                    output,
                    "{path}: {n} transactions of the journal were replayed in memory"
                )?,
            }
            let verdict = verdict(report.errors, report.warnings);
            writeln!(output, "{path}: {verdict}, {}", report.summary)?;
        }
        Ok(())
    });
    conclude(report.is_clean(), printed)
}

fn check_nilfs2(path: &Path, arguments: &Arguments, global: &Global) -> Outcome {
    if arguments.no_replay {
        return Err(Failure::Usage("NILFS2 has no journal: --no-replay means nothing".to_string()));
    }
    if arguments.memory.is_some() {
        return Err(Failure::Usage("--memory is for ext4; this is NILFS2".to_string()));
    }
    let options = Nilfs2CheckOptions::default().problems_max(PROBLEMS_MAX);
    let checked = drystone::check_nilfs2(path, &options);
    let report = checked.map_err(|error| impossible(path, &error))?;
    let printed = Output::with_stdout(global.json, |output| {
        if output.json {
            output.json(&Nilfs2Json::new(&report))?;
            return Ok(());
        }
        show_problems(&report.problems, report.errors + report.warnings, output)?;
        if !global.quiet {
            let summary = &report.summary;
            writeln!(
                output,
                "{}: {}, checkpoint {} of {}, {}, {} inodes, {} blocks, {} of {} segments clean",
                path.display(),
                verdict(report.errors, report.warnings),
                summary.newest_checkpoint,
                summary.checkpoints,
                counted(summary.snapshots, "snapshot"),
                summary.inodes,
                summary.blocks_used,
                summary.segments_clean,
                summary.segments_total
            )?;
        }
        Ok(())
    });
    conclude(report.is_clean(), printed)
}

/// A report about NILFS2, in JSON.
#[derive(Serialize)]
struct Nilfs2Json {
    errors: u64,
    warnings: u64,
    problems: Vec<Nilfs2ProblemJson>,
    summary: Nilfs2SummaryJson,
}

#[derive(Serialize)]
struct Nilfs2ProblemJson {
    severity: &'static str,
    problem: String,
    checkpoint: Option<u64>,
}

#[derive(Serialize)]
struct Nilfs2SummaryJson {
    newest_checkpoint: u64,
    checkpoints: u64,
    snapshots: u64,
    inodes: u64,
    segments_clean: u64,
    segments_total: u64,
    blocks_used: u64,
}

impl Nilfs2Json {
    fn new(report: &Nilfs2CheckReport) -> Nilfs2Json {
        let problems = report.problems.iter().map(|problem| Nilfs2ProblemJson {
            severity: match problem.severity() {
                IssueSeverity::Error => "error",
                IssueSeverity::Warning => "warning",
            },
            problem: problem.issue.to_string(),
            checkpoint: problem.checkpoint.map(|checkpoint| checkpoint.0),
        });
        let summary = &report.summary;
        Nilfs2Json {
            errors: report.errors,
            warnings: report.warnings,
            problems: problems.collect(),
            summary: Nilfs2SummaryJson {
                newest_checkpoint: summary.newest_checkpoint,
                checkpoints: summary.checkpoints,
                snapshots: summary.snapshots,
                inodes: summary.inodes,
                segments_clean: summary.segments_clean,
                segments_total: summary.segments_total,
                blocks_used: summary.blocks_used,
            },
        }
    }
}

fn show_problems(
    problems: &[impl ToString],
    found: u64,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    for problem in problems {
        // Names in an image may hold anything, and a problem is a line.
        writeln!(output, "{}", Escaped(problem.to_string().as_bytes()))?;
    }
    let left_out = found - problems.len() as u64;
    if left_out > 0 {
        writeln!(output, "… and {left_out} more")?;
    }
    Ok(())
}

fn verdict(errors: u64, warnings: u64) -> String {
    match (errors, warnings) {
        (0, 0) => "clean".to_string(),
        (0, warnings) => format!("clean, {}", counted(warnings, "warning")),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => {
            format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
        }
    }
}
