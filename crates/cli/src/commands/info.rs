//! `info`: what an image is.

use crate::arguments::Global;
use crate::failure::Outcome;
use crate::image::{Intent, with_each};
use crate::location::Location;
use crate::size;
use crate::terminal::Output;
use crate::tree::Tree;
use std::io::Write;

/// Show what an image is and how full
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  drystone info disk.img
  drystone info --json disk.img | jq .blocks_free")]
pub struct Arguments {
    /// The images.
    #[arg(required = true, value_name = "IMAGE", value_parser = Location::parser())]
    images: Vec<Location>,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    with_each(&arguments.images, Intent::Read, global, |tree, _| {
        Output::with_stdout(global.json, |output| show(tree, output))
    })
}

fn show(tree: &Tree<'_>, output: &mut Output<'_>) -> Outcome {
    let statistics = tree.file_system.statistics().map_err(|error| tree.error(b"/", &error))?;
    if output.json {
        return Ok(output.json(&statistics)?);
    }
    let block_size = u64::from(statistics.block_size);
    let space = |blocks: u64| size::human(blocks.saturating_mul(block_size));
    writeln!(output, "Block size   {}", statistics.block_size)?;
    writeln!(output, "Blocks       {} ({})", statistics.blocks, space(statistics.blocks))?;
    let free = statistics.blocks_free;
    writeln!(output, "Free blocks  {free} ({})", space(free))?;
    let available = statistics.blocks_available;
    writeln!(output, "Available    {available} ({})", space(available))?;
    writeln!(output, "Inodes       {}", statistics.inodes)?;
    writeln!(output, "Free inodes  {}", statistics.inodes_free)?;
    Ok(())
}
