//! `check`: looks for errors in an image and reports each with its place.

use crate::arguments::Global;
use crate::failure::{Failure, Outcome};
use crate::location::Location;

/// Errors were found; `e2fsck` uses the same.
#[expect(dead_code, reason = "the checker isn't linked in yet")]
const FOUND_ERRORS: u8 = 4;
/// The image could not be checked; `e2fsck` uses the same.
const OPERATIONAL_ERROR: u8 = 8;

/// Look for errors in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Superblock, groups, bitmaps, inodes, extents, directories, link counts and checksums are checked, \
and every error is reported with its place. Nothing is changed.

Exit codes: 0 no errors, 4 errors, 8 the image could not be checked.

Examples:
  drystone check disk.img
  drystone check --json disk.img | jq -r .problem")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = Location::parser())]
    image: Location,
}

pub fn run(arguments: &Arguments, _global: &Global) -> Outcome {
    let image = arguments.image.image.display();
    eprintln!("drystone: {image}: this build has no checker");
    Err(Failure::Code(OPERATIONAL_ERROR))
}
