//! `which-name`: finds the paths of inodes.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::AtImage;
use crate::location::whole_image;
use crate::messages::tell;
use crate::output::NameJson;
use crate::terminal::Output;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Say which names inodes have
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each name of an inode has a line. A path that starts with '…' is below a directory that has no name. If an inode \
has no name, the command says so and ends with 1.

Examples:
  drystone which-name disk.img 2 11
  drystone which-name --json disk.img 11 | jq -r .name")]
pub struct Arguments {
    /// The image.
    #[arg(value_name = "IMAGE", value_parser = whole_image())]
    image: PathBuf,
    /// The numbers of the inodes.
    #[arg(required = true, value_name = "INODE")]
    inodes: Vec<u32>,
}

#[derive(Serialize)]
struct InodeNameJson {
    inode: u32,
    #[serde(flatten)]
    name: NameJson,
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let path = &arguments.image;
    let names = drystone::which_name(path, &arguments.inodes).at_image(path)?;
    Output::with_stdout(global.json, |output| {
        for name in &names {
            if output.json {
                let inode = name.inode.get();
                output.json(&InodeNameJson { inode, name: NameJson::from(&name.path[..]) })?;
            } else {
                write!(output, "{} ", name.inode)?;
                output.name(&name.path)?;
                writeln!(output)?;
            }
        }
        Ok(())
    })?;
    let is_nameless = |inode: &&u32| !names.iter().any(|name| name.inode.get() == **inode);
    let mut has_failed = false;
    for inode in arguments.inodes.iter().filter(is_nameless) {
        tell(format_args!("{}: inode {inode} has no name", path.display()));
        has_failed = true;
    }
    if has_failed { Err(Failure::Reported) } else { Ok(()) }
}
