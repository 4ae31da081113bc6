//! `metadata`: copies an image without the data of its files.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::unless_interrupted;
use crate::interrupt::Interrupt;
use crate::location::whole_image;
use crate::messages::tell;
use crate::output::counted;
use crate::progress::Steps;
use crate::size;
use crate::terminal::print_line;
use drystone::inspection::{MetadataOptions, ScrambleSummary};
use serde::Serialize;
use std::path::PathBuf;

/// Copy an image without the data of its files, for a bug report
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image may be damaged: it is copied as it is, and its journal isn't replayed. The copy has the size of the image \
and is sparse; if its name ends with .qcow2, it is a qcow2, which is a smaller file. 'drystone check', e2fsck and \
debugfs work on the copy.

Before you send it: the copy still has all names, targets of symbolic links and extended attributes, the content of \
small files that is stored in their inodes, and whatever the journal holds.

With --scramble, names and all other private text are random letters of the same lengths, and the copy has the same \
structure and the same problems. Owners, permissions, times, sizes, block numbers and access control lists stay; in an \
image without metadata_csum, inodes lose times and owners, which might be text. The journal is replayed in the copy, \
which has an empty log.

Examples:
  drystone metadata disk.img report.img
  drystone metadata disk.img report.qcow2
  drystone metadata --scramble disk.img scrambled.qcow2")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The new file.
    #[arg(value_name = "FILE")]
    target: PathBuf,
    /// Replace names and all other private text by random letters.
    #[arg(long)]
    scramble: bool,
}

/// What was copied, in JSON.
#[derive(Serialize)]
struct MetadataJson {
    bytes: u64,
    unreadable_bytes: u64,
    problems: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scrambled: Option<ScrambledJson>,
}

/// What a scrambled copy lacks, in JSON.
#[derive(Serialize)]
struct ScrambledJson {
    unclear_bytes: u64,
    misplaced_names: u64,
    replayed: bool,
}

impl From<ScrambleSummary> for ScrambledJson {
    fn from(summary: ScrambleSummary) -> Self {
        Self {
            unclear_bytes: summary.unclear_bytes,
            misplaced_names: summary.misplaced_names,
            replayed: summary.replayed,
        }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let steps = Steps::new(global.quiet);
    let interrupt = Interrupt::install()?;
    let options =
        MetadataOptions::default().scramble(arguments.scramble).cancelled(interrupt.flag());
    let copied = drystone::save_metadata(path, &arguments.target, &options, &mut |done, total| {
        steps.step("copying metadata", done, total);
    });
    steps.end();
    let copied = unless_interrupted(path, copied, &interrupt, "there is no copy")?;
    if copied.unreadable_bytes > 0 {
        let bytes = size::bytes(copied.unreadable_bytes);
        tell(format_args!("{}: {bytes} can't be read", path.display()));
    }
    if global.json {
        let (bytes, unreadable_bytes) = (copied.bytes, copied.unreadable_bytes);
        let scrambled = copied.scrambled.map(ScrambledJson::from);
        let json = MetadataJson { bytes, unreadable_bytes, problems: copied.problems, scrambled };
        print_line(&serde_json::to_string(&json)?)?;
    } else if !global.quiet {
        let bytes = size::bytes(copied.bytes);
        let problems = match copied.problems {
            0 => String::new(),
            problems => format!(", {} in maps of blocks", counted(problems, "problem")),
        };
        let target = arguments.target.display();
        print_line(&format!("{target}: {bytes} of metadata{problems}"))?;
        if let Some(scrambled) = copied.scrambled {
            tell_scrambled(&scrambled)?;
        }
    }
    Ok(())
}

/// Says how a scrambled copy differs from the image, besides its text.
fn tell_scrambled(scrambled: &ScrambleSummary) -> Outcome {
    if scrambled.replayed {
        print_line("the journal was replayed in the copy")?;
    }
    if scrambled.unclear_bytes > 0 {
        let bytes = size::bytes(scrambled.unclear_bytes);
        print_line(&format!("{bytes} are zeros because they may be text"))?;
    }
    if scrambled.misplaced_names > 0 {
        let names = counted(scrambled.misplaced_names, "name");
        print_line(&format!("{names} in hashed directories are out of place in the copy"))?;
    }
    Ok(())
}
