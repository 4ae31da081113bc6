//! Options that every command takes, and parsers that several use.

use crate::failure::{Failure, Outcome};
use crate::messages::{Events, report_events};
use crate::shell_image::ShellImage;
use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use drystone::{Policy, UnknownPolicy};
use std::path::PathBuf;
use std::rc::Rc;
use tracing_subscriber::filter::LevelFilter;

/// The heading of the options that every command takes.
const COMMON: &str = "Common options";

/// Options of every command.
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
    /// The image of the shell in which the command runs.
    #[arg(skip)]
    pub shell_image: Option<Rc<ShellImage>>,
    /// Change nothing in the image: replay a dirty journal in memory. A command that would change the image fails.
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

impl Global {
    /// Fails if nothing may be changed.
    pub fn check_may_change(&self) -> Outcome {
        match self.read_only {
            true => Err(Failure::Usage(
                "this command changes the image, which --read-only forbids".to_string(),
            )),
            false => Ok(()),
        }
    }

    /// Sends the library's events to standard error, as many as the options ask for. `RUST_LOG`
    /// selects more precisely.
    pub fn start_tracing(&self) {
        let level = match self.verbose {
            // The command prints its error at the end; once is enough.
            0 => LevelFilter::OFF,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(|| Events(std::io::stderr()))
            .with_ansi(false)
            // Otherwise it panics when standard error is closed.
            .log_internal_errors(false);
        report_events(layer, level);
    }
}

/// Reads a number of threads. More threads than this limit only take memory, and may be more than
/// the system starts.
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
