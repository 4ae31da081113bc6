//! `mounts`: lists the mounts of the user.

use crate::failure::Outcome;
use crate::global::Global;
use crate::messages::tell;
use crate::mounts::registry::MountRegistry;
use crate::mounts::status::Status;
use crate::output::counted;
use crate::terminal::Output;
use drystone_fuse::attach;
use std::io::Write;
use std::time::Duration;

/// List mounts
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lists the mounts of the calling user. With --json, each line is an object with all counters of a mount.

Examples:
  drystone mounts
  drystone mounts --json")]
pub struct Arguments {}

pub fn run(_arguments: &Arguments, global: &Global) -> Outcome {
    let registry = MountRegistry::read()?;
    for socket in &registry.silent {
        tell(format_args!("{}: the server does not answer", socket.display()));
    }
    Output::with_stdout(global.json, |output| {
        for mount in &registry.running {
            show(&mount.status, output)?;
        }
        Ok(())
    })
}

/// Prints a server's status. Another user may have made it up, so it is escaped.
fn show(status: &Status, output: &mut Output<'_>) -> Outcome {
    if output.json {
        return Ok(output.json(status)?);
    }
    let requests: u64 = status.requests.values().sum();
    let time = indicatif::HumanDuration(Duration::from_secs(status.seconds));
    // After 'umount --lazy', another mount may be there, or none.
    let is_there = |device| attach::device_on(&status.directory) == Some(device);
    let detached = if status.device.is_none_or(is_there) { "" } else { " (detached)" };
    let stopped = status.stopped.as_ref().map(|error| format!(", stopped: {error}"));
    let line = format!(
        "{} on {}{detached} ({}{}), process {}, for {time}: {}, {} read, {} written, {}",
        status.image.display(),
        status.directory.display(),
        status.mode,
        stopped.unwrap_or_default(),
        status.process,
        counted(requests, "request"),
        indicatif::BinaryBytes(status.bytes_read),
        indicatif::BinaryBytes(status.bytes_written),
        counted(status.io_errors, "error"),
    );
    output.name(line.as_bytes())?;
    Ok(writeln!(output)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::printed;

    #[test]
    fn what_another_user_says_does_not_steer_a_terminal() {
        let status = Status {
            image: "/a\x1b]0;title\x07".into(),
            directory: "/b\r\x1b[2K".into(),
            mode: "rw\x1b[1m".to_string(),
            ..Status::default()
        };
        let shown = printed(false, |output| show(&status, output).unwrap());
        assert!(shown.starts_with("/a\\u{1b}]0;title\\u{7} on /b\\r\\u{1b}[2K (rw\\u{1b}[1m)"));
        assert_eq!(shown.chars().filter(|c| c.is_control()).collect::<String>(), "\n");
        let exact = printed(true, |output| show(&status, output).unwrap());
        let exact: serde_json::Value = serde_json::from_str(&exact).unwrap();
        assert_eq!(exact["directory"], "/b\r\x1b[2K");
    }
}
