//! `history`: shows how a file changed from one checkpoint of a NILFS2 image to the next.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::{AtImage, Intent, close, open};
use crate::location::Location;
use crate::output::{InodeJson, time_stat};
use crate::terminal::Output;
use crate::tree::ImageTree;
use drystone::CheckpointSummary;
use drystone::vfs::{Errno, InodeAttributes, Timestamp, find_path};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Show how a file of a NILFS2 image has changed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a line for each checkpoint in which the file differs from the checkpoint before: its size and the time \
of its last change, or that it is gone. IMAGE@NUMBER:PATH names the file as it was then.

Examples:
  drystone history log.img:/etc/hosts
  drystone cat log.img@2:/etc/hosts")]
pub struct Arguments {
    /// The file or directory.
    #[arg(value_name = "IMAGE:PATH", value_parser = Location::path_parser())]
    file: Location,
}

/// A state of the file in JSON.
#[derive(Serialize)]
struct StateJson {
    checkpoint: u64,
    /// Seconds since 1970.
    made: u64,
    /// `null`: there was no such file.
    file: Option<InodeJson>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.file.image;
    let image = open(path, Intent::Read, global)?;
    let listed = image.checkpoints().at_image(path);
    let all = close(path, image, listed.map_err(Into::into))?;
    let zone = TimeZone::system();
    Output::with_stdout(global.json, |output| {
        let mut before = None;
        let mut is_unknown = true;
        for checkpoint in &all {
            let now = state(arguments, checkpoint, global)?;
            is_unknown &= now.is_none();
            if now != before {
                show(arguments, checkpoint, now.as_ref(), &zone, output)?;
                before = now;
            }
        }
        if is_unknown {
            let missing = anyhow::anyhow!("{}: in no checkpoint", arguments.file);
            return Err(missing.into());
        }
        Ok(())
    })
}

/// The file in a checkpoint, if it was there.
fn state(
    arguments: &Arguments,
    checkpoint: &CheckpointSummary,
    global: &Global,
) -> Outcome<Option<InodeAttributes>> {
    let mut name = arguments.file.image.clone().into_os_string();
    name.push(format!("@{}", checkpoint.number));
    let path = PathBuf::from(name);
    let image = open(&path, Intent::Read, global)?;
    let found = {
        let tree = ImageTree::new(image.file_system(), &path);
        let path = arguments.file.path_bytes();
        match find_path(tree.file_system, &tree.context, path, false) {
            Ok(found) => Ok(Some(*found.attributes())),
            Err(error) if [Errno::ENOENT, Errno::ENOTDIR].contains(&error.errno) => Ok(None),
            Err(error) => Err(tree.error(path, &error).into()),
        }
    };
    close(&path, image, found)
}

fn show(
    arguments: &Arguments,
    checkpoint: &CheckpointSummary,
    file: Option<&InodeAttributes>,
    zone: &TimeZone,
    output: &mut Output<'_>,
) -> Outcome {
    let (checkpoint, made) = (checkpoint.number, checkpoint.created_s);
    if output.json {
        let name = arguments.file.path_bytes();
        let file = file.map(|attributes| InodeJson::new(name, attributes, None, [None; 2]));
        return Ok(output.json(&StateJson { checkpoint, made, file })?);
    }
    let seconds = i64::try_from(made).unwrap_or(i64::MAX);
    let made = time_stat(Timestamp { seconds, nanoseconds: 0 }, zone);
    match file {
        Some(file) => {
            let changed = time_stat(file.changed, zone);
            let size = file.size;
            writeln!(output, "{checkpoint:>10}  {made}  {size:>12} bytes, changed {changed}")?;
        }
        None => writeln!(output, "{checkpoint:>10}  {made}  not there")?,
    }
    Ok(())
}
