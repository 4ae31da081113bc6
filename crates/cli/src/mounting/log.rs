//! Where a server's messages go: the system's log, a file, or the terminal.
//!
//! The system's log may write to one of our mounts, and so wait for a thread that logs. Therefore
//! no thread waits for the log: messages that it doesn't accept at once are dropped and counted. The crate
//! `syslog` waits.
//!
//! # Reference
//! RFC 3164, as `/dev/log` has it: a datagram of a priority and a line.

use crate::messages::{Events, report_events};
use crate::output::Escaped;
use anyhow::Context;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
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
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        // Otherwise it panics when standard error is closed.
        .log_internal_errors(false);
    match destination {
        Destination::System => {
            let layer = layer.without_time().with_level(false).with_target(false);
            report_events(layer.with_writer(SystemLog::at(Path::new(SOCKET))), level);
        }
        Destination::File(path) => {
            let file = File::options().create(true).append(true).open(path);
            let file = file.with_context(|| path.display().to_string())?;
            let file = Arc::new(file);
            report_events(layer.with_writer(move || Events(Arc::clone(&file))), level);
        }
        Destination::Terminal => report_events(layer.with_writer(|| Events(io::stderr())), level),
    }
    Ok(())
}

/// Makes a message for the system's log of each event.
struct SystemLog {
    socket: PathBuf,
    /// Dropped messages that haven't been reported yet.
    lost: AtomicU64,
}

impl SystemLog {
    fn at(socket: &Path) -> SystemLog {
        SystemLog { socket: socket.to_owned(), lost: AtomicU64::new(0) }
    }

    fn tell(&self, level: Level, line: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let report = format!("{lost} messages were lost, for which the log had no room");
        let lost_again = if lost > 0 && !self.send(Level::WARN, report.as_bytes()) {
            lost + 1
        } else {
            u64::from(!self.send(level, line))
        };
        if lost_again > 0 {
            self.lost.fetch_add(lost_again, Ordering::Relaxed);
        }
    }

    /// False if there is no room.
    fn send(&self, level: Level, line: &[u8]) -> bool {
        let priority = FACILITY_DAEMON << 3 | severity(level);
        let message = format!("<{priority}>drystone[{}]: {}", std::process::id(), Escaped(line));
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(message.as_bytes(), &self.socket)
        });
        // There may be no listener, which isn't a reason to stop.
        !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// One event's line.
struct LogMessage<'l> {
    log: &'l SystemLog,
    level: Level,
}

impl<'w> MakeWriter<'w> for SystemLog {
    type Writer = LogMessage<'w>;

    fn make_writer(&'w self) -> LogMessage<'w> {
        LogMessage { log: self, level: Level::INFO }
    }

    fn make_writer_for(&'w self, event: &Metadata<'_>) -> LogMessage<'w> {
        LogMessage { log: self, level: *event.level() }
    }
}

impl Write for LogMessage<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.log.tell(self.level, line.trim_ascii_end());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_room_is_not_waited_for() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("log");
        let log = SystemLog::at(&socket);
        // Nobody listens.
        log.tell(Level::ERROR, b"unheard");
        let listener = UnixDatagram::bind(&socket).unwrap();
        let receive = || {
            let mut bytes = [0; 200];
            let length = listener.recv(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let (head, line) = text.split_once(": ").unwrap();
            assert!(head.ends_with(&format!(">drystone[{}]", std::process::id())));
            (head.split('>').next().unwrap().to_owned(), line.to_owned())
        };
        const SENT: u64 = 10_000;
        for number in 0..SENT {
            log.tell(Level::INFO, number.to_string().as_bytes());
        }
        let lost = log.lost.load(Ordering::Relaxed);
        assert!((1..SENT).contains(&lost), "{lost} of {SENT}");
        for number in 0..SENT - lost {
            assert_eq!(receive(), ("<30".to_owned(), number.to_string()));
        }
        log.tell(Level::ERROR, b"at last");
        let (priority, report) = receive();
        assert!(priority == "<28" && report.starts_with(&format!("{lost} messages were lost")));
        assert_eq!(receive(), ("<27".to_owned(), "at last".to_owned()));
    }
}
