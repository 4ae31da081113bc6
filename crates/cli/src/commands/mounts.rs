//! `mounts`: the mounts that run.

use crate::arguments::Global;
use crate::failure::Outcome;
use crate::mounting::registry::Registry;
use std::io::Write;
use std::time::Duration;

/// List the mounts that run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lists mounts of the calling user. With --json every counter, one object a line.

Examples:
  drystone mounts
  drystone mounts --json")]
pub struct Arguments {}

pub fn run(_arguments: &Arguments, global: &Global) -> Outcome {
    let mut out = std::io::stdout().lock();
    let registry = Registry::read()?;
    for socket in &registry.silent {
        eprintln!("drystone: {}: the server does not answer", socket.display());
    }
    for mount in registry.running {
        let status = mount.status;
        if global.json {
            writeln!(out, "{}", serde_json::to_string(&status)?)?;
            continue;
        }
        let requests: u64 = status.requests.values().sum();
        let time = indicatif::HumanDuration(Duration::from_secs(status.seconds));
        writeln!(
            out,
            "{} on {} ({}), process {}, for {time}: {requests} requests, {} read, {} written, {} errors",
            status.image.display(),
            status.directory.display(),
            status.mode,
            status.process,
            indicatif::BinaryBytes(status.bytes_read),
            indicatif::BinaryBytes(status.bytes_written),
            status.io_errors,
        )?;
    }
    Ok(())
}
