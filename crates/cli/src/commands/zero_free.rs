//! `zero-free`: overwrites the free space of an image with zeros.

use super::compact::clear;
use crate::failure::Outcome;
use crate::global::Global;
use crate::location::whole_image;
use drystone::reshape::FreeSpaceAction;
use std::path::PathBuf;

/// Overwrite the free space of an image with zeros
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image must not be in use, and is checked first. Afterwards, deleted data can't be read from free blocks, \
and the image compresses better. In an image file, the zeros are holes if the host supports that. A kill at any time \
loses nothing. The journal, preallocated blocks, directories, inode tables and the unused end of a file's last block \
stay as they are, with the old data that they hold. An earlier change can't \
be undone afterwards, because its undo log relies on blocks that are free now.

Examples:
  drystone zero-free disk.img
  drystone zero-free --json disk.img | jq .bytes")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    clear(&arguments.image, FreeSpaceAction::Zero, "zeroed", global)
}
