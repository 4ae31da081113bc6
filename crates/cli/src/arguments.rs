//! The command line as a whole.

use crate::commands::Command;
use crate::failure::USAGE;
use crate::global::Global;
use crate::messages::tell;
use crate::wrong_call::{is_help, with_advice, wrong_call};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

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
#[command(name = "drystone", version, after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
    /// What to call for help.
    #[arg(skip)]
    pub called: String,
}

impl Arguments {
    /// Parses the arguments; ends the process if they are wrong.
    pub fn read() -> Arguments {
        let words = crate::called_as::words();
        let called = called(&words);
        match Arguments::try_parse_from(words) {
            Ok(mut arguments) => {
                arguments.global.json = arguments.global.json_output.is_some();
                arguments.called = called;
                arguments
            }
            Err(error) if is_help(&error) => error.exit(),
            Err(error) => {
                let message = wrong_call(error, &called);
                tell(with_advice(&message, &called));
                std::process::exit(i32::from(USAGE))
            }
        }
    }
}

/// What to call for help: the program, and the command if one was named.
fn called(words: &[OsString]) -> String {
    let definition = Arguments::command();
    let mut names = words.iter().skip(1).filter_map(|word| word.to_str());
    match names.find(|name| definition.find_subcommand(name).is_some()) {
        Some(name) => format!("drystone {name}"),
        None => "drystone".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_calls_are_told_as_commands_do() {
        let told = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let called = called(&words);
            let message = wrong_call(Arguments::try_parse_from(words).unwrap_err(), &called);
            with_advice(&message, &called)
        };
        let number = told("drystone quota a.img --user root");
        assert!(number.starts_with("invalid value 'root' for '--user <ID>': it isn't a number\n"));
        assert!(number.ends_with("\nTry 'drystone quota --help'."), "{number}");
        let build = told("drystone build a.img rootfs");
        assert!(build.contains("tip: sources follow --from"), "{build}");
        assert!(build.contains("<IMAGE> --from <[KIND:]SOURCE>..."), "{build}");
        assert!(told("drystone mkfs a.img 64M").contains("tip: the size follows --size"));
        assert!(told("drystone frobnicate").ends_with("\nTry 'drystone --help'."));
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
