//! `zero-free`: zero the free space of an image.

use super::compact::clear;
use crate::failure::Outcome;
use crate::global::Global;
use crate::location::Location;
use drystone::reshape::FreeSpaceAction;

/// Zero the free space of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image must not be in use, and is checked first. Deleted data can't be read from it afterwards, and it \
compresses better. In an image file, zeros are holes where the host can do that. A kill at any time loses \
nothing. Journal blocks and the rest of a file's last block stay as they are. An earlier \
change can't be undone afterwards: its undo log relies on blocks that are free now.

Examples:
  drystone zero-free disk.img
  drystone zero-free --json disk.img | jq .bytes")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = Location::parser())]
    image: Location,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    clear(&arguments.image.image, FreeSpaceAction::Zero, "zeroed", global)
}
