//! `metadata`: copies an image without the data of its files.

use crate::failure::Outcome;
use crate::global::Global;
use crate::image::AtImage;
use crate::location::Location;
use crate::messages::tell;
use crate::output::counted;
use crate::progress::Steps;
use crate::size;
use crate::terminal::print_line;
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

Examples:
  drystone metadata disk.img report.img
  drystone metadata disk.img report.qcow2")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = Location::parser())]
    image: Location,
    /// The new file.
    #[arg(value_name = "FILE")]
    target: PathBuf,
}

/// What was copied, in JSON.
#[derive(Serialize)]
struct MetadataJson {
    bytes: u64,
    unreadable_bytes: u64,
    problems: u64,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image.image;
    let steps = Steps::new(global.quiet);
    let copied = drystone::save_metadata(path, &arguments.target, &mut |done, total| {
        steps.step("copying metadata", done, total);
    });
    steps.end();
    let copied = copied.at_image(path)?;
    if copied.unreadable_bytes > 0 {
        let bytes = size::human(copied.unreadable_bytes);
        tell(format_args!("{}: {}B can't be read", path.display(), bytes.trim()));
    }
    if global.json {
        let (bytes, unreadable_bytes) = (copied.bytes, copied.unreadable_bytes);
        let json = MetadataJson { bytes, unreadable_bytes, problems: copied.problems };
        print_line(&serde_json::to_string(&json)?)?;
    } else if !global.quiet {
        let bytes = size::human(copied.bytes);
        let problems = match copied.problems {
            0 => String::new(),
            problems => format!(", {} in maps of blocks", counted(problems, "problem")),
        };
        let target = arguments.target.display();
        print_line(&format!("{target}: {}B of metadata{problems}", bytes.trim()))?;
    }
    Ok(())
}
