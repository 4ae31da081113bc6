//! `compact`: makes an image as small as it can be.

use super::resize::shrink_to_minimum;
use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use crate::interrupt::Interrupt;
use crate::location::whole_image;
use crate::output::counted;
use crate::progress::Steps;
use crate::size;
use crate::terminal::print_line;
use drystone::reshape::FreeSpaceAction;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Make an image as small as it can be
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything moves to the front, the image shrinks as far as its files allow, and so does the image file. Blocks \
that are still free become holes. A partition or a block device keeps its size. Until the image has its \
new size, IMAGE.undo beside it keeps the old bytes: Ctrl-C takes the change back, and after a kill the image is \
rolled back the next time it is changed, or by 'drystone undo'. 'drystone resize' makes the image larger again. An earlier change \
can't be undone afterwards, because its undo log relies on blocks that are free now.

Examples:
  drystone compact disk.img
  drystone compact --json old.img | jq .blocks")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    shrink_to_minimum(path, global)?;
    // The image is whole, whenever the rest ends.
    Interrupt::install()?.end_at_next();
    // The JSON output is that of the resize.
    let quiet = Global { quiet: true, json: false, ..global.clone() };
    clear(path, FreeSpaceAction::Discard, "discarded", if global.json { &quiet } else { global })
}

/// Free space that was dealt with, in JSON.
#[derive(Serialize)]
struct FreedJson {
    bytes: u64,
    runs: u64,
}

/// Discards or zeroes the free space of an image, and says how much it was.
pub fn clear(path: &Path, action: FreeSpaceAction, verb: &str, global: &Global) -> Outcome {
    global.check_may_change()?;
    let steps = Steps::new(global.quiet);
    let freed = drystone::clear_free_space(path, action, &mut |progress| {
        steps.step(progress.step, progress.done, progress.total);
    });
    steps.end();
    let freed = freed.at_image(path)?;
    if global.json {
        let json = FreedJson { bytes: freed.bytes, runs: freed.runs };
        print_line(&serde_json::to_string(&json)?)?;
    } else if !global.quiet {
        let (bytes, pieces) = (size::bytes(freed.bytes), counted(freed.runs, "piece"));
        print_line(&format!("{}: {bytes} in {pieces} {verb}", path.display()))?;
    }
    Ok(())
}
