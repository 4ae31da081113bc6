//! `undo`: undoes a change of an image.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::terminal::print_line;
use serde::Serialize;
use std::path::PathBuf;

/// Take a change of an image back
#[derive(Debug, clap::Args)]
#[command(after_help = "\
While 'tune', 'resize' and other commands change an image, IMAGE.undo beside it keeps the old bytes. If they \
are interrupted, that file stays, and this command rolls the image back. With FILE it takes back a change \
that was made with '--undo FILE'; it refuses if the image has changed since: by a mount, by another change, \
or by 'trim', 'zero-free' or 'compact'.

Examples:
  drystone undo disk.img
  drystone tune disk.img --label backup --undo before.undo
  drystone undo disk.img before.undo")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The undo log of a change that was made with '--undo FILE'.
    #[arg(value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Whether something was taken back, in JSON.
#[derive(Serialize)]
struct UndoneJson {
    undone: bool,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    global.check_may_change()?;
    let path = &arguments.image;
    let is_undone = drystone::undo(path, arguments.log.as_deref()).at_image(path)?;
    if global.json {
        print_line(&serde_json::to_string(&UndoneJson { undone: is_undone })?)?;
    } else if !is_undone && !global.quiet {
        print_line(&format!("{}: no change was interrupted", path.display()))?;
    }
    Ok(())
}
