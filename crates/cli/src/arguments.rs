//! The command line as a whole.

use crate::commands::Command;
use crate::global::Global;
use clap::Parser;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

const AFTER_HELP: &str = "\
IMAGE is a file or a block device with an ext2, ext3, ext4 or NILFS2 file system; IMAGE:/PATH is a \
path in it. IMAGE alone means its root. Paths in an image start with '/', and symbolic links in them \
are resolved inside the image. IMAGE@NUMBER is a checkpoint of NILFS2, which can only be read.

Exit codes: 0 done; 1 failed, at least in part; 2 called wrongly. 'check' ends with 4 if it found \
errors and 8 if it could not check, 'diff' with 1 if there are differences and 2 after any failure.

Examples:
  drystone mkfs disk.img --size 4G
  drystone build root.img --from root/ --free 20%
  drystone cp /usr/share disk.img:/share
  drystone ls -l disk.img:/share
  drystone check disk.img";

/// Makes, fills, reads, changes, checks and mounts images of ext4 and NILFS2.
#[derive(Debug, Parser)]
#[command(name = "drystone", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Parses the arguments; ends the process if they are wrong.
    pub fn read() -> Arguments {
        let words = crate::called_as::words();
        let mut arguments = Arguments::try_parse_from(words).unwrap_or_else(|mut error| {
            if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
                // How to pass an unknown option as a name is never what is meant.
                let is_meant = |tip: &&StyledStr| !tip.to_string().starts_with("to pass ");
                let tips: Vec<_> = tips.iter().filter(is_meant).cloned().collect();
                match tips.is_empty() {
                    true => error.remove(ContextKind::Suggested),
                    false => error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips)),
                };
            }
            error.exit()
        });
        arguments.global.json = arguments.global.json_output.is_some();
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does_and_how_it_is_called() {
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains(&format!("drystone {name}")), "{name} has no example");
        }
    }
}
