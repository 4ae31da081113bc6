//! `top`: watches what mounts do.
//!
//! The server of each mount counts; `watch` takes the difference between two looks at its counters. On a
//! terminal `screen` redraws it after each interval, otherwise it is printed as text or JSON.

mod columns;
mod keys;
mod screen;
mod watch;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::messages::tell;
use crate::mounts::registry::full_path;
use crate::terminal::Output;
use drystone_sync::{clock, thread};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use watch::{Interval, MountWatch};

/// How often a signal is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Watch what mounts do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows for each mount the requests, bytes and commits of the last interval, the memory of its server, and the free \
space. On a terminal the screen is redrawn after each interval. Keys: q ends, p pauses, + and - change the \
interval, the arrows select the mount whose requests are shown by kind. Without a terminal, or with --count, it \
prints a line for each mount after each interval; with --json an object for each interval.

The command ends with 0 after --count intervals, or when none of the mounts that were named is left.

Examples:
  drystone top
  drystone top /mnt --interval 0.5 --count 10
  drystone top --json > activity.json")]
pub struct Arguments {
    /// Directories where images are mounted; all mounts of the user if there is none.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Length of an interval, 0.1 to 3600.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// End after this many intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' isn't a number of seconds"))?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("an interval has 0.1 to 3600 seconds".to_owned()),
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let directories = arguments.directories.iter().map(|directory| full_path(directory));
    let watch = MountWatch::new(directories.collect::<anyhow::Result<_>>()?)?;
    let interrupt = Interrupt::install()?;
    let is_screen = !global.json && arguments.count.is_none() && std::io::stdout().is_terminal();
    if is_screen {
        return screen::run(watch, arguments.interval, &interrupt);
    }
    print(watch, arguments, global.json, &interrupt)
}

/// Prints what happens in each interval.
fn print(
    mut watch: MountWatch,
    arguments: &Arguments,
    json: bool,
    interrupt: &Interrupt,
) -> Outcome {
    if !json {
        Output::with_stdout(false, |output| Ok(writeln!(output, "{}", columns::header())?))?;
    }
    let mut told = BTreeSet::new();
    let mut due = clock::now();
    for _ in 0..arguments.count.unwrap_or(u64::MAX) {
        due = due + arguments.interval;
        while clock::now() < due {
            thread::sleep(due.duration_since(clock::now()).min(LOOK_INTERVAL));
            if interrupt.is_asked() {
                return Err(Failure::Code(interrupt.code()));
            }
        }
        let interval = watch.next()?;
        for socket in &interval.silent {
            if told.insert(socket.clone()) {
                tell(format_args!("{}: the server does not answer", socket.display()));
            }
        }
        Output::with_stdout(json, |output| show(&interval, output))?;
        if watch.is_over() {
            break;
        }
    }
    Ok(())
}

fn show(interval: &Interval, output: &mut Output<'_>) -> Outcome {
    if output.json {
        return Ok(output.json(interval)?);
    }
    for mount in &interval.mounts {
        let line = columns::line(mount, interval.seconds);
        output.name(line.as_bytes())?;
        writeln!(output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_too_short_nor_endless() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "0.05", "-1", "nan", "inf", "3601", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
