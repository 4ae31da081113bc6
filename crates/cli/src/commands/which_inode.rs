//! `which-inode`: finds the inodes that blocks belong to.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::terminal::Output;
use std::io::Write;
use std::path::PathBuf;

/// Say which inodes blocks belong to
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If a block belongs to no inode, its line says what it is used for. A block that several files claim has a line \
for each.

Examples:
  drystone which-inode disk.img 0 1 2000
  drystone which-inode --json disk.img 2000 | jq .inode")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The numbers of the blocks.
    #[arg(required = true, value_name = "BLOCK")]
    blocks: Vec<u64>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let owners = drystone::which_inode(path, &arguments.blocks).at_image(path)?;
    Output::with_stdout(global.json, |output| {
        for owner in &owners {
            if output.json {
                output.json(owner)?;
            } else {
                writeln!(output, "{}: {}", owner.block, owner.used_as)?;
            }
        }
        Ok(())
    })
}
