//! `checkpoints`: lists, makes, protects and deletes checkpoints of a NILFS2 image.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{AtImage, Intent, close, open};
use crate::location::whole_image;
use crate::output::time_stat;
use crate::terminal::Output;
use anyhow::anyhow;
use drystone::vfs::{Errno, Timestamp};
use drystone::{CheckpointSummary, Image};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// List, keep and delete the checkpoints of a NILFS2 image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every sync of NILFS2 makes a checkpoint: the whole tree as it is at that moment. Wherever a command takes an \
image to read, IMAGE@NUMBER names one. The cleaner deletes old checkpoints for their space; a snapshot is a \
checkpoint that it keeps.

Examples:
  drystone checkpoints log.img
  drystone checkpoints log.img --make --keep 2
  drystone ls log.img@2:/")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// Make a checkpoint now, if anything has changed since the last one.
    #[arg(long)]
    make: bool,
    /// Make a checkpoint a snapshot, which the cleaner keeps.
    #[arg(long, value_name = "NUMBER")]
    keep: Vec<u64>,
    /// Make a snapshot a plain checkpoint again.
    #[arg(long, value_name = "NUMBER")]
    release: Vec<u64>,
    /// Delete a checkpoint.
    #[arg(long, value_name = "NUMBER")]
    delete: Vec<u64>,
}

/// A checkpoint in JSON.
#[derive(Serialize)]
struct CheckpointJson {
    checkpoint: u64,
    /// Seconds since 1970.
    created: u64,
    is_snapshot: bool,
    is_minor: bool,
    inodes: u64,
    blocks: u64,
    blocks_written: u64,
}

impl From<&CheckpointSummary> for CheckpointJson {
    fn from(summary: &CheckpointSummary) -> CheckpointJson {
        CheckpointJson {
            checkpoint: summary.number,
            created: summary.created_s,
            is_snapshot: summary.is_snapshot,
            is_minor: summary.is_minor,
            inodes: summary.inodes,
            blocks: summary.blocks,
            blocks_written: summary.blocks_written,
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let is_change = arguments.make
        || [&arguments.keep, &arguments.release, &arguments.delete]
            .into_iter()
            .any(|numbers| !numbers.is_empty());
    let intent = if is_change { Intent::Change } else { Intent::Read };
    let image = open(path, intent, global)?;
    let done =
        change(&image, path, arguments).and_then(|()| Ok(image.checkpoints().at_image(path)?));
    let all = close(path, image, done)?;
    Output::with_stdout(global.json, |output| {
        if output.json {
            for checkpoint in &all {
                output.json(&CheckpointJson::from(checkpoint))?;
            }
            return Ok(());
        }
        if !global.quiet {
            list(&all, output)?;
        }
        Ok(())
    })
}

/// Changes as the arguments say, in this order: what is made or released can be deleted.
fn change(image: &Image, path: &Path, arguments: &Arguments) -> Outcome {
    if arguments.make {
        image.make_checkpoint().at_image(path)?;
    }
    type Change = fn(&Image, u64) -> drystone::Result<()>;
    let changes: [(&[u64], Change); 3] = [
        (&arguments.keep, |image, number| image.set_snapshot(number, true)),
        (&arguments.release, |image, number| image.set_snapshot(number, false)),
        (&arguments.delete, Image::delete_checkpoint),
    ];
    for (numbers, change) in changes {
        for &number in numbers {
            change(image, number).map_err(|error| {
                anyhow!("{}: {}", path.display(), refusal(image, number, &error))
            })?;
        }
    }
    Ok(())
}

/// Why a checkpoint can't be changed so.
fn refusal(image: &Image, number: u64, error: &drystone::Error) -> String {
    let is_snapshot = || {
        let all = image.checkpoints().unwrap_or_default();
        all.iter().any(|checkpoint| checkpoint.number == number && checkpoint.is_snapshot)
    };
    match error.errno() {
        Errno::ENOENT => format!("there is no checkpoint {number}"),
        Errno::EBUSY if is_snapshot() => {
            format!("checkpoint {number} is a snapshot: '--release {number}' first")
        }
        Errno::EBUSY => format!("checkpoint {number} is the newest, which can't be deleted"),
        _ => format!("checkpoint {number}: {}", error.cause()),
    }
}

fn list(all: &[CheckpointSummary], output: &mut Output<'_>) -> std::io::Result<()> {
    let zone = TimeZone::system();
    writeln!(output, "checkpoint  made                                 inodes     blocks")?;
    for checkpoint in all {
        let seconds = i64::try_from(checkpoint.created_s).unwrap_or(i64::MAX);
        let made = time_stat(Timestamp { seconds, nanoseconds: 0 }, &zone);
        let mark = match (checkpoint.is_snapshot, checkpoint.is_minor) {
            (true, _) => "  snapshot",
            (false, true) => "  minor",
            (false, false) => "",
        };
        let (number, inodes, blocks) = (checkpoint.number, checkpoint.inodes, checkpoint.blocks);
        writeln!(output, "{number:>10}  {made:<35} {inodes:>7} {blocks:>10}{mark}")?;
    }
    Ok(())
}
