//! What may be asked of the command.

use crate::commands::{
    bench, build, cat, check, checkpoints, chmod, chown, completions, cp, diff, extract, find,
    getfattr, history, info, ln, ls, mkdir, mkfs, mount, mounts, mv, quota, rm, setfattr, stat,
    tree, truncate, umount,
};
use crate::terminal::Events;
use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args, Parser, Subcommand};
use drystone::{Policy, UnknownPolicy};
use std::path::PathBuf;

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

/// The heading of the options that every command takes.
const COMMON: &str = "Common options";

/// Makes, fills, reads, changes, checks and mounts images of ext4 and NILFS2.
#[derive(Debug, Parser)]
#[command(name = "drystone", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print JSON: one object, or one on each line where there are several.
    // `bench` has an argument of this name that takes a file, and clap wants one type for both.
    #[arg(id = "json", long, global = true, num_args = 0, default_missing_value = "-",
        help_heading = COMMON)]
    pub json_output: Option<PathBuf>,
    /// JSON was asked for.
    #[arg(skip)]
    pub json: bool,
    /// Change nothing in the image; replay a dirty journal in memory.
    #[arg(long, global = true, help_heading = COMMON)]
    pub read_only: bool,
    /// Select a variant of each mechanism: baseline, scalable, KEY=VALUE,…
    /// [default: scalable]
    // `bench` has an argument of this name that may be given several times.
    #[arg(id = "policies", long = "policy", global = true, value_name = "POLICY",
        value_parser = policy_text, help_heading = COMMON)]
    pub policy: Option<String>,
    /// Report on standard error what happens inside; repeat it for more.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = COMMON)]
    pub verbose: u8,
    /// Print only errors: no progress bar and no notes.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = COMMON)]
    pub quiet: bool,
}

impl Arguments {
    /// What the command was called with; ends the process if that makes no sense.
    pub fn read() -> Arguments {
        let mut arguments = Arguments::parse_from(crate::called_as::words());
        arguments.global.json = arguments.global.json_output.is_some();
        arguments
    }
}

impl Global {
    /// Sends the library's events to standard error, as many as were asked for. `RUST_LOG` says
    /// more exactly which.
    pub fn start_tracing(&self) {
        let level = match self.verbose {
            // Errors are what the command ends with: once is enough.
            0 => "off",
            1 => "info",
            2 => "debug",
            _ => "trace",
        };
        let filter = tracing_subscriber::EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| Events(std::io::stderr()))
            .with_ansi(false)
            // Else it panics when nobody reads standard error any more.
            .log_internal_errors(false)
            .init();
    }
}

/// Reads a number of threads. More only take memory, and may be more than the system starts.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

/// A list of policies, unchanged: the type of the argument is the same as in `bench`.
fn policy_text(text: &str) -> Result<String, UnknownPolicy> {
    text.parse::<Policy>().map(|_| text.to_owned())
}

/// `--help` without `-h`, for commands to which that means something else.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LongHelp {
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    Mkfs(mkfs::Arguments),
    Build(build::Arguments),
    Info(info::Arguments),
    Ls(ls::Arguments),
    Tree(tree::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Find(find::Arguments),
    Cp(cp::Arguments),
    Extract(extract::Arguments),
    Diff(diff::Arguments),
    Mkdir(mkdir::Arguments),
    Mv(mv::Arguments),
    Rm(rm::Arguments),
    Ln(ln::Arguments),
    Chmod(chmod::Arguments),
    Chown(chown::Arguments),
    Truncate(truncate::Arguments),
    Setfattr(setfattr::Arguments),
    Getfattr(getfattr::Arguments),
    Quota(quota::Arguments),
    Check(check::Arguments),
    Checkpoints(checkpoints::Arguments),
    History(history::Arguments),
    Bench(bench::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Mounts(mounts::Arguments),
    Completions(completions::Arguments),
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
