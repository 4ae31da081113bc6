//! `trim`: gives the free space of an image back to the host.

use super::compact::clear;
use crate::failure::Outcome;
use crate::global::Global;
use crate::location::whole_image;
use drystone::reshape::FreeSpaceAction;
use std::path::PathBuf;

/// Give the free space of an image back to the host
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image must not be in use, and is checked first. In an image file, free blocks become holes; a block \
device is asked to discard them, as fstrim(8) does for a mounted one. A kill at any time loses nothing. \
Afterwards, deleted files can't be brought back, and an earlier change can't be undone, because its undo log \
relies on blocks that are free now.

Examples:
  drystone trim disk.img
  drystone trim --json disk.img | jq .bytes")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    clear(&arguments.image, FreeSpaceAction::Discard, "discarded", global)
}
