//! `defragment`: moves the blocks of each file together.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::change_whole;
use crate::location::whole_image;
use crate::output::counted;
use crate::progress::Steps;
use crate::size;
use crate::terminal::print_line;
use drystone::defragment_image;
use serde::Serialize;
use std::path::PathBuf;

/// Move the blocks of each file together
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image must not be in use, and is checked before and afterwards. Files and directories with several fragments \
move to free space where they have fewer, those with the most fragments first. What is left needs more free space in \
one piece: 'drystone compact' and then 'drystone resize' make some. Ctrl-C takes the change back. If the command is \
killed, the image is rolled back the next time it is changed, or by 'drystone undo'. 'drystone info --fragmentation' shows what is \
fragmented.

Examples:
  drystone defragment disk.img
  drystone defragment --json disk.img | jq .fragments")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// Keep the old bytes in this file, so that 'drystone undo' can take the change back.
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

/// What was fragmented, and is, in JSON.
#[derive(Serialize)]
struct DefragmentedJson {
    fragmented_before: u64,
    fragmented: u64,
    fragments_before: u64,
    fragments: u64,
    bytes_moved: u64,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let done = change_whole(path, arguments.undo.clone(), global, |options| {
        let steps = Steps::new(global.quiet);
        let done = defragment_image(path, options, &mut |progress| {
            steps.step(progress.step, progress.done, progress.total);
        });
        steps.end();
        done
    })?;
    if global.json {
        print_line(&serde_json::to_string(&DefragmentedJson {
            fragmented_before: done.files_before,
            fragmented: done.files,
            fragments_before: done.fragments_before,
            fragments: done.fragments,
            bytes_moved: done.bytes_moved,
        })?)?;
    } else if !global.quiet {
        let (files, moved) =
            (counted(done.files, "fragmented file"), size::bytes(done.bytes_moved));
        print_line(&format!(
            "{}: {files}, {} before; {} fragments, {} before; {moved} moved",
            path.display(),
            done.files_before,
            done.fragments,
            done.fragments_before,
        ))?;
    }
    Ok(())
}
