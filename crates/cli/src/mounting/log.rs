//! Where a server's messages go: the system's log, a file, or the terminal.
//!
//! # Reference
//! RFC 3164, as `/dev/log` has it: a datagram of a priority and a line.

use crate::output::Escaped;
use crate::terminal::Events;
use anyhow::Context;
use drystone_sync::Arc;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Where the system's log takes messages.
const SOCKET: &str = "/dev/log";
/// Messages of servers.
const FACILITY_DAEMON: u8 = 3;

/// Where messages go.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'p> {
    /// The system's log.
    System,
    /// A file, at its end.
    File(&'p Path),
    /// Standard error.
    Terminal,
}

/// Sends events to `destination` from now on; `verbose` says how many. `RUST_LOG` says more exactly
/// which.
pub fn start(destination: Destination<'_>, verbose: u8) -> anyhow::Result<()> {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // Else it panics when nobody reads standard error any more.
        .log_internal_errors(false);
    match destination {
        Destination::System => builder
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_writer(SystemLog)
            .init(),
        Destination::File(path) => {
            let file = File::options().create(true).append(true).open(path);
            let file = file.with_context(|| path.display().to_string())?;
            let file = Arc::new(file);
            builder.with_writer(move || Events(Arc::clone(&file))).init();
        }
        Destination::Terminal => builder.with_writer(|| Events(io::stderr())).init(),
    }
    Ok(())
}

/// Makes a message for the system's log of each event.
struct SystemLog;

/// One event's line.
struct Message {
    severity: u8,
}

impl<'w> MakeWriter<'w> for SystemLog {
    type Writer = Message;

    fn make_writer(&'w self) -> Message {
        Message { severity: severity(Level::INFO) }
    }

    fn make_writer_for(&'w self, event: &Metadata<'_>) -> Message {
        Message { severity: severity(*event.level()) }
    }
}

impl Write for Message {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let priority = FACILITY_DAEMON << 3 | self.severity;
        let process = std::process::id();
        let message =
            format!("<{priority}>drystone[{process}]: {}", Escaped(line.trim_ascii_end()));
        // Nobody may be listening, which is no reason to stop.
        let _ =
            UnixDatagram::unbound().and_then(|socket| socket.send_to(message.as_bytes(), SOCKET));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system's log's number for a level.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
